/** Metrics: small plots of the gateway's metrics, drawn as long as the page is open. */

import { errorPanel } from "../../components/controls.js";
import { plot } from "../../components/plot.js";
import { RUN_STATUSES, toneOf, wordOf } from "../../components/status.js";
import { h, say } from "../../lib/dom.js";
import { duration, number } from "../../lib/format.js";
import { t } from "../../lib/i18n.js";
import { history, metricsProblem, onMetrics, read } from "../../lib/metrics.js";
import { labels, quantile, recentQuantile, series, throughput } from "./series.js";

const WINDOW_SEC = 300;
const TONES = ["running", "waiting", "good", "cancelling", "bad", "cancelled", "pending"];
/** @type {[number, string, string][]} */
const PARTS = [
  [0.5, "p50", "good"],
  [0.95, "p95", "cancelling"],
  [0.99, "p99", "bad"],
];

/**
 * @param {HTMLElement} root
 * @param {Route} _route
 * @param {AbortSignal} signal
 * @returns {View}
 */
export function mount(root, _route, signal) {
  const whole = (/** @type {number} */ value) => number(Math.round(value * 10) / 10);
  const status = plot(t("metrics.live_runs"), whole);
  const rate = plot(t("metrics.throughput"), whole);
  const queue = plot(t("metrics.queue"), whole);
  const workers = plot(t("metrics.workers"), whole);
  const waits = plot(t("metrics.waits"), duration);
  const took = plot(t("metrics.took"), duration);
  const latencies = { pyoco_run_latency_seconds: took, pyoco_run_queue_seconds: waits };
  const errors = h("div");
  const tiles = h("div", { class: "tiles" });
  const raw = h("tbody");
  root.append(
    h(
      "div",
      { class: "page-head" },
      h("h1", null, t("metrics.title")),
      h("span", { class: "muted small" }, t("metrics.since_open")),
    ),
    errors,
    tiles,
    h(
      "div",
      { class: "plots" },
      status.element,
      rate.element,
      took.element,
      waits.element,
      queue.element,
      workers.element,
    ),
    h(
      "details",
      { class: "card" },
      h("summary", null, t("metrics.raw")),
      h("div", { class: "table-room" }, h("table", { class: "table" }, raw)),
    ),
  );

  onMetrics(() => {
    const readings = history();
    const problem = metricsProblem();
    if (problem)
      errors.replaceChildren(errorPanel(problem, () => void read().catch(() => {}))); // shown right here
    else errors.replaceChildren();
    if (!readings.length) return;
    const times = readings.map((reading) => reading.at);
    const line = (/** @type {string} */ name, /** @type {string} */ label) =>
      labels(readings, name, label).map((value, at) => ({
        name: value,
        tone: TONES[at % TONES.length] ?? "pending",
        values: series(readings, name, label, value),
      }));
    status.show(
      times,
      ["RUNNING", "PENDING", "CANCELLING"].map((one) => ({
        name: wordOf(one),
        tone: toneOf(one),
        values: series(readings, "pyoco_runs_total", "status", one),
      })),
    );
    rate.show(
      times,
      ["COMPLETED", "FAILED", "CANCELLED"].map((one) => ({
        name: wordOf(one),
        tone: toneOf(one),
        values: throughput(readings, one),
      })),
    );
    queue.show(times, line("pyoco_queue_backlog", "tag"));
    workers.show(
      times,
      ["RUNNING", "IDLE", "DISCONNECTED"].map((one) => ({
        name: wordOf(`WORKER_${one}`),
        tone: toneOf(`WORKER_${one}`),
        values: series(readings, "pyoco_workers", "state", one),
      })),
    );
    for (const [name, drawn] of Object.entries(latencies)) drawLatency(drawn, name, times, readings);
    drawTiles(tiles, readings);
    raw.replaceChildren(
      ...(readings.at(-1)?.samples ?? []).map((sample) =>
        h(
          "tr",
          null,
          h("td", { class: "mono" }, sample.name),
          h(
            "td",
            { class: "mono muted" },
            Object.entries(sample.labels)
              .map(([name, value]) => `${name}=${value}`)
              .join(" "),
          ),
          h("td", { class: "number mono" }, String(sample.value)),
        ),
      ),
    );
  }, signal);

  return {};
}

/**
 * @param {HTMLElement} tiles
 * @param {Reading[]} readings
 */
function drawTiles(tiles, readings) {
  const last = readings.slice(-1);
  if (!tiles.childElementCount)
    tiles.append(
      ...RUN_STATUSES.map((status) =>
        h(
          "div",
          { class: "tile", "data-tone": toneOf(status) },
          h("span", { class: "tile-value" }),
          h("span", { class: "tile-word" }, wordOf(status)),
        ),
      ),
    );
  RUN_STATUSES.forEach((status, at) => {
    const value = series(last, "pyoco_runs_total", "status", status)[0];
    const shown = tiles.children[at]?.firstChild;
    if (shown) say(shown, value === null || value === undefined ? "–" : number(value));
  });
}

/**
 * @param {import("../../components/plot.js").Plot} drawn
 * @param {string} name
 * @param {number[]} times
 * @param {Reading[]} readings
 */
function drawLatency(drawn, name, times, readings) {
  drawn.show(
    times,
    PARTS.map(([part, word, tone]) => ({
      name: word,
      tone,
      values: recentQuantile(readings, name, part, WINDOW_SEC),
    })),
  );
  const { bounds, counts } = readings.at(-1)?.histograms[name] ?? { bounds: [], counts: [] };
  const all = counts.at(-1) ?? 0;
  const [p50, p95, p99] = PARTS.map(([part]) => duration(quantile(bounds, counts, part)));
  drawn.caption(
    all ? t("metrics.so_far", { n: number(all), p50: String(p50), p95: String(p95), p99: String(p99) }) : "",
  );
}
