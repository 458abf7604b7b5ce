/** The names of the 24 events. */

import { t } from "../../lib/i18n.js";

/** @type {Record<string, import("../../lib/i18n.js").Key>} */
const WORDS = {
  EXECUTION_CREATED: "event.execution_created",
  EXECUTION_STARTED: "event.execution_started",
  EXECUTION_COMPLETED: "event.execution_completed",
  EXECUTION_ARCHIVED: "event.execution_archived",
  EXECUTION_CANCEL_REQUESTED: "event.execution_cancel_requested",
  EXECUTION_CANCELED: "event.execution_canceled",
  EXECUTION_FAIL_REQUESTED: "event.execution_fail_requested",
  EXECUTION_FAILED: "event.execution_failed",
  NODE_CREATED: "event.node_created",
  NODE_READY: "event.node_ready",
  NODE_STARTED: "event.node_started",
  NODE_PROGRESS_REPORTED: "event.node_progress_reported",
  NODE_WAITING: "event.node_waiting",
  NODE_RESUME_REQUESTED: "event.node_resume_requested",
  NODE_RESUMED: "event.node_resumed",
  NODE_SUCCEEDED: "event.node_succeeded",
  NODE_FAIL_REPORTED: "event.node_fail_reported",
  NODE_FAILED: "event.node_failed",
  NODE_CANCEL_REQUESTED: "event.node_cancel_requested",
  NODE_CANCELED: "event.node_canceled",
  NODE_INTERRUPT_REQUESTED: "event.node_interrupt_requested",
  FORK_OPENED: "event.fork_opened",
  JOIN_GATE_UPDATED: "event.join_gate_updated",
  JOIN_PASSED: "event.join_passed",
};

export const EVENT_TYPES = Object.keys(WORDS);

/** @param {string} type */
export function eventWord(type) {
  const word = WORDS[type];
  return word ? t(word) : type;
}

/** @param {string} type */
export function eventTone(type) {
  if (/FAIL/.test(type)) return "bad";
  if (/CANCEL|INTERRUPT/.test(type)) return "cancelling";
  if (/WAITING|RESUME/.test(type)) return "waiting";
  if (/SUCCEEDED|COMPLETED|JOIN_PASSED/.test(type)) return "good";
  if (/STARTED|PROGRESS/.test(type)) return "running";
  return "pending";
}
