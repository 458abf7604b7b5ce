/** From readings to lines. */

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
 * All values a label ever had.
 * @param {Reading[]} readings
 * @param {string} name
 * @param {string} label
 */
export function labels(readings, name, label) {
  return [...new Set(readings.flatMap((reading) => [...byLabel(reading, name, label).keys()]))].sort();
}

/**
 * How many runs ended a second, between one reading and the next.
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
 * @param {number[]} values
 * @param {number} part
 */
export function percentile(values, part) {
  if (!values.length) return null;
  const sorted = [...values].sort((one, other) => one - other);
  return sorted[Math.min(sorted.length - 1, Math.floor(part * sorted.length))] ?? null;
}
