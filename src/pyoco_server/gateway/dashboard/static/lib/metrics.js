/** Reads the metrics every few seconds for all views, and keeps them as long as the page is open. */

import { askText } from "./api.js";
import { nowSeconds } from "./format.js";
import { poll } from "./polling.js";

const EVERY_MS = 2_000;
const KEPT = 900;

/** @type {Reading[]} */
const readings = [];
/** @type {Set<() => void>} */
const listeners = new Set();

/** Everything read so far, oldest first. */
export const history = () => readings;

/** @type {unknown} why the last reading failed; null if it did not */
let problem = null;
export const metricsProblem = () => problem;

/** Start reading; it never stops. */
export function beginMetrics() {
  poll(read, EVERY_MS, new AbortController().signal);
}

/**
 * Call the listener after every reading, also a failed one.
 * @param {() => void} listener
 * @param {AbortSignal} signal
 */
export function onMetrics(listener, signal) {
  listeners.add(listener);
  signal.addEventListener("abort", () => listeners.delete(listener));
  if (readings.length || problem) listener();
}

export async function read() {
  let all;
  try {
    all = parse(await askText("/metrics"));
  } catch (error) {
    problem = error;
    listeners.forEach((listener) => listener());
    throw error;
  }
  problem = null;
  const samples = all.filter((sample) => !sample.name.endsWith("_bucket"));
  readings.push({ at: nowSeconds(), samples, histograms: histograms(all) });
  if (readings.length > KEPT) readings.shift();
  listeners.forEach((listener) => listener());
}

/**
 * The values of one metric in a reading, by one of its labels.
 * @param {Reading | undefined} reading
 * @param {string} name
 * @param {string} label
 * @returns {Map<string, number>}
 */
export function byLabel(reading, name, label) {
  const found = (reading?.samples ?? []).filter((sample) => sample.name === name);
  return new Map(found.map((sample) => [sample.labels[label] ?? "", sample.value]));
}

/**
 * The histograms among the samples: how many values were no larger than each bound.
 * @param {Sample[]} samples
 * @returns {Record<string, Histogram>}
 */
function histograms(samples) {
  /** @type {Record<string, Histogram>} */
  const found = {};
  for (const { name, labels, value } of samples) {
    if (!name.endsWith("_bucket")) continue;
    const one = (found[name.slice(0, -"_bucket".length)] ??= { bounds: [], counts: [] });
    one.bounds.push(labels["le"] === "+Inf" ? Infinity : Number(labels["le"]));
    one.counts.push(value);
  }
  return found;
}

/**
 * Prometheus' text format.
 * @param {string} text
 * @returns {Sample[]}
 */
export function parse(text) {
  const samples = [];
  for (const line of text.split("\n")) {
    const found = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)/.exec(line);
    if (!found || line.startsWith("#")) continue;
    const labels = Object.fromEntries(
      [...(found[2] ?? "").matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)].map(([, name, value]) => [
        name,
        unescaped(value ?? ""),
      ]),
    );
    samples.push({ name: found[1] ?? "", labels, value: Number(found[3]) });
  }
  return samples;
}

/** @param {string} value */
function unescaped(value) {
  return value.replace(/\\(.)/g, (_, letter) => (letter === "n" ? "\n" : letter));
}
