/** When each node ran: its attempts, its waits, its pauses. */

import { signOf, toneOf, wordOf } from "../../components/status.js";
import { h, say } from "../../lib/dom.js";
import { duration, nowSeconds } from "../../lib/format.js";
import { t } from "../../lib/i18n.js";
import { VirtualList } from "../../lib/virtual_list.js";
import { isControl } from "./model.js";

/** @type {Record<Span["kind"], import("../../lib/i18n.js").Key>} */
const WORDS = {
  queued: "timeline.queued",
  attempt: "timeline.attempt",
  waiting: "timeline.waiting",
  backoff: "timeline.backoff",
};

/** @type {[Span["kind"], string, () => string][]} */
const LEGEND = [
  ["queued", "pending", () => t("timeline.queued")],
  ["attempt", "running", () => wordOf("RUNNING")],
  ["attempt", "good", () => wordOf("SUCCEEDED")],
  ["attempt", "bad", () => wordOf("FAILED")],
  ["backoff", "pending", () => t("timeline.backoff")],
  ["waiting", "waiting", () => t("timeline.waiting")],
];
const TICK_PX = 90;

/**
 * @param {import("./view.js").Desk} desk
 * @returns {import("./view.js").Part}
 */
export function timelinePanel(desk) {
  const { model } = desk;
  /** @type {FoldedNode[]} */
  let nodes = [];
  let [from, to] = [0, 1];
  const ticks = h("div", { class: "time-ticks", "aria-hidden": "true" });
  const scroller = h("div", {
    class: "time-rows",
    tabindex: "0",
    role: "list",
    "aria-label": t("run.timeline"),
    on: { click: onClick },
  });
  const element = h(
    "div",
    { class: "timeline" },
    h(
      "div",
      { class: "time-head" },
      h(
        "div",
        { class: "legend small muted" },
        LEGEND.map(([kind, tone, word]) =>
          h("span", null, h("i", { class: "swatch", "data-kind": kind, "data-tone": tone }), word()),
        ),
      ),
      ticks,
    ),
    scroller,
  );
  const list = new VirtualList(
    { scroller, rowHeight: () => 28, keyOf: (index) => nodes[index]?.id ?? "", render },
    desk.signal,
  );

  function update() {
    const { state } = model;
    nodes = [...state.nodes.values()].filter((node) => !isControl(node));
    nodes.sort(
      (one, other) => (one.startedAt ?? Infinity) - (other.startedAt ?? Infinity) || one.createdAt - other.createdAt,
    );
    from = state.startedAt ?? state.createdAt ?? 0;
    to = Math.max(from + 0.001, state.endedAt ?? (model.at === null ? nowSeconds() : state.now));
    drawTicks();
    list.setCount(nodes.length);
  }

  function drawTicks() {
    const step = niceStep((to - from) / Math.max(2, Math.floor(ticks.clientWidth / TICK_PX)));
    const found = [];
    for (let at = 0; at <= to - from; at += step) {
      const tick = h("span", null, at === 0 ? "0" : `+${duration(at)}`);
      tick.style.left = `${(at / (to - from)) * 100}%`;
      found.push(tick);
    }
    ticks.replaceChildren(...found);
  }

  /**
   * @param {number} index
   * @param {HTMLElement | null} had
   */
  function render(index, had) {
    const node = /** @type {FoldedNode} */ (nodes[index]);
    const row =
      had ??
      h(
        "div",
        { class: "time-row", role: "listitem", data: { id: node.id } },
        h(
          "button",
          { type: "button", class: "time-label", tabindex: "-1" },
          h("span", { class: "badge-sign", "aria-hidden": "true" }),
          h("span", { class: "time-name" }),
        ),
        h("div", { class: "time-track" }),
        h("span", { class: "time-sum mono small muted" }),
      );
    const [label, track, sum] = /** @type {HTMLElement[]} */ ([...row.children]);
    if (!label || !track || !sum) return row;
    const [sign, name] = /** @type {HTMLElement[]} */ ([...label.children]);
    if (sign && name) {
      sign.dataset["tone"] = toneOf(node.status);
      say(sign, signOf(node.status));
      say(name, depth(node.id) ? node.id.replace(/^:/, "") : node.label);
    }
    label.title = `${node.id} – ${wordOf(node.status)}`;
    row.classList.toggle("active", desk.selected() === node.id);
    say(sum, node.startedAt === null ? "" : duration((node.endedAt ?? to) - node.startedAt));
    track.replaceChildren(...node.spans.map((span) => bar(node, span)));
    return row;
  }

  /**
   * @param {FoldedNode} node
   * @param {Span} span
   */
  function bar(node, span) {
    const until = span.to ?? to;
    const tone =
      span.kind === "waiting"
        ? "waiting"
        : span.outcome === "failed"
          ? "bad"
          : span.outcome === "canceled"
            ? "cancelled"
            : span.outcome === "ok"
              ? "good"
              : toneOf(node.status);
    const label = `${t(WORDS[span.kind])}${span.kind === "attempt" ? ` ${span.attempt}` : ""}: ${duration(until - span.from)}`;
    const element = h("span", {
      class: "time-bar",
      "data-kind": span.kind,
      "data-tone": tone,
      title: label,
      role: "img",
      "aria-label": label,
    });
    element.style.left = `${((span.from - from) / (to - from)) * 100}%`;
    element.style.width = `max(2px, ${((until - span.from) / (to - from)) * 100}%)`;
    return element;
  }

  /** @param {MouseEvent} event */
  function onClick(event) {
    const row = /** @type {HTMLElement | null} */ (/** @type {HTMLElement} */ (event.target).closest(".time-row"));
    if (row) desk.select(row.dataset["id"] ?? null);
  }

  return { element, update };
}

/** @param {string} id */
const depth = (id) => id.split("/").length - 1;

/** @param {number} rough */
function niceStep(rough) {
  const power = 10 ** Math.floor(Math.log10(Math.max(rough, 1e-6)));
  return ([1, 2, 5, 10].find((factor) => factor * power >= rough) ?? 10) * power;
}
