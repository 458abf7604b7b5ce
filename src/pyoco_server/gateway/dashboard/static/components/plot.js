/** Small plots over time: lines, a scale, a legend, and the values under the pointer. */

import { h, s, say } from "../lib/dom.js";
import { clock } from "../lib/format.js";

const SIZE = { height: 150, right: 8, top: 8, bottom: 20 };
const WIDTH = 480;
/** About as wide as a letter of the scale. */
const LETTER = 6.6;

/** @typedef {{name: string, tone: string, values: (number | null)[]}} Line */
/** @typedef {{element: HTMLElement, show: (at: number[], drawn: Line[]) => void, caption: (text: string) => void}} Plot */

/**
 * @param {string} title
 * @param {(value: number) => string} write how a value is written
 */
export function plot(title, write) {
  const svg = s("svg", {
    class: "plot",
    height: SIZE.height,
    role: "img",
    "aria-label": title,
    on: { pointermove: point, pointerleave: unpoint },
  });
  const legend = h("div", { class: "plot-legend small" });
  const note = h("p", { class: "plot-note muted small", hidden: true });
  const element = h("section", { class: "card" }, h("h2", null, title), note, svg, legend);
  const ruler = s("line", { class: "ruler", y1: SIZE.top, y2: SIZE.height - SIZE.bottom, visibility: "hidden" });
  /** @type {number[]} */
  let times = [];
  /** @type {Line[]} */
  let lines = [];
  let [width, left] = [WIDTH, 0];

  /**
   * @param {number[]} at
   * @param {Line[]} drawn
   */
  function show(at, drawn) {
    [times, lines] = [at, drawn];
    const top = niceTop(Math.max(0, ...lines.flatMap((line) => line.values.map((value) => value ?? 0))));
    width = svg.clientWidth || WIDTH;
    left = 10 + LETTER * Math.max(...[0, 0.5, 1].map((part) => write(top * part).length));
    svg.setAttribute("viewBox", `0 0 ${width} ${SIZE.height}`);
    const x = (/** @type {number} */ index) => placeOf(index);
    const y = (/** @type {number} */ value) =>
      SIZE.height - SIZE.bottom - (value / top) * (SIZE.height - SIZE.top - SIZE.bottom);
    const grid = [0, 0.5, 1].map((part) => [
      s("line", { class: "grid", x1: left, x2: width - SIZE.right, y1: y(top * part), y2: y(top * part) }),
      s("text", { class: "scale", x: left - 6, y: y(top * part) + 4, "text-anchor": "end" }, write(top * part)),
    ]);
    const ends =
      times.length > 1
        ? [
            s("text", { class: "scale", x: left, y: SIZE.height - 5 }, clock(times[0])),
            s(
              "text",
              { class: "scale", x: width - SIZE.right, y: SIZE.height - 5, "text-anchor": "end" },
              clock(times.at(-1)),
            ),
          ]
        : [];
    svg.replaceChildren(
      ...grid.flat(),
      ...ends,
      ...lines.map((line) => s("path", { class: "line", "data-tone": line.tone, d: trace(line.values, x, y) })),
      ruler,
    );
    drawLegend(times.length - 1);
  }

  /** @param {number} index */
  function placeOf(index) {
    const [from, to] = [times[0] ?? 0, times.at(-1) ?? 1];
    const part = to > from ? ((times[index] ?? from) - from) / (to - from) : 1;
    return left + part * (width - left - SIZE.right);
  }

  /** @param {number} index */
  function drawLegend(index) {
    if (legend.childElementCount !== lines.length)
      legend.replaceChildren(
        ...lines.map((line) =>
          h(
            "span",
            null,
            h("i", { class: "swatch", "data-tone": line.tone }),
            h("span", null, line.name),
            h("b", { class: "mono" }),
          ),
        ),
      );
    lines.forEach((line, at) => {
      const value = line.values[index];
      const shown = legend.children[at]?.lastChild;
      if (shown) say(shown, value === null || value === undefined ? "–" : write(value));
    });
  }

  /** @param {PointerEvent} event */
  function point(event) {
    const box = svg.getBoundingClientRect();
    const wanted = ((event.clientX - box.left) / box.width) * width;
    let nearest = 0;
    times.forEach((_, index) => {
      if (Math.abs(placeOf(index) - wanted) < Math.abs(placeOf(nearest) - wanted)) nearest = index;
    });
    ruler.setAttribute("x1", String(placeOf(nearest)));
    ruler.setAttribute("x2", String(placeOf(nearest)));
    ruler.setAttribute("visibility", times.length ? "visible" : "hidden");
    drawLegend(nearest);
  }

  function unpoint() {
    ruler.setAttribute("visibility", "hidden");
    drawLegend(times.length - 1);
  }

  /** A text below the plot. @param {string} text */
  function caption(text) {
    note.hidden = !text;
    say(note, text);
  }

  return { element, show, caption };
}

/**
 * @param {(number | null)[]} values
 * @param {(index: number) => number} x
 * @param {(value: number) => number} y
 */
function trace(values, x, y) {
  let path = "";
  let pen = "M";
  values.forEach((value, index) => {
    if (value === null) pen = "M";
    else {
      path += `${pen}${x(index).toFixed(1)} ${y(value).toFixed(1)}`;
      pen = "L";
    }
  });
  return path;
}

/** @param {number} value */
function niceTop(value) {
  if (value <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return ([1, 2, 4, 5, 10].find((factor) => factor * power >= value) ?? 10) * power;
}
