/** The dialog for the API key. */

import { ApiError } from "../lib/api.js";
import { keyHeader } from "../lib/auth.js";
import { h } from "../lib/dom.js";
import { t } from "../lib/i18n.js";
import { errorPanel, field } from "./controls.js";
import { openDialog } from "./dialog.js";

/**
 * Ask for the key; null if the user closes the dialog.
 * @param {Error | null} error the refusal that made it necessary
 * @returns {Promise<string | null>}
 */
export function keyDialog(error) {
  return new Promise((resolve) => {
    /** @type {string | null} */
    let given = null;
    const input = h("input", {
      type: "password",
      class: "input mono",
      autocomplete: "off",
      autofocus: true,
      required: true,
      name: "api-key",
    });
    openDialog(
      t("key.title"),
      [
        error instanceof ApiError ? errorPanel(error) : null,
        field(t("key.label", { header: keyHeader() }), input),
        h("p", { class: "muted small" }, t("key.kept")),
      ],
      {
        submit: t("key.use"),
        onSubmit: () => {
          given = input.value.trim() || null;
        },
        onClose: () => resolve(given),
      },
    );
  });
}
