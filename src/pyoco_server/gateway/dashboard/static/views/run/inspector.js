/** The details of one node or one event. */

import { button, facts, jsonBlock, progressBar } from "../../components/controls.js";
import { download } from "../../components/download.js";
import { badge } from "../../components/status.js";
import { fill, h } from "../../lib/dom.js";
import { duration, nowSeconds, precise } from "../../lib/format.js";
import { t } from "../../lib/i18n.js";
import { resume } from "./actions.js";
import { eventWord } from "./event_words.js";

/** @typedef {import("./view.js").Desk} Desk */
/** @typedef {import("./model.js").RunModel} RunModel */

/**
 * @param {Desk} desk
 * @returns {import("./view.js").Part}
 */
export function inspector(desk) {
  const element = h("aside", { class: "inspector", "aria-label": t("node.details"), hidden: true });
  let drawn = "";

  function update() {
    const { model } = desk;
    const version = desk.event();
    const event = version === null ? undefined : model.events[version - 1];
    const node = model.state.nodes.get(desk.selected() ?? "");
    element.hidden = !event && !node;
    const moving =
      node && node.startedAt !== null && node.endedAt === null && model.at === null ? Math.floor(nowSeconds()) : 0;
    const now = event ? `event ${version}` : `${node?.id} ${model.state.version} ${moving}`;
    if (now === drawn) return;
    drawn = now;
    const at = element.scrollTop;
    if (event) fill(element, ...eventDetails(desk, event));
    else if (node) fill(element, ...nodeDetails(desk, node));
    element.scrollTop = at;
  }

  return { element, update };
}

/**
 * The nodes that this one depends on, without those that only open and join branches.
 * @param {Map<string, FoldedNode>} nodes
 * @param {string} id
 * @returns {FoldedNode[]}
 */
function predecessors(nodes, id) {
  const found = new Set();
  const wanted = new Set([id]);
  for (const target of wanted) {
    for (const node of nodes.values()) {
      if (!node.edges.some((edge) => edge.to === target)) continue;
      if (node.type === "Fork" || node.type === "Join") wanted.add(node.id);
      else if (node.type !== "Start") found.add(node);
    }
  }
  return [...found];
}

/**
 * @param {Desk} desk
 * @param {string} title
 * @param {Node} beside
 */
function head(desk, title, beside) {
  return h(
    "header",
    { class: "inspector-head" },
    h("h2", null, title),
    beside,
    h("span", { class: "spacer" }),
    button(t("common.close"), () => desk.select(null), { icon: "close", kind: "quiet", bare: true }),
  );
}

/**
 * @param {Desk} desk
 * @param {FoldedNode} node
 */
function nodeDetails(desk, node) {
  const { model } = desk;
  const until = node.endedAt ?? (model.at === null ? nowSeconds() : model.state.now);
  const waiting = model.at === null ? model.run?.waiting?.find((wait) => wait.node_id === node.id) : undefined;
  const before = predecessors(model.state.nodes, node.id);
  return [
    head(desk, node.label, badge(node.status)),
    node.progress !== null || node.message
      ? h(
          "div",
          { class: "node-progress" },
          progressBar(node.progress ?? 0, 100, t("node.progress")),
          h(
            "span",
            { class: "small" },
            [node.progress === null ? "" : `${Math.round(node.progress)} %`, node.message ?? ""]
              .filter(Boolean)
              .join(" · "),
          ),
        )
      : null,
    waiting ? button(t("resume.action"), () => resume(model, waiting), { icon: "play", kind: "primary" }) : null,
    facts([
      [t("node.id"), h("span", { class: "mono" }, node.id)],
      [t("node.type"), node.type],
      [t("node.attempt"), node.attempt ? String(node.attempt) : null],
      [t("run.worker"), node.workerId ? h("span", { class: "mono" }, node.workerId.split("#")[0]) : null],
      [t("run.started"), node.startedAt === null ? null : precise(node.startedAt)],
      [t("run.ended"), node.endedAt === null ? null : precise(node.endedAt)],
      [t("runs.duration"), node.startedAt === null ? null : duration(until - node.startedAt)],
      [t("node.wait_key"), node.waitKey],
      [t("node.skipped"), node.skip ? t("node.skipped_by", { node: node.skip.by, how: node.skip.countsAs }) : null],
    ]),
    node.error && node.status !== "SUCCEEDED"
      ? h("section", null, h("h3", null, t("node.error")), errorDetails(node.error))
      : null,
    node.failures.length > 1 || (node.failures.length && node.status !== "FAILED")
      ? h("section", null, h("h3", null, t("node.failures")), node.failures.map(failure))
      : null,
    node.output === undefined
      ? null
      : h(
          "section",
          null,
          h("h3", null, outputTitle(node.output)),
          jsonBlock(plainOutput(node.output), t("node.output")),
          downloadButton(model, node),
        ),
    before.length
      ? h(
          "section",
          null,
          h("h3", null, t("node.inputs")),
          before.map((other) => input(desk, other)),
        )
      : null,
    node.prompt
      ? h("section", null, h("h3", null, t("resume.prompt")), jsonBlock(node.prompt, t("resume.prompt")))
      : null,
    Object.keys(node.meta).length
      ? h("details", null, h("summary", null, t("node.definition")), jsonBlock(node.meta, t("node.definition")))
      : null,
  ];
}

/** @param {Record<string, any>} error */
function errorDetails(error) {
  const trace = error["detail"]?.traceback;
  return h(
    "div",
    null,
    h(
      "p",
      { class: "bad-text" },
      h("strong", { class: "mono" }, error["code"] ?? "error"),
      " ",
      String(error["message"] ?? ""),
    ),
    trace
      ? jsonBlock(String(trace), t("node.traceback"))
      : error["detail"]
        ? jsonBlock(error["detail"], t("node.error"))
        : null,
  );
}

/** @param {FoldedNode["failures"][0]} failed */
function failure(failed) {
  return h(
    "details",
    null,
    h(
      "summary",
      null,
      t("node.attempt_n", { n: failed.attempt }),
      " ",
      h("span", { class: "muted small" }, precise(failed.at)),
      " ",
      h("span", { class: "mono small" }, failed.error?.["code"] ?? ""),
    ),
    failed.error ? errorDetails(failed.error) : null,
  );
}

/**
 * @param {Desk} desk
 * @param {FoldedNode} node
 */
function input(desk, node) {
  return h(
    "div",
    { class: "node-input" },
    h("button", { type: "button", class: "link", on: { click: () => desk.select(node.id) } }, node.label),
    badge(node.status),
    node.output === undefined
      ? null
      : h(
          "details",
          null,
          h("summary", null, outputTitle(node.output)),
          jsonBlock(plainOutput(node.output), node.label),
        ),
  );
}

/**
 * A download of the whole output, also of one that is stored beside the log; null if there is none.
 * @param {RunModel} model
 * @param {FoldedNode} node
 */
function downloadButton(model, node) {
  if (node.status !== "SUCCEEDED" || !node.output || !("value" in node.output || "stored" in node.output)) return null;
  const ending = node.output["output_kind"] === "pickle" ? "pickle" : "json";
  return button(
    t("node.output_download"),
    () => void download(`${model.nodePath(node.id)}/output`, `${node.id.replace(/[^A-Za-z0-9._-]+/g, "_")}.${ending}`),
    { icon: "download", kind: "plain" },
  );
}

/** @param {any} output */
const plainOutput = (output) => (output && typeof output === "object" && "value" in output ? output.value : output);

/**
 * The heading of an output, with its kind unless it is plain JSON.
 *
 * @param {any} output
 */
function outputTitle(output) {
  const kinds = /** @type {Record<string, string>} */ ({
    tagged: t("node.output_tagged"),
    pickle: t("node.output_pickle"),
    lost: t("node.output_lost"),
  });
  const kind = kinds[output?.["output_kind"]];
  return kind ? `${t("node.output")} (${kind})` : t("node.output");
}

/**
 * @param {Desk} desk
 * @param {RunEvent} event
 */
function eventDetails(desk, event) {
  const { model } = desk;
  const cause = model.events[(model.versions.get(event.causationId ?? "") ?? 0) - 1];
  const node = typeof event.payload["nodeId"] === "string" ? event.payload["nodeId"] : null;
  return [
    head(desk, eventWord(event.type), h("span", { class: "muted" }, `#${event.version}`)),
    facts([
      [t("events.type"), h("span", { class: "mono" }, event.type)],
      [t("events.time"), precise(Date.parse(event.occurredAt) / 1000)],
      [t("events.actor"), [event.actor.kind, event.actor.id].filter(Boolean).join(" · ")],
      [
        t("events.node"),
        node ? h("button", { type: "button", class: "link mono", on: { click: () => desk.select(node) } }, node) : null,
      ],
      [
        t("events.cause"),
        cause
          ? h(
              "button",
              { type: "button", class: "link", on: { click: () => desk.showEvent(cause.version) } },
              `#${cause.version} ${eventWord(cause.type)}`,
            )
          : null,
      ],
      [t("events.correlation"), event.correlationId ? h("span", { class: "mono" }, event.correlationId) : null],
      [t("events.id"), h("span", { class: "mono" }, event.eventId)],
    ]),
    button(t("events.go_there"), () => desk.travel(event.version), { kind: "plain" }),
    h("section", null, h("h3", null, t("events.payload")), jsonBlock(event.payload, t("events.payload"))),
  ];
}
