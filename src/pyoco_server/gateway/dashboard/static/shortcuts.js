/** Keyboard shortcuts of all pages; views add their own for focused lists. */

import { openDialog } from "./components/dialog.js";
import { h } from "./lib/dom.js";
import { t } from "./lib/i18n.js";
import { address, go } from "./lib/router.js";

const PLACES = /** @type {Record<string, string>} */ ({
  r: "runs",
  w: "workers",
  h: "wheels",
  q: "queue",
  m: "metrics",
});
const PATIENCE_MS = 1_200;

export function shortcuts() {
  let began = 0;
  document.addEventListener("keydown", (event) => {
    if (
      event.ctrlKey ||
      event.metaKey ||
      event.altKey ||
      typing(event.target) ||
      document.querySelector("dialog[open]")
    )
      return;
    const place = PLACES[event.key];
    if (place && event.timeStamp - began < PATIENCE_MS) {
      event.preventDefault();
      go(address(place));
    } else if (event.key === "/") {
      event.preventDefault();
      /** @type {HTMLInputElement | null} */ (document.querySelector("input[type=search]"))?.focus();
    } else if (event.key === "?") {
      showShortcuts();
    }
    began = event.key === "g" ? event.timeStamp : 0;
  });
}

/** @param {EventTarget | null} target */
function typing(target) {
  return (
    target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName))
  );
}

export function showShortcuts() {
  const rows = [
    [["/"], t("keys.search")],
    [["g", "r"], t("nav.runs")],
    [["g", "w"], t("nav.workers")],
    [["g", "h"], t("nav.wheels")],
    [["g", "q"], t("nav.queue")],
    [["g", "m"], t("nav.metrics")],
    [["↑", "↓"], t("keys.move")],
    [["Enter"], t("keys.open")],
    [["Space"], t("keys.select")],
    [["+", "−", "0"], t("keys.zoom")],
    [["Esc"], t("keys.close")],
    [["?"], t("keys.title")],
  ];
  openDialog(t("keys.title"), [
    h(
      "table",
      { class: "keys" },
      h(
        "tbody",
        null,
        rows.map(([keys, word]) =>
          h(
            "tr",
            null,
            h(
              "td",
              null,
              [.../** @type {string[]} */ (keys)].map((name) => h("kbd", null, name)),
            ),
            h("td", null, String(word)),
          ),
        ),
      ),
    ),
  ]);
}
