/** The header of a run: name, status and actions. */

import { button, copy, facts, tagChip } from "../../components/controls.js";
import { icon } from "../../components/icons.js";
import { badge, showStatus, shownStatus } from "../../components/status.js";
import { mayUse } from "../../lib/auth.js";
import { curl } from "../../lib/curl.js";
import { fill, h, refill, say } from "../../lib/dom.js";
import { hasEnded } from "../../lib/fold.js";
import { age, clock, duration, moment, nowSeconds } from "../../lib/format.js";
import { t } from "../../lib/i18n.js";
import { address } from "../../lib/router.js";
import { archive, cancel, resume } from "./actions.js";

/**
 * @param {import("./view.js").Desk} desk
 * @returns {import("./view.js").Part}
 */
export function header(desk) {
  const { model } = desk;
  const title = h("h1", null, "…");
  const status = badge("PENDING");
  const then = h("span", { class: "then", hidden: true });
  const about = h("div", { class: "run-facts" });
  const waits = h("div", { class: "waits" });
  const problem = h("p", { class: "run-error", hidden: true });
  const held = h("p", { class: "run-held", role: "status", hidden: true });
  const notes = h("div", { class: "run-notes", hidden: true });
  const cancelling = button(t("cancel.action"), () => model.run && cancel(model), { icon: "stop", kind: "danger" });
  const archiving = button(t("archive.action"), () => model.run && archive(model), { icon: "archive" });
  const element = h(
    "div",
    { class: "run-header" },
    h(
      "div",
      { class: "page-head" },
      h(
        "a",
        { class: "button quiet bare", href: address("runs"), "aria-label": t("run.back"), title: t("run.back") },
        icon("back"),
      ),
      title,
      status,
      then,
      h("code", { class: "mono muted run-id" }, model.runId),
      button(t("run.copy_id"), () => void copy(model.runId), { icon: "copy", kind: "quiet", bare: true }),
      h("span", { class: "spacer" }),
      button(t("common.curl"), () => void copy(curl(model.path)), { icon: "copy", kind: "quiet" }),
      archiving,
      cancelling,
    ),
    about,
    problem,
    held,
    notes,
    waits,
  );
  let drawnWaits = "";

  function update() {
    const { run } = model;
    if (!run) return;
    say(title, run.flow_name);
    showStatus(status, model.at === null ? shownStatus(run) : model.state.status);
    then.hidden = model.at === null;
    say(then, t("travel.then"));
    const ended = hasEnded(run.status);
    cancelling.hidden = ended;
    cancelling.disabled = run.status === "CANCELLING";
    archiving.hidden = !ended || !mayUse("operate") || run.archived_at !== null;
    refill(about, facts(rows(run)));
    problem.hidden = !run.error;
    say(problem, run.error ?? "");
    held.hidden = ended || !run.held;
    if (run.held) say(held, t("run.held_text", { needs: run.held.needs.join(", "), worker: run.held.seen_by }));
    notes.hidden = !model.notes.length;
    if (model.notes.length) {
      const lines = model.notes.map((note) => h("li", null, note));
      refill(notes, h("div", null, h("strong", null, t("run.notes")), h("ul", null, lines)));
    }
    const known = JSON.stringify(ended ? [] : (run.waiting ?? []));
    if (known !== drawnWaits) fill(waits, ended ? [] : (run.waiting ?? []).map(waitCard));
    drawnWaits = known;
  }

  /** @param {Waiting} wait */
  function waitCard(wait) {
    return h(
      "div",
      { class: "wait" },
      h("span", { class: "badge-sign", "data-tone": "waiting", "aria-hidden": "true" }, "‖"),
      h(
        "div",
        { class: "wait-text" },
        h("strong", null, questionOf(wait) || t("resume.waits", { task: wait.task })),
        h(
          "span",
          { class: "muted small" },
          h("span", { class: "mono" }, wait.node_id),
          wait.deadline ? ` · ${t("resume.until", { when: moment(Date.parse(wait.deadline) / 1000) })}` : "",
        ),
      ),
      button(t("resume.action"), () => resume(model, wait), { icon: "play", kind: "primary" }),
    );
  }

  return { element, update };
}

/** The text of a prompt. @param {Waiting} wait */
export function questionOf(wait) {
  const prompt = wait.prompt ?? {};
  const found = ["question", "text", "message", "title", "label"]
    .map((name) => prompt[name])
    .find((text) => typeof text === "string");
  return typeof found === "string" ? found : "";
}

/**
 * @param {Run} run
 * @returns {Parameters<typeof facts>[0]}
 */
function rows(run) {
  const now = nowSeconds();
  const extra = run.tags.filter((tag) => tag !== run.tag);
  return [
    [t("runs.tag"), h("span", { class: "tags" }, tagChip(run.tag), extra.map(tagChip))],
    [t("run.worker"), run.worker_id ? workerFact(run) : null],
    [t("run.unused"), run.unused_params ? unusedFact(run.unused_params) : null],
    [
      t("run.code"),
      run.code ? h("code", { class: "mono", title: run.code.sha256 }, run.code.sha256.slice(0, 12)) : null,
    ],
    [t("run.rounds"), run.task_tallies ? talliesFact(run.task_tallies) : null],
    [t("run.wheels"), run.wheels ? wheelsFact(run.wheels) : null],
    [
      t("run.submitted"),
      h("time", { title: moment(run.submitted_at) }, `${clock(run.submitted_at)} (${age(run.submitted_at, now)})`),
    ],
    [t("run.queued"), duration((run.start_time ?? run.end_time ?? now) - run.submitted_at)],
    [
      t("run.started"),
      run.start_time === null ? null : h("time", { title: moment(run.start_time) }, clock(run.start_time)),
    ],
    [t("run.ended"), run.end_time === null ? null : h("time", { title: moment(run.end_time) }, clock(run.end_time))],
    [t("runs.duration"), run.start_time === null ? null : duration((run.end_time ?? now) - run.start_time)],
    [
      t("run.cancelled_at"),
      run.cancel_requested_at === null
        ? null
        : h("time", { title: moment(run.cancel_requested_at) }, clock(run.cancel_requested_at)),
    ],
    [t("run.cancelled_by"), run.cancel_requested_at === null ? null : (run.cancel_requested_by ?? "–")],
    [t("run.cancelled_why"), run.cancel_reason],
    [t("run.archived"), run.archived_at === null ? null : clock(run.archived_at)],
    [t("run.tenant"), run.tenant_id],
    [t("run.version"), String(run.version)],
  ];
}

/** @param {Record<string, string | null>} unused */
function unusedFact(unused) {
  const named = Object.entries(unused).map(([name, near]) => (near ? t("run.unused_meant", { name, near }) : name));
  return h("span", { class: "bad-text", title: t("run.unused_text") }, named.join(", "));
}

/** The rounds of loops, a line for each task. @param {Record<string, TaskTally>} tallies */
function talliesFact(tallies) {
  const lines = Object.entries(tallies).map(([task, tally]) => {
    const counts = [
      t("run.rounds_ok", { count: tally.ok }),
      tally.failed ? t("run.rounds_failed", { count: tally.failed }) : "",
      tally.cancelled ? t("run.rounds_cancelled", { count: tally.cancelled }) : "",
      tally.running ? t("run.rounds_running", { count: tally.running }) : "",
      tally.not_started ? t("run.rounds_not_started", { count: tally.not_started }) : "",
    ].filter(Boolean);
    return h("div", tally.failed ? { class: "bad-text" } : null, `${task}: ${counts.join(", ")}`);
  });
  return h("div", { class: "tallies" }, lines);
}

/** @param {Record<string, string>} wheels */
function wheelsFact(wheels) {
  const links = Object.entries(wheels).map(([name, digest]) =>
    h("div", null, h("a", { href: address("wheels"), class: "mono", title: `SHA-256 ${digest}…` }, name)),
  );
  return h("div", null, links);
}

/** @param {Run} run */
function workerFact(run) {
  return h(
    "span",
    null,
    h("a", { href: address("workers"), class: "mono" }, run.worker_id ?? ""),
    " ",
    isInHand(run) && run.worker_alive !== undefined ? lifeSign(run) : null,
  );
}

/** Whether a worker executes the run: not if it has ended, or only waits. @param {Run} run */
function isInHand(run) {
  const waiting = new Set(run.waiting?.map((wait) => wait.task));
  const works = Object.entries(run.tasks ?? {}).some(([task, state]) => state === "RUNNING" && !waiting.has(task));
  return !hasEnded(run.status) && (works || !waiting.size);
}

/** @param {Run} run */
function lifeSign(run) {
  if (run.worker_alive) return h("span", { class: "alive", "data-tone": "good" }, t("run.alive"));
  const heartbeatAt = run.worker_heartbeat_at ?? null;
  const word = heartbeatAt === null ? t("run.stale") : t("run.stale_since", { age: age(heartbeatAt, nowSeconds()) });
  return h("span", { class: "alive", "data-tone": "bad", title: t("run.stale_text") }, word);
}
