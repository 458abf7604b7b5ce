/** One run in the list. */

import { badge, showStatus, shownStatus } from "../../components/status.js";
import { h, say } from "../../lib/dom.js";
import { hasEnded } from "../../lib/fold.js";
import { age, duration, moment, shortId } from "../../lib/format.js";
import { t } from "../../lib/i18n.js";
import { address } from "../../lib/router.js";

/** The placeholder of a run that is being loaded. @param {number} index */
export function makeBlank(index) {
  const line = () => h("span", { role: "cell" }, h("i", { class: "blank-line" }));
  return h(
    "div",
    { class: "run-row blank", role: "row", "aria-rowindex": String(index + 2), "aria-label": t("common.loading") },
    [line(), line(), line(), line()],
  );
}

/**
 * @param {Run} run
 * @param {(runId: string, event: Event) => void} onSelect
 */
export function makeRow(run, onSelect) {
  const box = h("input", {
    type: "checkbox",
    tabindex: "-1",
    "aria-label": t("runs.select_one", { id: shortId(run.run_id) }),
    on: { change: (/** @type {Event} */ event) => onSelect(run.run_id, event) },
  });
  return h(
    "div",
    { class: "run-row", role: "row", id: `run-${run.run_id}`, data: { id: run.run_id } },
    h("span", { role: "cell", class: "cell-select" }, box),
    h("span", { role: "cell", class: "cell-status" }, badge(shownStatus(run))),
    h(
      "span",
      { role: "cell", class: "cell-id" },
      h(
        "a",
        { class: "mono", href: address("runs", run.run_id), tabindex: "-1", title: run.run_id },
        shortId(run.run_id),
      ),
    ),
    h("span", { role: "cell", class: "cell-flow" }, run.flow_name),
    h("span", { role: "cell", class: "cell-tag mono" }, run.tag),
    h(
      "span",
      { role: "cell", class: "cell-tasks" },
      h("progress", { class: "progress" }),
      h("span", { class: "cell-count" }),
    ),
    h("span", { role: "cell", class: "cell-age", title: moment(run.submitted_at) }),
    h("span", { role: "cell", class: "cell-duration" }),
    h("span", { role: "cell", class: "cell-note" }),
  );
}

/**
 * Let a row say how its run stands now.
 * @param {HTMLElement} row
 * @param {Run} run
 * @param {{selected: boolean, active: boolean, index: number, now: number}} about
 */
export function showRun(row, run, { selected, active, index, now }) {
  const find = (/** @type {string} */ name) => /** @type {HTMLElement} */ (row.querySelector(name));
  /** @type {HTMLInputElement} */ (find("input")).checked = selected;
  row.setAttribute("aria-selected", String(selected));
  row.setAttribute("aria-rowindex", String(index + 2));
  row.classList.toggle("active", active);
  showStatus(find(".badge"), shownStatus(run));
  const states = Object.values(run.tasks ?? {});
  const done = states.filter((state) => state === "SUCCEEDED" || state === "FAILED" || state === "CANCELLED").length;
  const progress = /** @type {HTMLProgressElement} */ (find("progress"));
  progress.max = Math.max(1, states.length);
  progress.value = done;
  progress.setAttribute("aria-label", t("runs.tasks_done", { done, all: states.length }));
  say(find(".cell-count"), states.length ? `${done}/${states.length}` : "");
  say(find(".cell-age"), age(run.submitted_at, now));
  say(find(".cell-duration"), run.start_time === null ? "–" : duration((run.end_time ?? now) - run.start_time));
  const note = find(".cell-note");
  say(note, noteOf(run));
  note.title = note.textContent ?? "";
  note.classList.toggle("bad-text", run.status === "FAILED");
}

/** @param {Run} run */
function noteOf(run) {
  if (run.error) return run.error;
  if (run.cancel_requested_at !== null) {
    const by = run.cancel_requested_by ?? "–";
    return run.cancel_reason ? t("runs.cancelled_why", { by, why: run.cancel_reason }) : t("runs.cancelled_by", { by });
  }
  if (run.waiting?.length) return t("runs.waits_for", { tasks: run.waiting.map((wait) => wait.task).join(", ") });
  if (hasEnded(run.status)) return "";
  const busy = Object.entries(run.tasks ?? {}).filter(([, state]) => state === "RUNNING");
  return busy.map(([task]) => task).join(", ");
}
