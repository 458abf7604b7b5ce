/** What is shown of the runs: chips by status with their counts, flow, tag, and a search by id. */

import { icon } from "../../components/icons.js";
import { RUN_STATUSES, signOf, toneOf, wordOf } from "../../components/status.js";
import { h, say } from "../../lib/dom.js";
import { number } from "../../lib/format.js";
import { t } from "../../lib/i18n.js";
import { byLabel, history, onMetrics } from "../../lib/metrics.js";
import { amend } from "../../lib/router.js";

/**
 * @param {Route} route
 * @param {AbortSignal} signal
 * @param {(text: string, enter: boolean) => void} onSearch
 */
export function filters(route, signal, onSearch) {
  const chosen = route.query.get("status") ?? "";
  const chips = ["", ...RUN_STATUSES].map((status) => chip(status, status === chosen));
  onMetrics(() => showCounts(chips), signal);
  return h(
    "div",
    { class: "filters" },
    h("div", { class: "chips", role: "group", "aria-label": t("runs.by_status") }, chips),
    h("span", { class: "spacer" }),
    textFilter("flow", t("runs.flow"), route),
    textFilter("tag", t("runs.tag"), route),
    search(route, onSearch),
  );
}

/**
 * @param {string} status
 * @param {boolean} pressed
 */
function chip(status, pressed) {
  return h(
    "button",
    {
      type: "button",
      class: "chip",
      "aria-pressed": String(pressed),
      data: { status, tone: status ? toneOf(status) : "pending" },
      on: { click: () => amend({ status: pressed ? null : status }) },
    },
    status ? h("span", { class: "badge-sign", "aria-hidden": "true" }, signOf(status)) : null,
    h("span", null, status ? wordOf(status) : t("runs.all")),
    h("span", { class: "chip-count" }),
  );
}

/** @param {HTMLElement[]} chips */
function showCounts(chips) {
  const counts = byLabel(history().at(-1), "pyoco_runs_total", "status");
  const all = [...counts.values()].reduce((sum, count) => sum + count, 0);
  for (const shown of chips) {
    const status = shown.dataset["status"] ?? "";
    const count = status ? counts.get(status) : all;
    say(/** @type {Element} */ (shown.querySelector(".chip-count")), count === undefined ? "" : number(count));
  }
}

/**
 * @param {"flow" | "tag"} name
 * @param {string} label
 * @param {Route} route
 */
function textFilter(name, label, route) {
  return h("input", {
    class: "input narrow",
    placeholder: label,
    "aria-label": label,
    value: route.query.get(name) ?? "",
    data: { filter: name },
    on: { change: (/** @type {any} */ event) => amend({ [name]: event.target.value.trim() }) },
  });
}

/**
 * @param {Route} route
 * @param {(text: string, enter: boolean) => void} onSearch
 */
function search(route, onSearch) {
  const input = h("input", {
    type: "search",
    class: "input",
    placeholder: t("runs.search"),
    "aria-label": t("runs.search"),
    value: route.query.get("q") ?? "",
    on: {
      input: () => onSearch(input.value.trim(), false),
      keydown: (/** @type {KeyboardEvent} */ event) => event.key === "Enter" && onSearch(input.value.trim(), true),
    },
  });
  return h("div", { class: "search" }, icon("search"), input);
}
