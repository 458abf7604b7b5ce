/** The view of one run: header, graph, timeline, log and details. */

import { errorPanel } from "../../components/controls.js";
import { fill, h } from "../../lib/dom.js";
import { t } from "../../lib/i18n.js";
import { amend } from "../../lib/router.js";
import { dataPanel } from "./data.js";
import { eventsPanel } from "./events.js";
import { graphPanel } from "./graph.js";
import { header } from "./header.js";
import { inspector } from "./inspector.js";
import { RunModel } from "./model.js";
import { timelinePanel } from "./timeline.js";
import { travelBar } from "./travel.js";

/**
 * @typedef {{element: HTMLElement, update: () => void}} Part
 * @typedef {{model: RunModel, signal: AbortSignal, selected: () => string | null, select: (node: string | null) => void,
 *   event: () => number | null, showEvent: (version: number | null) => void, travel: (at: number | null) => void}} Desk
 * @typedef {import("../../lib/i18n.js").Key} Key
 */

/** @type {{name: string, word: Key, make: (desk: Desk) => Part}[]} */
const TABS = [
  { name: "graph", word: "run.graph", make: graphPanel },
  { name: "timeline", word: "run.timeline", make: timelinePanel },
  { name: "events", word: "run.events", make: eventsPanel },
  { name: "data", word: "run.data", make: dataPanel },
];

/**
 * @param {HTMLElement} root
 * @param {Route} route
 * @param {AbortSignal} signal
 * @returns {View}
 */
export function mount(root, route, signal) {
  const errors = h("div");
  const body = h("div", { class: "run-body" });
  const model = new RunModel(route.id ?? "", signal, draw, failed);
  /** @type {string | null} */
  let node = route.query.get("node");
  /** @type {number | null} */
  let event = null;
  let asked = Number(route.query.get("at") ?? NaN);

  /** @type {Desk} */
  const desk = {
    model,
    signal,
    selected: () => node,
    select: (wanted) => {
      [node, event] = [wanted, null];
      amend({ node });
      draw();
    },
    event: () => event,
    showEvent: (version) => {
      event = version;
      draw();
    },
    travel: (at) => {
      model.lookAt(at);
      amend({ at: model.at === null ? null : String(model.at) });
    },
  };

  const head = header(desk);
  const travel = travelBar(desk);
  const side = inspector(desk);
  const strip = h("div", { class: "tabs", role: "tablist", "aria-label": t("run.tabs"), on: { keydown: turn } });
  const room = h("div", { class: "tab-room", role: "tabpanel", tabindex: "-1" });
  let tab = TABS.find((one) => one.name === route.query.get("tab")) ?? /** @type {typeof TABS[0]} */ (TABS[0]);
  /** @type {Map<string, Part>} */
  const parts = new Map();

  fill(
    body,
    h("div", { class: "run-main" }, h("div", { class: "run-strip" }, strip, travel.element), room),
    side.element,
  );
  root.append(head.element, errors, body);
  body.hidden = true;
  open(tab);

  /** @param {typeof TABS[0]} wanted */
  function open(wanted) {
    tab = wanted;
    fill(
      strip,
      TABS.map((one) =>
        h(
          "button",
          {
            type: "button",
            role: "tab",
            class: "tab",
            id: `tab-${one.name}`,
            "aria-selected": String(one === tab),
            tabindex: one === tab ? "0" : "-1",
            on: {
              click: () => {
                open(one);
                amend({ tab: one === TABS[0] ? null : one.name });
              },
            },
          },
          t(one.word),
        ),
      ),
    );
    let part = parts.get(tab.name);
    if (!part) parts.set(tab.name, (part = tab.make(desk)));
    room.setAttribute("aria-labelledby", `tab-${tab.name}`);
    fill(room, part.element);
    part.update();
  }

  /** @param {KeyboardEvent} keyboard */
  function turn(keyboard) {
    const step = keyboard.key === "ArrowRight" ? 1 : keyboard.key === "ArrowLeft" ? -1 : 0;
    if (!step) return;
    const next = TABS[(TABS.indexOf(tab) + step + TABS.length) % TABS.length];
    if (next) {
      open(next);
      amend({ tab: next === TABS[0] ? null : next.name });
    }
    /** @type {HTMLElement | null} */ (strip.querySelector("[aria-selected=true]"))?.focus();
  }

  let planned = false;
  function draw() {
    if (planned) return;
    planned = true;
    requestAnimationFrame(() => {
      planned = false;
      if (signal.aborted) return;
      if (!Number.isNaN(asked) && model.events.length >= asked) {
        model.lookAt(asked);
        asked = NaN;
      }
      body.hidden = !model.run;
      if (model.run && !model.problem) errors.replaceChildren();
      head.update();
      travel.update();
      side.update();
      parts.get(tab.name)?.update();
    });
  }

  /** @param {unknown} error */
  function failed(error) {
    if (!model.run || model.problem) errors.replaceChildren(errorPanel(error, () => model.retry()));
    draw();
  }

  root.addEventListener("keydown", (keyboard) => keyboard.key === "Escape" && (node || event) && desk.select(null), {
    signal,
  });
  const ticking = setInterval(draw, 1_000);
  signal.addEventListener("abort", () => clearInterval(ticking));
  model.start();
  return {};
}
