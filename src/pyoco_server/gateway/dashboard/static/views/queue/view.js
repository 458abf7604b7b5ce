/** The queue of runs that wait for a worker, and the dead letters. */

import { emptyState, errorPanel } from "../../components/controls.js";
import { ask, isAbort } from "../../lib/api.js";
import { h, refill } from "../../lib/dom.js";
import { age, clock, moment, nowSeconds, number, shortId } from "../../lib/format.js";
import { t } from "../../lib/i18n.js";
import { byLabel, history, metricsProblem, onMetrics } from "../../lib/metrics.js";
import { poll } from "../../lib/polling.js";
import { address } from "../../lib/router.js";

const LOOK_MS = 3_000;
const OLDEST = 8;

/**
 * @param {HTMLElement} root
 * @param {Route} _route
 * @param {AbortSignal} signal
 * @returns {View}
 */
export function mount(root, _route, signal) {
  const tags = h("div", { class: "table-room" }, h("p", { class: "muted" }, t("common.loading")));
  const oldest = h("div", { class: "table-room" });
  const letters = h("div", { class: "table-room" }, h("p", { class: "muted" }, t("common.loading")));
  root.append(
    h("div", { class: "page-head" }, h("h1", null, t("queue.title"))),
    h(
      "div",
      { class: "columns" },
      h("section", { class: "card" }, h("h2", null, t("queue.backlog")), tags),
      h("section", { class: "card" }, h("h2", null, t("queue.oldest")), oldest),
    ),
    h("section", { class: "card" }, h("h2", null, t("queue.dead")), letters),
  );

  /** @type {Set<string> | null} the tags that workers take jobs of */
  let served = null;

  function drawTags() {
    const problem = metricsProblem();
    if (problem && !history().length) {
      tags.replaceChildren(errorPanel(problem, () => void look()));
      return;
    }
    const backlog = byLabel(history().at(-1), "pyoco_queue_backlog", "tag");
    const most = Math.max(1, ...backlog.values());
    refill(
      tags,
      h(
        "table",
        { class: "table" },
        h(
          "thead",
          null,
          h(
            "tr",
            null,
            h("th", { scope: "col" }, t("runs.tag")),
            h("th", { scope: "col" }, t("queue.waiting")),
            h("th", { scope: "col" }, ""),
            h("th", { scope: "col" }, ""),
          ),
        ),
        h(
          "tbody",
          null,
          [...backlog].map(([tag, count]) =>
            h(
              "tr",
              null,
              h("td", { class: "mono" }, tag),
              h("td", { class: "number" }, number(count)),
              h(
                "td",
                null,
                served && count && !served.has(tag)
                  ? h("span", { class: "badge", "data-tone": "cancelling" }, t("queue.no_worker"))
                  : null,
              ),
              h("td", null, h("progress", { class: "progress", max: most, value: count, "aria-label": tag })),
            ),
          ),
        ),
      ),
    );
  }

  async function read() {
    try {
      const [dead, waiting, workers] = await Promise.all([
        ask("/dlq?limit=200", { signal }),
        ask(`/runs?status=PENDING&order=oldest&limit=${OLDEST}`, { signal }),
        ask("/workers?scope=active&include_hidden=true&limit=500", { signal }),
      ]);
      served = new Set(workers.flatMap((/** @type {Worker} */ worker) => worker.tags));
      if (history().length) drawTags();
      refill(letters, dead.length ? letterTable(dead) : emptyState(t("queue.no_dead"), t("queue.no_dead_text")));
      refill(oldest, waiting.length ? pendingTable(waiting) : h("p", { class: "muted" }, t("queue.nothing_waits")));
    } catch (error) {
      if (!isAbort(error)) letters.replaceChildren(errorPanel(error, () => void look()));
      if (!isAbort(error)) oldest.replaceChildren();
      throw error;
    }
  }

  const look = poll(read, LOOK_MS, signal);
  onMetrics(drawTags, signal);
  return {};
}

/** @param {Run[]} runs */
function pendingTable(runs) {
  const now = nowSeconds();
  return h(
    "table",
    { class: "table" },
    h(
      "thead",
      null,
      h(
        "tr",
        null,
        [t("runs.id"), t("runs.flow"), t("runs.tag"), t("queue.since")].map((word) => h("th", { scope: "col" }, word)),
      ),
    ),
    h(
      "tbody",
      null,
      runs.map((run) =>
        h(
          "tr",
          null,
          h(
            "td",
            null,
            h("a", { class: "mono", href: address("runs", run.run_id), title: run.run_id }, shortId(run.run_id)),
          ),
          h("td", null, run.flow_name),
          h("td", { class: "mono" }, run.tag),
          h("td", null, age(run.submitted_at, now)),
        ),
      ),
    ),
  );
}

/** @param {DeadLetter[]} letters */
function letterTable(letters) {
  return h(
    "table",
    { class: "table stack" },
    h(
      "thead",
      null,
      h(
        "tr",
        null,
        [
          "#",
          t("wheels.when"),
          t("queue.reason"),
          t("runs.id"),
          t("runs.flow"),
          t("runs.tag"),
          t("run.worker"),
          t("queue.deliveries"),
          t("queue.error"),
        ].map((word) => h("th", { scope: "col" }, word)),
      ),
    ),
    h(
      "tbody",
      null,
      letters.map(({ sequence, tag, entry }) =>
        h(
          "tr",
          null,
          h("td", { class: "number muted" }, String(sequence)),
          h("td", null, h("time", { title: moment(entry.timestamp) }, clock(entry.timestamp))),
          h("td", null, h("span", { class: "tag mono" }, entry.reason)),
          h(
            "td",
            null,
            entry.run_id
              ? h(
                  "a",
                  { class: "mono", href: address("runs", entry.run_id), title: entry.run_id },
                  shortId(entry.run_id),
                )
              : "–",
          ),
          h("td", { data: { label: t("runs.flow") } }, entry.flow_name ?? "–"),
          h("td", { class: "mono", data: { label: t("runs.tag") } }, tag),
          h("td", { class: "mono", data: { label: t("run.worker") } }, entry.worker_id ?? "–"),
          h("td", { class: "number", data: { label: t("queue.deliveries") } }, String(entry.num_delivered ?? "–")),
          h("td", { class: "bad-text long", title: entry.error ?? "" }, entry.error ?? ""),
        ),
      ),
    ),
  );
}
