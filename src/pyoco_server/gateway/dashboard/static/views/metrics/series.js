/** Computes the lines of plots from readings of the metrics. */

import { byLabel } from "../../lib/metrics.js";

const ENDED = ["COMPLETED", "FAILED", "CANCELLED"];

/**
 * One label's values over time.
 * @param {Reading[]} readings
 * @param {string} name
 * @param {string} label
 * @param {string} value
 */
export function series(readings, name, label, value) {
  return readings.map((reading) => byLabel(reading, name, label).get(value) ?? null);
}

/**
 * All values that a label had.
 * @param {Reading[]} readings
 * @param {string} name
 * @param {string} label
 */
export function labels(readings, name, label) {
  return [...new Set(readings.flatMap((reading) => [...byLabel(reading, name, label).keys()]))].sort();
}

/**
 * The runs that ended per second between two readings.
 * @param {Reading[]} readings
 * @param {string} [only]
 */
export function throughput(readings, only) {
  const wanted = only ? [only] : ENDED;
  return readings.map((reading, index) => {
    const before = readings[index - 1];
    if (!before || reading.at <= before.at) return null;
    const count = (/** @type {Reading} */ one) =>
      wanted.reduce((sum, status) => sum + (byLabel(one, "pyoco_runs_total", "status").get(status) ?? 0), 0);
    return Math.max(0, (count(reading) - count(before)) / (reading.at - before.at));
  });
}

/**
 * A quantile of the last minutes before each reading.
 * @param {Reading[]} readings
 * @param {string} name
 * @param {number} part
 * @param {number} windowSec
 */
export function recentQuantile(readings, name, part, windowSec) {
  let from = 0;
  return readings.map((reading) => {
    while ((readings[from]?.at ?? 0) < reading.at - windowSec) from += 1;
    const [now, then] = [reading.histograms[name], readings[from]?.histograms[name]];
    if (!now || !then || readings[from] === reading) return null;
    return quantile(
      now.bounds,
      now.counts.map((count, at) => Math.max(0, count - (then.counts[at] ?? 0))),
      part,
    );
  });
}

/**
 * As in Prometheus: values are assumed to be spread evenly over their bucket.
 * @param {number[]} bounds
 * @param {number[]} counts how many were no larger than each bound
 * @param {number} part
 */
export function quantile(bounds, counts, part) {
  const all = counts.at(-1) ?? 0;
  if (!all) return null;
  const rank = part * all;
  const at = counts.findIndex((count) => count >= rank);
  const [below, above] = [bounds[at - 1] ?? 0, bounds[at] ?? Infinity];
  if (above === Infinity) return below;
  const [before, upTo] = [counts[at - 1] ?? 0, counts[at] ?? 0];
  return below + (above - below) * (upTo > before ? (rank - before) / (upTo - before) : 1);
}
