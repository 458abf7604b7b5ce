/** Buttons, fields, empty pages and errors, which every view uses. */

import { ApiError } from "../lib/api.js";
import { h } from "../lib/dom.js";
import { t } from "../lib/i18n.js";
import { icon } from "./icons.js";
import { toast } from "./toast.js";

/** @typedef {import("./icons.js").Icon} Icon */

/**
 * @param {string} label
 * @param {() => void} onClick
 * @param {{icon?: Icon, kind?: "plain" | "primary" | "danger" | "quiet", bare?: boolean, [attribute: string]: any}} [options]
 */
export function button(label, onClick, { icon: name, kind = "plain", bare = false, ...more } = {}) {
  return h(
    "button",
    {
      type: "button",
      class: `button ${kind}${bare ? " bare" : ""}`,
      on: { click: onClick },
      ...(bare ? { "aria-label": label, title: label } : {}),
      ...more,
    },
    name ? icon(name) : null,
    bare ? null : h("span", null, label),
  );
}

/**
 * @param {string} label
 * @param {HTMLElement} control
 * @param {string} [hint]
 */
export function field(label, control, hint) {
  return h(
    "label",
    { class: "field" },
    h("span", { class: "field-label" }, label),
    control,
    hint ? h("span", { class: "field-hint" }, hint) : null,
  );
}

/**
 * @param {string} title
 * @param {string} text
 * @param {...(Node | null)} more
 */
export function emptyState(title, text, ...more) {
  return h("div", { class: "empty" }, h("p", { class: "empty-title" }, title), h("p", null, text), ...more);
}

/**
 * A panel with the text of an error, its remedy and its id.
 * @param {unknown} error
 * @param {() => void} [retry] shown as a button if given
 */
export function errorPanel(error, retry) {
  const shown = error instanceof ApiError ? error : new ApiError(-1, { message: String(error) });
  return h(
    "div",
    { class: "error-panel", role: "alert" },
    icon("warning"),
    h(
      "div",
      null,
      h("p", { class: "error-message" }, shown.status === 0 ? t("error.unreachable") : shown.message),
      shown.detail ? h("p", { class: "error-detail" }, shown.detail) : null,
      shown.action ? h("p", null, shown.action) : null,
      shown.errId ? h("p", { class: "error-id mono" }, shown.errId) : null,
      retry ? button(t("common.retry"), retry, { kind: "quiet" }) : null,
    ),
  );
}

/**
 * Copy a text, and confirm it.
 * @param {string} text
 */
export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    toast(t("common.copied"));
  } catch {
    toast(t("common.copy_failed"), "bad");
  }
}

/**
 * A value as text, with a button that copies it.
 * @param {unknown} value
 * @param {string} label
 */
export function jsonBlock(value, label) {
  const text = typeof value === "string" ? value : (JSON.stringify(value, null, 2) ?? "–");
  const shown = text.length > 200_000 ? `${text.slice(0, 200_000)}\n…` : text;
  return h(
    "div",
    { class: "code" },
    button(t("common.copy"), () => void copy(text), { icon: "copy", kind: "quiet", bare: true }),
    h("pre", { tabindex: "0", role: "region", "aria-label": label }, shown),
  );
}

/**
 * Names and values.
 * @param {([string, Node | string | number | null | undefined] | null | false)[]} rows
 */
export function facts(rows) {
  const shown = rows.filter((row) => row && row[1] !== null && row[1] !== undefined && row[1] !== "");
  return h(
    "dl",
    { class: "facts" },
    shown.map((row) => row && h("div", null, h("dt", null, row[0]), h("dd", null, row[1]))),
  );
}

/**
 * A progress bar.
 * @param {number} done
 * @param {number} all
 * @param {string} label
 */
export function progressBar(done, all, label) {
  return h("progress", { class: "progress", max: Math.max(1, all), value: done, "aria-label": label });
}

/** @param {string} name */
export const tagChip = (name) => h("span", { class: "tag mono" }, name);
