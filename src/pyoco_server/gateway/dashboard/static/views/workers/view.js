/** Workers: their states, their runs, and which of them are hidden. */

import { button, emptyState, errorPanel, facts, jsonBlock, tagChip } from "../../components/controls.js";
import { badge } from "../../components/status.js";
import { toast } from "../../components/toast.js";
import { ask, isAbort } from "../../lib/api.js";
import { h, refill } from "../../lib/dom.js";
import { age, clock, moment, nowSeconds, shortId } from "../../lib/format.js";
import { t } from "../../lib/i18n.js";
import { poll } from "../../lib/polling.js";
import { address, amend } from "../../lib/router.js";

const LOOK_MS = 2_000;
/** A worker that disconnected so recently is shown with the active ones, as a warning. */
const LOST_LATELY_SEC = 3_600;
/** @type {Record<WorkerState, number>} */
const ORDER = { RUNNING: 0, IDLE: 0, DISCONNECTED: 1, STOPPED_GRACEFUL: 2 };

/**
 * @param {HTMLElement} root
 * @param {Route} route
 * @param {AbortSignal} signal
 * @returns {View}
 */
export function mount(root, route, signal) {
  let all = route.query.get("scope") === "all";
  let hidden = route.query.get("hidden") === "1";
  /** @type {Set<string>} */
  const open = new Set();
  const room = h("div", { class: "cards" }, h("p", { class: "muted" }, t("common.loading")));
  root.append(
    h(
      "div",
      { class: "page-head" },
      h("h1", null, t("workers.title")),
      h("span", { class: "spacer" }),
      toggle(t("workers.all"), all, (on) => {
        all = on;
        amend({ scope: on ? "all" : null });
        void look();
      }),
      toggle(t("workers.hidden"), hidden, (on) => {
        hidden = on;
        amend({ hidden: on ? "1" : null });
        void look();
      }),
    ),
    room,
  );

  async function read() {
    try {
      /** @type {Worker[]} */
      const found = await ask(`/workers?scope=all&include_hidden=${hidden}&limit=500`, { signal });
      const workers = found.filter((worker) => all || isThere(worker)).sort(inOrder);
      refill(
        room,
        workers.length
          ? workers.map(card)
          : [
              emptyState(
                t("workers.none"),
                t("workers.none_text"),
                h("pre", { class: "mono hint" }, "pyoco-worker --flows flows.py"),
              ),
            ],
      );
    } catch (error) {
      if (!isAbort(error)) room.replaceChildren(errorPanel(error, () => void look()));
      throw error;
    }
  }

  const look = poll(read, LOOK_MS, signal);

  /** @param {Worker} worker */
  function card(worker) {
    const now = nowSeconds();
    const sync = worker.wheel_sync;
    const running = worker.current_run_ids ?? (worker.current_run_id ? [worker.current_run_id] : []);
    return h(
      "article",
      { class: "card worker", data: { worker: worker.worker_id } },
      h(
        "header",
        { class: "card-head" },
        h("h2", { class: "mono" }, worker.worker_id),
        badge(`WORKER_${worker.state}`),
        worker.hidden ? h("span", { class: "tag" }, t("workers.is_hidden")) : null,
        h("span", { class: "spacer" }),
        button(worker.hidden ? t("workers.show") : t("workers.hide"), () => void setHidden(worker), {
          icon: worker.hidden ? "eye" : "hide",
          kind: "quiet",
          bare: true,
        }),
      ),
      facts([
        [t("workers.tags"), h("span", { class: "tags" }, worker.tags.map(tagChip))],
        [
          t("workers.heartbeat"),
          h("time", { title: moment(worker.last_heartbeat_at) }, age(worker.last_heartbeat_at, now)),
        ],
        [
          worker.state === "DISCONNECTED" ? t("workers.had") : t("workers.current"),
          running.length
            ? h(
                "span",
                { class: "links" },
                running.map((id) => runLink(id)),
              )
            : "–",
        ],
        [
          t("workers.last"),
          worker.last_run_id
            ? h(
                "span",
                { class: "links" },
                runLink(worker.last_run_id),
                worker.last_run_status ? badge(worker.last_run_status) : null,
              )
            : "–",
        ],
        [
          t("workers.stopped"),
          worker.stopped_at === null ? null : `${clock(worker.stopped_at)} ${worker.stop_reason ?? ""}`,
        ],
        [t("workers.instance"), h("span", { class: "mono" }, worker.instance_id)],
        [t("workers.wheels"), sync ? syncSummary(sync) : null],
      ]),
      sync
        ? h(
            "details",
            {
              open: open.has(worker.worker_id),
              on: {
                toggle: (/** @type {any} */ event) =>
                  event.target.open ? open.add(worker.worker_id) : open.delete(worker.worker_id),
              },
            },
            h("summary", null, t("workers.sync_details")),
            syncDetails(sync),
          )
        : null,
    );
  }

  /** @param {Worker} worker */
  async function setHidden(worker) {
    try {
      await ask(`/workers/${encodeURIComponent(worker.worker_id)}`, {
        method: "PATCH",
        json: { hidden: !worker.hidden },
      });
      toast(worker.hidden ? t("workers.shown_again") : t("workers.now_hidden"), "good");
      await read();
    } catch (error) {
      if (!isAbort(error)) toast(error instanceof Error ? error.message : String(error), "bad");
    }
  }

  return {};
}

/** Is it at work, or missed since lately? @param {Worker} worker */
function isThere({ state, last_seen_at }) {
  return ORDER[state] === 0 || (state === "DISCONNECTED" && nowSeconds() - last_seen_at < LOST_LATELY_SEC);
}

/**
 * Always in the same order, whichever worker was seen last.
 * @param {Worker} one
 * @param {Worker} other
 */
function inOrder(one, other) {
  return ORDER[one.state] - ORDER[other.state] || (one.worker_id < other.worker_id ? -1 : 1);
}

/** @param {string} id */
const runLink = (id) => h("a", { class: "mono", href: address("runs", id), title: id }, shortId(id));

/** @type {Record<string, () => string>} */
const SYNC = {
  ok: () => t("workers.sync_ok"),
  idle: () => t("workers.sync_idle"),
  error: () => t("workers.sync_error"),
  disabled: () => t("workers.sync_off"),
};

/** @param {Record<string, any>} sync */
function syncSummary(sync) {
  const tone = sync["last_result"] === "error" ? "bad" : sync["last_result"] === "ok" ? "good" : "pending";
  return h(
    "span",
    null,
    h(
      "span",
      { class: "alive", "data-tone": tone },
      SYNC[sync["last_result"]]?.() ?? String(sync["last_result"] ?? "–"),
    ),
    sync["enabled"]
      ? ` ${t("workers.sync_counts", { selected: sync["selected_count"] ?? 0, updated: sync["updated_count"] ?? 0, removed: sync["removed_count"] ?? 0 })}`
      : "",
  );
}

/** Why it failed; the wheel is named where the reason does not. @param {Record<string, any>} error */
function errorOf(error) {
  const { err_id: id, wheel_name: wheel, reason } = error;
  const named = wheel && !String(reason).includes(wheel) ? `${wheel}: ` : "";
  return `${named}${reason} [${id}]`;
}

/** @param {Record<string, any>} sync */
function syncDetails(sync) {
  const list = (/** @type {string} */ name) =>
    Array.isArray(sync[name]) && sync[name].length
      ? sync[name]
          .map((/** @type {any} */ one) =>
            typeof one === "string" ? one : (one.name ?? one.wheel_name ?? JSON.stringify(one)),
          )
          .join(", ")
      : null;
  return h(
    "div",
    null,
    facts([
      [t("workers.sync_attempt"), clock(sync["last_attempt_at"])],
      [
        t("workers.sync_why"),
        sync["last_error"] ? h("span", { class: "bad-text" }, errorOf(sync["last_error"])) : null,
      ],
      [t("workers.sync_success"), clock(sync["last_success_at"])],
      [t("workers.sync_selected"), list("selected_wheels")],
      [t("workers.sync_pending"), list("pending_wheels")],
      [t("workers.sync_updated"), list("updated_wheels")],
      [t("workers.sync_removed"), list("removed_wheels")],
      [t("workers.sync_skipped"), list("skipped_incompatible")],
      [t("workers.sync_installed"), list("installed_wheels")],
    ]),
    jsonBlock(sync, t("workers.sync_details")),
  );
}

/**
 * @param {string} label
 * @param {boolean} checked
 * @param {(on: boolean) => void} onChange
 */
function toggle(label, checked, onChange) {
  return h(
    "label",
    { class: "toggle" },
    h("input", {
      type: "checkbox",
      checked,
      on: { change: (/** @type {any} */ event) => onChange(event.target.checked) },
    }),
    h("span", null, label),
  );
}
