/** Wheels: the registered ones, uploads, and their history. */

import { button, emptyState, errorPanel, tagChip } from "../../components/controls.js";
import { openDialog } from "../../components/dialog.js";
import { download } from "../../components/download.js";
import { toast } from "../../components/toast.js";
import { ask, isAbort } from "../../lib/api.js";
import { h, refill } from "../../lib/dom.js";
import { bytes, clock, moment } from "../../lib/format.js";
import { t } from "../../lib/i18n.js";
import { poll } from "../../lib/polling.js";
import { uploadCard } from "./upload.js";

const LOOK_MS = 5_000;

/**
 * @param {HTMLElement} root
 * @param {Route} _route
 * @param {AbortSignal} signal
 * @returns {View}
 */
export function mount(root, _route, signal) {
  const wheels = h("div", { class: "table-room" }, h("p", { class: "muted" }, t("common.loading")));
  const past = h("div", { class: "table-room" });
  root.append(
    h("div", { class: "page-head" }, h("h1", null, t("wheels.title"))),
    uploadCard(signal, () => void look()),
    h("section", { class: "card" }, h("h2", null, t("wheels.list")), wheels),
    h("section", { class: "card" }, h("h2", null, t("wheels.history")), past),
  );

  async function read() {
    try {
      const [list, events] = await Promise.all([
        ask("/wheels", { signal }),
        ask("/wheels/history?limit=100", { signal }),
      ]);
      refill(
        wheels,
        list.length ? wheelTable(list, () => void look()) : emptyState(t("wheels.none"), t("wheels.none_text")),
      );
      refill(past, events.length ? historyTable(events) : h("p", { class: "muted" }, t("wheels.no_history")));
    } catch (error) {
      if (!isAbort(error)) wheels.replaceChildren(errorPanel(error, () => void look()));
      throw error;
    }
  }

  const look = poll(read, LOOK_MS, signal);
  return {};
}

/**
 * @param {Wheel[]} list
 * @param {() => void} onChange
 */
function wheelTable(list, onChange) {
  return h(
    "table",
    { class: "table stack" },
    h(
      "thead",
      null,
      h(
        "tr",
        null,
        [t("wheels.name"), t("wheels.tags"), t("wheels.size"), t("wheels.modified"), "SHA-256", ""].map((word) =>
          h("th", { scope: "col" }, word),
        ),
      ),
    ),
    h(
      "tbody",
      null,
      list.map((wheel) =>
        h(
          "tr",
          null,
          h("td", { class: "mono whole" }, wheel.name),
          h(
            "td",
            null,
            wheel.tags.length
              ? h("span", { class: "tags" }, wheel.tags.map(tagChip))
              : h("span", { class: "muted" }, t("wheels.all_workers")),
          ),
          h("td", { class: "number" }, bytes(wheel.size_bytes)),
          h("td", null, h("time", { title: moment(wheel.modified) }, clock(wheel.modified))),
          h(
            "td",
            { class: "mono muted digest", title: wheel.sha256_hex ?? "" },
            (wheel.sha256_hex ?? "–").slice(0, 12),
          ),
          h(
            "td",
            { class: "row-tools" },
            button(t("wheels.download"), () => void download(`/wheels/${encodeURIComponent(wheel.name)}`, wheel.name), {
              icon: "download",
              kind: "quiet",
              bare: true,
            }),
            button(t("wheels.delete"), () => remove(wheel, onChange), { icon: "trash", kind: "quiet", bare: true }),
          ),
        ),
      ),
    ),
  );
}

/** @param {WheelEvent[]} events */
function historyTable(events) {
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
          t("wheels.when"),
          t("wheels.action"),
          t("wheels.name"),
          t("wheels.tags"),
          t("wheels.size"),
          t("wheels.who"),
          t("wheels.from"),
        ].map((word) => h("th", { scope: "col" }, word)),
      ),
    ),
    h(
      "tbody",
      null,
      events.map((event) =>
        h(
          "tr",
          null,
          h("td", null, h("time", { title: moment(event.occurred_at) }, clock(event.occurred_at))),
          h("td", null, event.action === "upload" ? t("wheels.did_upload") : t("wheels.did_delete")),
          h("td", { class: "mono whole" }, event.wheel_name),
          h("td", null, h("span", { class: "tags" }, event.tags.map(tagChip))),
          h("td", { class: "number" }, bytes(event.size_bytes)),
          h("td", null, [event.actor?.tenant_id, event.actor?.api_key_id].filter(Boolean).join(" · ") || "–"),
          h(
            "td",
            { class: "muted", title: event.source?.["user_agent"] ?? "" },
            event.source?.["x_forwarded_for"] || event.source?.["remote_addr"] || "–",
          ),
        ),
      ),
    ),
  );
}

/**
 * @param {Wheel} wheel
 * @param {() => void} onChange
 */
function remove(wheel, onChange) {
  openDialog(t("wheels.delete"), [h("p", null, t("wheels.delete_text")), h("p", { class: "mono" }, wheel.name)], {
    submit: t("wheels.delete"),
    danger: true,
    onSubmit: async () => {
      await ask(`/wheels/${encodeURIComponent(wheel.name)}`, { method: "DELETE" });
      toast(t("wheels.deleted", { name: wheel.name }), "good");
      onChange();
    },
  });
}
