/** Dialogs of the browser, which handle focus, Escape and the page behind them. */

import { h } from "../lib/dom.js";
import { t } from "../lib/i18n.js";
import { button, errorPanel } from "./controls.js";

/**
 * Open a dialog; it is removed from the page when it closes.
 * @param {string} title
 * @param {(Node | null)[]} content
 * @param {{
 *   submit?: string, danger?: boolean, onSubmit?: () => Promise<void> | void, extra?: Node[], onClose?: () => void, wide?: boolean,
 * }} [options]
 */
export function openDialog(
  title,
  content,
  { submit, danger = false, onSubmit, extra = [], onClose, wide = false } = {},
) {
  const errors = h("div", { class: "dialog-errors" });
  const confirm = submit
    ? h("button", { type: "submit", class: `button ${danger ? "danger" : "primary"}` }, h("span", null, submit))
    : null;
  const form = h(
    "form",
    { method: "dialog", on: { submit: (/** @type {SubmitEvent} */ event) => void submitted(event) } },
    h(
      "header",
      { class: "dialog-head" },
      h("h2", null, title),
      button(t("common.close"), () => dialog.close(), { icon: "close", kind: "quiet", bare: true }),
    ),
    h("div", { class: "dialog-body" }, ...content, errors),
    submit || extra.length
      ? h(
          "footer",
          { class: "dialog-foot" },
          ...extra,
          h("span", { class: "spacer" }),
          button(t("common.cancel"), () => dialog.close()),
          confirm,
        )
      : null,
  );
  const dialog = h("dialog", { class: wide ? "wide" : "", "aria-label": title }, form);
  dialog.addEventListener("close", () => {
    dialog.remove();
    onClose?.();
  });
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());

  /** @param {SubmitEvent} event */
  async function submitted(event) {
    event.preventDefault();
    if (!onSubmit) return dialog.close();
    if (confirm) confirm.disabled = true;
    try {
      await onSubmit();
      dialog.close();
    } catch (error) {
      errors.replaceChildren(errorPanel(error));
    } finally {
      if (confirm) confirm.disabled = false;
    }
  }

  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}
