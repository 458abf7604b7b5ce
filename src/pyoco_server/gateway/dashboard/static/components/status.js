/** Statuses: a colour, a sign and a word each, so that none of the three is needed to understand the others. */

import { h, say } from "../lib/dom.js";
import { t } from "../lib/i18n.js";

/** @typedef {import("../lib/i18n.js").Key} Key */

/** @type {RunStatus[]} */
export const RUN_STATUSES = ["RUNNING", "PENDING", "CANCELLING", "FAILED", "COMPLETED", "CANCELLED"];

/** @type {Record<string, {tone: string, sign: string, word: Key}>} */
const SHOWN = {
  PENDING: { tone: "pending", sign: "○", word: "status.pending" },
  RUNNING: { tone: "running", sign: "●", word: "status.running" },
  COMPLETED: { tone: "good", sign: "✓", word: "status.completed" },
  FAILED: { tone: "bad", sign: "✕", word: "status.failed" },
  CANCELLING: { tone: "cancelling", sign: "◐", word: "status.cancelling" },
  CANCELLED: { tone: "cancelled", sign: "⊘", word: "status.cancelled" },
  IDLE: { tone: "pending", sign: "○", word: "status.idle" },
  READY: { tone: "pending", sign: "◌", word: "status.ready" },
  WAITING: { tone: "waiting", sign: "‖", word: "status.waiting" },
  HELD: { tone: "held", sign: "⏸", word: "status.held" },
  SUCCEEDED: { tone: "good", sign: "✓", word: "status.succeeded" },
  CANCELED: { tone: "cancelled", sign: "⊘", word: "status.cancelled" },
  WORKER_RUNNING: { tone: "running", sign: "●", word: "worker.running" },
  WORKER_IDLE: { tone: "good", sign: "○", word: "worker.idle" },
  WORKER_STOPPED_GRACEFUL: { tone: "cancelled", sign: "⊘", word: "worker.stopped" },
  WORKER_DISCONNECTED: { tone: "bad", sign: "✕", word: "worker.disconnected" },
};
const UNKNOWN = { tone: "pending", sign: "?", word: /** @type {Key} */ ("status.unknown") };

/** @param {string} status */
export const toneOf = (status) => (SHOWN[status] ?? UNKNOWN).tone;
/** @param {string} status */
export const signOf = (status) => (SHOWN[status] ?? UNKNOWN).sign;
/** @param {string} status */
export const wordOf = (status) => t((SHOWN[status] ?? UNKNOWN).word);

/** @param {string} status */
export function badge(status) {
  const element = h("span", { class: "badge" }, h("span", { class: "badge-sign", "aria-hidden": "true" }), h("span"));
  showStatus(element, status);
  return element;
}

/**
 * Show another status in a badge.
 * @param {HTMLElement} element
 * @param {string} status
 */
export function showStatus(element, status) {
  element.dataset["tone"] = toneOf(status);
  const [sign, word] = /** @type {HTMLElement[]} */ ([...element.children]);
  if (sign) say(sign, signOf(status));
  if (word) say(word, wordOf(status));
}

/** The status of a run for a badge: a held run and one that only waits are not shown as running. @param {Run} run */
export const shownStatus = (run) =>
  run.status !== "RUNNING" ? run.status : run.held ? "HELD" : run.waiting?.length ? "WAITING" : run.status;
