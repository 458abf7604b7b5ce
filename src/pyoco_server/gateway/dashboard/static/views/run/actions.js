/** The actions on a run. Each dialog also shows its request as a curl command. */

import { button, copy, field } from "../../components/controls.js";
import { openDialog } from "../../components/dialog.js";
import { toast } from "../../components/toast.js";
import { ask } from "../../lib/api.js";
import { curl } from "../../lib/curl.js";
import { h } from "../../lib/dom.js";
import { t } from "../../lib/i18n.js";
import { resumeForm } from "./resume_form.js";

/** @typedef {import("./model.js").RunModel} RunModel */

/** @param {RunModel} model */
export function cancel(model) {
  const reason = h("input", { class: "input", maxlength: "2000", autofocus: true, name: "reason" });
  const body = () => (reason.value.trim() ? { reason: reason.value.trim() } : {});
  const path = `${model.path}/cancel`;
  openDialog(t("cancel.title"), [h("p", null, t("cancel.text")), field(t("cancel.reason"), reason)], {
    submit: t("cancel.action"),
    danger: true,
    extra: [asCurl(path, body)],
    onSubmit: async () => {
      model.take(await ask(path, { method: "POST", json: body() }));
      toast(t("cancel.done"), "good");
    },
  });
}

/** @param {RunModel} model */
export function archive(model) {
  const path = `${model.path}/archive`;
  openDialog(t("archive.title"), [h("p", null, t("archive.text"))], {
    submit: t("archive.action"),
    extra: [asCurl(path, () => ({}))],
    onSubmit: async () => {
      model.take(await ask(path, { method: "POST" }));
      toast(t("archive.done"), "good");
    },
  });
}

/**
 * @param {RunModel} model
 * @param {Waiting} wait
 */
export function resume(model, wait) {
  const form = resumeForm(wait);
  const path = `${model.nodePath(wait.node_id)}/resume`;
  const key = wait.wait_key === null ? {} : { resumeKey: wait.wait_key };
  const body = () => ({ input: form.value(), ...key });
  openDialog(t("resume.title", { task: wait.task }), [form.element], {
    submit: t("resume.action"),
    extra: [asCurl(path, body)],
    onSubmit: async () => {
      model.take(await ask(path, { method: "POST", json: body() }));
      toast(t("resume.done"), "good");
    },
  });
}

/**
 * @param {string} path
 * @param {() => any} body
 */
function asCurl(path, body) {
  return button(
    t("common.curl"),
    () => {
      try {
        void copy(curl(path, { method: "POST", json: body() }));
      } catch (error) {
        toast(String(error instanceof Error ? error.message : error), "bad");
      }
    },
    { icon: "copy", kind: "quiet" },
  );
}
