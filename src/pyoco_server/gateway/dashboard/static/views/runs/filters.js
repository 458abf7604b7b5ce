/** What is shown of the runs: chips by status with their counts, flow, tag, and a search by id. */

import { icon } from "../../components/icons.js";
import { RUN_STATUSES, signOf, toneOf, wordOf } from "../../components/status.js";
import { h, say } from "../../lib/dom.js";
import { number } from "../../lib/format.js";
import { t } from "../../lib/i18n.js";
import { amend } from "../../lib/router.js";

/** @typedef {{counts: Record<string, number>, counts_complete: boolean}} Tally */

/**
 * @param {Route} route
 * @param {(text: string, enter: boolean) => void} onSearch
 */
export function filters(route, onSearch) {
  const chosen = route.query.get("status") ?? "";
  const chips = ["", ...RUN_STATUSES].map((status) => chip(status, status === chosen));
  const element = h(
    "div",
    { class: "filters" },
    h("div", { class: "chips", role: "group", "aria-label": t("runs.by_status") }, chips),
    h("span", { class: "spacer" }),
    textFilter("flow", t("runs.flow"), route),
    textFilter("tag", t("runs.tag"), route),
    search(route, onSearch),
  );
  return { element, showCounts: (/** @type {Tally} */ tally) => showCounts(chips, tally) };
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

/**
 * How many runs have which status, among those the other filters let through.
 * @param {HTMLElement[]} chips
 * @param {Tally} tally
 */
function showCounts(chips, { counts, counts_complete }) {
  const all = Object.values(counts).reduce((sum, count) => sum + count, 0);
  for (const shown of chips) {
    const status = shown.dataset["status"] ?? "";
    const count = number((status ? counts[status] : all) ?? 0);
    say(/** @type {Element} */ (shown.querySelector(".chip-count")), counts_complete ? count : `${count}+`);
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
