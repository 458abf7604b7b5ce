/** The log of a run. */

import { h, say } from "../../lib/dom.js";
import { number, precise } from "../../lib/format.js";
import { t } from "../../lib/i18n.js";
import { VirtualList } from "../../lib/virtual_list.js";
import { EVENT_TYPES, eventTone, eventWord } from "./event_words.js";

/**
 * @param {import("./view.js").Desk} desk
 * @returns {import("./view.js").Part}
 */
export function eventsPanel(desk) {
  const { model } = desk;
  let text = "";
  let type = "";
  /** @type {RunEvent[]} */
  let shown = [];
  const count = h("span", { class: "muted small", role: "status" });
  const scroller = h("div", {
    class: "event-rows",
    tabindex: "0",
    role: "rowgroup",
    "aria-label": t("run.events"),
    on: { click: onClick, keydown: onKey },
  });
  const element = h(
    "div",
    { class: "events" },
    h(
      "div",
      { class: "panel-tools" },
      h("input", {
        type: "search",
        class: "input",
        placeholder: t("events.filter"),
        "aria-label": t("events.filter"),
        on: { input: (/** @type {any} */ event) => filter({ wanted: event.target.value }) },
      }),
      h(
        "select",
        {
          class: "input",
          "aria-label": t("events.type"),
          on: { change: (/** @type {any} */ event) => filter({ kind: event.target.value }) },
        },
        h("option", { value: "" }, t("events.all_types")),
        EVENT_TYPES.map((name) => h("option", { value: name }, `${eventWord(name)} (${name})`)),
      ),
      count,
    ),
    h("div", { class: "event-table", role: "table", "aria-label": t("run.events") }, scroller),
  );
  const list = new VirtualList(
    { scroller, rowHeight: () => 30, keyOf: (index) => String(shown[index]?.version), render },
    desk.signal,
  );

  /** @param {{wanted?: string, kind?: string}} change */
  function filter({ wanted, kind }) {
    text = (wanted ?? text).toLowerCase();
    type = kind ?? type;
    update();
  }

  function update() {
    shown = model.events.filter((event) => (!type || event.type === type) && (!text || words(event).includes(text)));
    say(count, t("events.count", { n: number(shown.length), all: number(model.events.length) }));
    list.setCount(shown.length);
  }

  /**
   * @param {number} index
   * @param {HTMLElement | null} had
   */
  function render(index, had) {
    const event = /** @type {RunEvent} */ (shown[index]);
    const row = had ?? makeRow(event);
    row.setAttribute("aria-rowindex", String(index + 1));
    row.classList.toggle("future", event.version > model.seen);
    row.classList.toggle("active", desk.event() === event.version);
    return row;
  }

  /** @param {RunEvent} event */
  function makeRow(event) {
    const cause = model.versions.get(event.causationId ?? "");
    return h(
      "div",
      { class: "event-row", role: "row", data: { version: String(event.version) } },
      h("span", { role: "cell", class: "mono muted event-version" }, String(event.version)),
      h("span", { role: "cell", class: "mono event-time" }, precise(Date.parse(event.occurredAt) / 1000)),
      h(
        "span",
        { role: "cell", class: "event-type", title: event.type, "data-tone": eventTone(event.type) },
        h("i", { class: "dot", "aria-hidden": "true" }),
        eventWord(event.type),
      ),
      h("span", { role: "cell", class: "mono event-node" }, String(event.payload["nodeId"] ?? "")),
      h(
        "span",
        { role: "cell", class: "muted event-actor", title: event.actor.kind },
        event.actor.id?.split("#")[0] ?? event.actor.kind,
      ),
      h("span", { role: "cell", class: "muted mono event-cause" }, cause ? `← ${cause}` : ""),
      h("span", { role: "cell", class: "muted mono event-note" }, note(event)),
    );
  }

  /** @param {MouseEvent} event */
  function onClick(event) {
    const row = /** @type {HTMLElement | null} */ (/** @type {HTMLElement} */ (event.target).closest(".event-row"));
    if (row) desk.showEvent(Number(row.dataset["version"]));
  }

  /** @param {KeyboardEvent} event */
  function onKey(event) {
    const step = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
    if (!step || !shown.length) return;
    event.preventDefault();
    const at = shown.findIndex((one) => one.version === desk.event());
    const next = Math.max(0, Math.min(shown.length - 1, at + step));
    desk.showEvent(shown[next]?.version ?? null);
    list.scrollTo(next);
  }

  return { element, update };
}

/** @param {RunEvent} event */
const words = (event) =>
  `${event.type} ${eventWord(event.type)} ${event.payload["nodeId"] ?? ""} ${event.actor.kind} ${event.actor.id ?? ""} ${note(event)}`.toLowerCase();

/** The most important detail of an event. @param {RunEvent} event */
function note(event) {
  const { payload } = event;
  const parts = [
    payload["attempt"] > 1 ? `×${payload["attempt"]}` : "",
    payload["reason"] ?? "",
    payload["error"]?.message ?? "",
    payload["message"] ?? "",
    payload["progress"] === undefined ? "" : `${payload["progress"]} %`,
    payload["policy"] ?? "",
    payload["output"] && "value" in payload["output"] ? JSON.stringify(payload["output"].value)?.slice(0, 120) : "",
  ];
  return parts.filter(Boolean).join(" · ");
}
