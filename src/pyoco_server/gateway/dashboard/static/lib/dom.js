/** Elements made without markup: whatever a user supplied ends up as text. */

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
 * Replace all that is inside.
 * @param {Element} element
 * @param {...(Child | Child[])} children
 */
export function fill(element, ...children) {
  element.replaceChildren();
  append(element, children);
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
