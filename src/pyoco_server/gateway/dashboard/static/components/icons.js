/** Icons: 16 by 16, strokes in the colour of the text. */

import { s } from "../lib/dom.js";

const PATHS = {
  runs: "M2.5 4h11M2.5 8h11M2.5 12h7",
  workers: "M3 3.5h10v4H3zM3 9.5h10v3H3zM5.5 5.5h.01M5.5 11h.01",
  wheels: "M8 2l5.5 3v6L8 14l-5.5-3V5zM2.5 5L8 8l5.5-3M8 8v6",
  queue: "M2.5 9.5h3l1 2h3l1-2h3M2.5 9.5L4.5 3.5h7l2 6v3h-11z",
  metrics: "M2.5 13.5V2.5M2.5 13.5h11M5 10.5l2.5-3 2 1.5 3.5-5",
  search: "M7 11.5a4.5 4.5 0 1 0 0-9 4.5 4.5 0 0 0 0 9zM10.5 10.5l3 3",
  sun: "M8 10.5a2.5 2.5 0 1 0 0-5 2.5 2.5 0 0 0 0 5zM8 1.5v1.5M8 13v1.5M1.5 8H3M13 8h1.5M3.4 3.4l1 1M11.6 11.6l1 1M12.6 3.4l-1 1M4.4 11.6l-1 1",
  moon: "M13 9.5A5.5 5.5 0 0 1 6.5 3a5.5 5.5 0 1 0 6.5 6.5z",
  auto: "M8 13.5a5.5 5.5 0 1 0 0-11 5.5 5.5 0 0 0 0 11zM8 2.5v11M8 5.5h4.6M8 8h5.4M8 10.5h4.6",
  key: "M10 7.5a3 3 0 1 0-3-3c0 .4.1.8.2 1.2L2.5 10.500V13H5v-1.500h1.500V10L8.8 7.300c.4.1.8.2 1.2.2zM11 4.500h.01",
  keyboard: "M1.5 4h13v8h-13zM4 6.500h.01M6.7 6.500h.01M9.3 6.500h.01M12 6.500h.01M5 9.500h6",
  close: "M4 4l8 8M12 4l-8 8",
  copy: "M5.5 5.500v-3h8v8h-3M2.5 5.500h8v8h-8z",
  back: "M9.5 3.500L5 8l4.5 4.5",
  stop: "M4 4h8v8H4z",
  archive: "M2.5 3h11v3h-11zM3.5 6v7h9V6M6.5 8.500h3",
  play: "M5 3.500v9l7-4.500z",
  upload: "M8 10.500v-8M4.5 6L8 2.5 11.5 6M2.5 10.500v3h11v-3",
  download: "M8 2.500v8M4.5 7L8 10.5 11.5 7M2.5 10.500v3h11v-3",
  trash: "M3 4.500h10M6.5 4.500v-2h3v2M4 4.500l.7 9h6.600l.7-9M6.7 7v4M9.3 7v4",
  eye: "M1.5 8S4 3.5 8 3.5 14.5 8 14.5 8 12 12.5 8 12.5 1.5 8 1.5 8zM8 9.800a1.8 1.8 0 1 0 0-3.6 1.8 1.8 0 0 0 0 3.600z",
  hide: "M2.5 2.500l11 11M6.2 4c.6-.3 1.2-.5 1.8-.5 4 0 6.5 4.5 6.5 4.500s-.8 1.4-2.1 2.600M9.5 12.200c-.5.2-1 .3-1.5.3-4 0-6.5-4.5-6.5-4.500s.9-1.7 2.5-3",
  fit: "M2.5 6v-3.500H6M10 2.500h3.500V6M13.5 10v3.500H10M6 13.500H2.500V10",
  plus: "M8 3v10M3 8h10",
  minus: "M3 8h10",
  warning: "M8 2.500l6 11H2zM8 6.500v3M8 11.500h.01",
};

/** @typedef {keyof typeof PATHS} Icon */

/** @param {Icon} name */
export function icon(name) {
  return s(
    "svg",
    { class: "icon", viewBox: "0 0 16 16", "aria-hidden": "true", focusable: "false" },
    s("path", {
      d: PATHS[name],
      fill: "none",
      stroke: "currentColor",
      "stroke-width": "1.4",
      "stroke-linecap": "round",
      "stroke-linejoin": "round",
    }),
  );
}
