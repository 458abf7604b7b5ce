/** The graph of a run, updated as nodes are added and change their status. */

import { button } from "../../components/controls.js";
import { signOf, toneOf, wordOf } from "../../components/status.js";
import { h, s, say } from "../../lib/dom.js";
import { duration, nowSeconds } from "../../lib/format.js";
import { t } from "../../lib/i18n.js";
import { layout } from "./layout.js";
import { PanZoom } from "./pan_zoom.js";

/** @typedef {{group: SVGGElement, placed: Placed, shown: string}} Drawn */

/**
 * @param {import("./view.js").Desk} desk
 * @returns {import("./view.js").Part}
 */
export function graphPanel(desk) {
  const { model } = desk;
  const scene = s("g");
  const svg = s(
    "svg",
    { class: "graph", role: "group", "aria-label": t("run.graph"), on: { click: onClick, keydown: onKey } },
    scene,
  );
  const nothing = h("p", { class: "graph-empty muted", hidden: true });
  const zoom = new PanZoom(svg, scene, desk.signal);
  const element = h(
    "div",
    { class: "graph-room" },
    svg,
    nothing,
    h(
      "div",
      { class: "graph-tools" },
      button(t("graph.closer"), () => zoom.step(1), { icon: "plus", bare: true }),
      button(t("graph.farther"), () => zoom.step(-1), { icon: "minus", bare: true }),
      button(t("graph.fit"), () => zoom.fit(), { icon: "fit", bare: true }),
    ),
  );
  /** @type {Map<string, Drawn>} */
  let drawn = new Map();
  /** @type {Wire[]} */
  let wires = [];
  /** @type {SVGPathElement[]} */
  let paths = [];
  let structure = "";

  function update() {
    const { nodes } = model.state;
    nothing.hidden = nodes.size > 0;
    const behind = model.events.length < (model.run?.version ?? 0);
    say(nothing, behind ? t(model.problem ? "graph.unread" : "common.loading") : t("graph.none"));
    const found = `${nodes.size} ${[...nodes.keys()].at(-1) ?? ""}`;
    if (found !== structure) {
      structure = found;
      redraw();
    }
    const now = model.at === null ? nowSeconds() : model.state.now;
    for (const [id, one] of drawn) paint(one, /** @type {FoldedNode} */ (nodes.get(id)), id === desk.selected(), now);
    wires.forEach((wire, at) => {
      const [from, to] = [nodes.get(wire.from), nodes.get(wire.to)];
      paths[at]?.classList.toggle(
        "taken",
        from?.status === "SUCCEEDED" && to !== undefined && to.status !== "IDLE" && !to.skip,
      );
    });
  }

  function redraw() {
    const made = layout(model.state.nodes);
    zoom.size = { width: Math.max(made.width, 1), height: Math.max(made.height, 1) };
    drawn = new Map([...made.nodes].map(([id, placed]) => [id, { placed, group: shape(placed), shown: "" }]));
    wires = made.wires;
    paths = wires.map((wire) => s("path", { class: `wire on-${wire.on}`, d: curve(wire.points) }));
    const blocks = [...drawn.values()]
      .filter((one) => one.placed.kind === "block")
      .sort((one, other) => one.placed.depth - other.placed.depth);
    const others = [...drawn.values()].filter((one) => one.placed.kind !== "block");
    scene.replaceChildren(
      ...made.frames.map((frame) => s("rect", { class: "frame", rx: 12, ...frame })),
      ...blocks.map((one) => one.group),
      ...made.rounds.map((round) => s("text", { class: "round", x: round.x + 20, y: round.y + 4 }, round.text)),
      ...paths,
      ...others.map((one) => one.group),
    );
    drawn.values().next().value?.group.setAttribute("tabindex", "0");
    svg.dataset["nodes"] = String(drawn.size);
    zoom.settle();
  }

  /** @param {MouseEvent} event */
  function onClick(event) {
    if (zoom.moved) return;
    const group = /** @type {Element} */ (event.target).closest("[data-id]");
    desk.select(group?.getAttribute("data-id") ?? null);
  }

  /** @param {KeyboardEvent} event */
  function onKey(event) {
    const id = /** @type {Element} */ (event.target).getAttribute("data-id");
    if (event.key === "+" || event.key === "=") zoom.step(1);
    else if (event.key === "-") zoom.step(-1);
    else if (event.key === "0") zoom.fit();
    else if ((event.key === "Enter" || event.key === " ") && id) desk.select(id);
    else if (event.key.startsWith("Arrow") && id) walk(id, event.key);
    else return;
    event.preventDefault();
  }

  /**
   * Move the focus to the nearest node in a direction.
   * @param {string} id
   * @param {string} key
   */
  function walk(id, key) {
    const here = drawn.get(id)?.placed;
    if (!here) return;
    const sideways = key === "ArrowLeft" || key === "ArrowRight";
    const forward = key === "ArrowRight" || key === "ArrowDown" ? 1 : -1;
    let best = null;
    let least = Infinity;
    for (const one of drawn.values()) {
      const [dx, dy] = [middle(one.placed, "x") - middle(here, "x"), middle(one.placed, "y") - middle(here, "y")];
      const [along, across] = sideways ? [dx * forward, dy] : [dy * forward, dx];
      if (one.placed === here || along <= 4) continue;
      const far = along + Math.abs(across) * 2;
      if (far < least) [best, least] = [one, far];
    }
    if (!best) return;
    drawn.get(id)?.group.setAttribute("tabindex", "-1");
    best.group.setAttribute("tabindex", "0");
    best.group.focus({ preventScroll: true });
    zoom.reveal(best.placed);
  }

  return { element, update };
}

/**
 * @param {Placed} placed
 * @param {"x" | "y"} axis
 */
const middle = (placed, axis) => (axis === "x" ? placed.x + placed.width / 2 : placed.y + placed.height / 2);

/** @param {Placed} placed */
function shape({ node, x, y, width, height, kind }) {
  const inside =
    kind === "dot"
      ? [
          s("circle", { cx: width / 2, cy: height / 2, r: width / 2 - 2, class: "body" }),
          s("text", { x: width / 2, y: height / 2 + 4, class: "sign" }, dotSign(node.type)),
        ]
      : [
          s("rect", { width, height, rx: kind === "block" ? 12 : 8, class: "body" }),
          s("rect", {
            width: 4,
            height: kind === "block" ? 14 : height - 12,
            x: kind === "block" ? 8 : 6,
            y: 6,
            rx: 2,
            class: "edge",
          }),
          s(
            "text",
            { x: kind === "block" ? 20 : 18, y: kind === "block" ? 18 : 17, class: "name" },
            fitted(node.label.replace(/^:/, ""), kind === "block" ? width / 8 : 20),
          ),
          s("text", { x: 18, y: 32, class: "note" }),
          s("text", { x: width - 14, y: 18, class: "sign" }),
          s("rect", { x: 6, y: height - 4, height: 2.5, width: 0, rx: 1, class: "done" }),
        ];
  return s(
    "g",
    {
      class: `node ${kind}`,
      transform: `translate(${x} ${y})`,
      role: "button",
      tabindex: "-1",
      "data-id": node.id,
      "data-type": node.type,
    },
    s("title", null),
    ...inside,
  );
}

/**
 * @param {Drawn} one
 * @param {FoldedNode} node
 * @param {boolean} selected
 * @param {number} now
 */
function paint(one, node, selected, now) {
  const took = node.startedAt === null ? null : (node.endedAt ?? now) - node.startedAt;
  const words = [
    node.status === "WAITING" ? wordOf("WAITING") : took === null ? "" : duration(took),
    node.attempt > 1 ? `×${node.attempt}` : "",
    node.progress !== null && node.endedAt === null ? `${Math.round(node.progress)} %` : "",
  ];
  const note = words.filter(Boolean).join(" · ");
  const shown = `${node.status} ${note} ${selected} ${node.progress}`;
  if (shown === one.shown) return;
  one.shown = shown;
  const { group, placed } = one;
  group.dataset["tone"] = toneOf(node.status);
  group.classList.toggle("selected", selected);
  const label = [node.label, wordOf(node.status), note].filter(Boolean).join(", ");
  group.setAttribute("aria-label", label);
  say(/** @type {Node} */ (group.querySelector("title")), `${node.id}\n${label}`);
  if (placed.kind === "dot") return;
  say(/** @type {Node} */ (group.querySelector(".sign")), signOf(node.status));
  say(/** @type {Node} */ (group.querySelector(".note")), placed.kind === "block" ? "" : note);
  const done = node.endedAt === null ? (node.progress ?? 0) : 0;
  group.querySelector(".done")?.setAttribute("width", String(((placed.width - 12) * done) / 100));
}

/** @param {string} type */
function dotSign(type) {
  /** @type {Record<string, string>} */
  const signs = { Start: "▸", Success: "■", Fork: "⋔", Join: "⋎" };
  return signs[type] ?? "•";
}

/**
 * As much of a text as fits; wide characters take two places.
 * @param {string} text
 * @param {number} room
 */
function fitted(text, room) {
  let used = 0;
  let kept = "";
  for (const letter of text) {
    used += /[\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe4f\uff00-\uff60]/.test(letter) ? 1.8 : 1;
    if (used > room) return `${kept}…`;
    kept += letter;
  }
  return kept;
}

/** A soft line through these points. @param {[number, number][]} points */
function curve(points) {
  const [first, ...rest] = points;
  if (!first) return "";
  let [x, y] = first;
  let path = `M${x} ${y}`;
  for (const [toX, toY] of rest) {
    if (toX === x || toY === y) {
      path += ` L${toX} ${toY}`;
      [x, y] = [toX, toY];
      continue;
    }
    const pull = toX > x ? Math.max(16, (toX - x) / 2) : 60;
    path += ` C${x + pull} ${y} ${toX - pull} ${toY} ${toX} ${toY}`;
    [x, y] = [toX, toY];
  }
  return path;
}
