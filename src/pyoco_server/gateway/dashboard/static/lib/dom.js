/** Creates elements without markup, so that texts of users stay text. */

/**
 * @typedef {Node | string | number | null | undefined | false} Child
 * @typedef {{
 *   class?: string,
 *   on?: Record<string, (event: any) => void>,
 *   data?: Record<string, string>,
 *   [attribute: string]: any,
 * }} Props
 */

const SVG = "http://www.w3.org/2000/svg";

/**
 * An HTML element.
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} tag
 * @param {Props | null} [props]
 * @param {...(Child | Child[])} children
 * @returns {HTMLElementTagNameMap[K]}
 */
export function h(tag, props, ...children) {
  const element = document.createElement(tag);
  dress(element, props);
  append(element, children);
  return element;
}

/**
 * An SVG element.
 * @template {keyof SVGElementTagNameMap} K
 * @param {K} tag
 * @param {Props | null} [props]
 * @param {...(Child | Child[])} children
 * @returns {SVGElementTagNameMap[K]}
 */
export function s(tag, props, ...children) {
  const element = /** @type {SVGElementTagNameMap[K]} */ (document.createElementNS(SVG, tag));
  dress(element, props);
  append(element, children);
  return element;
}

/**
 * Replace all children.
 * @param {Element} element
 * @param {...(Child | Child[])} children
 */
export function fill(element, ...children) {
  element.replaceChildren();
  append(element, children);
}

/**
 * Replace the children, but keep those that look the same already: so focus, selection and scroll position survive.
 * @param {Element} element
 * @param {...(Child | Child[])} children
 */
export function refill(element, ...children) {
  const wanted = /** @type {Element} */ (element.cloneNode(false));
  append(wanted, children);
  settle(element, wanted);
}

/**
 * @param {Element} had
 * @param {Element} wanted
 */
function settle(had, wanted) {
  const [old, made] = [[...had.childNodes], [...wanted.childNodes]];
  for (const [at, node] of made.entries()) {
    const known = old[at];
    if (!known) had.append(node);
    else if (known.isEqualNode(node)) continue;
    else if (
      known instanceof Element &&
      node instanceof Element &&
      node.cloneNode(false).isEqualNode(known.cloneNode(false))
    )
      settle(known, node);
    else had.replaceChild(node, known);
  }
  for (const node of old.slice(made.length)) node.remove();
}

/**
 * Set a text only if it is another one, so that selections survive.
 * @param {Node} node
 * @param {string} text
 */
export function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/**
 * @param {Element} element
 * @param {Props | null | undefined} props
 */
function dress(element, props) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") {
      for (const [event, listener] of Object.entries(value))
        element.addEventListener(event, /** @type {any} */ (listener));
    } else if (name === "data") {
      Object.assign(/** @type {HTMLElement} */ (element).dataset, value);
    } else if (name === "value" || name === "checked" || name === "disabled" || name === "indeterminate") {
      /** @type {any} */ (element)[name] = value;
    } else {
      element.setAttribute(name, value === true ? "" : String(value));
    }
  }
}

/**
 * @param {Element} element
 * @param {(Child | Child[])[]} children
 */
function append(element, children) {
  for (const child of children.flat()) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : String(child));
  }
}
