/** Cancelling many runs at once. */

import { button, copy, field } from "../../components/controls.js";
import { openDialog } from "../../components/dialog.js";
import { toast } from "../../components/toast.js";
import { ask } from "../../lib/api.js";
import { curl } from "../../lib/curl.js";
import { h } from "../../lib/dom.js";
import { number } from "../../lib/format.js";
import { t } from "../../lib/i18n.js";

const MOST = 1_000;

/**
 * Ask for a reason, then cancel.
 * @param {string[]} ids
 * @param {() => void} onDone
 */
export function cancelMany(ids, onDone) {
  const reason = h("input", { class: "input", maxlength: "2000", autofocus: true, name: "reason" });
  const body = (/** @type {string[]} */ part) => ({ run_ids: part, ...(reason.value ? { reason: reason.value } : {}) });
  openDialog(
    t("bulk.title", { n: number(ids.length) }),
    [h("p", null, t("cancel.text")), field(t("cancel.reason"), reason)],
    {
      submit: t("bulk.submit", { n: number(ids.length) }),
      danger: true,
      extra: [
        button(
          t("common.curl"),
          () => void copy(curl("/runs/cancel", { method: "POST", json: body(ids.slice(0, MOST)) })),
          {
            icon: "copy",
            kind: "quiet",
          },
        ),
      ],
      onSubmit: async () => {
        let missing = 0;
        for (let from = 0; from < ids.length; from += MOST) {
          const answer = await ask("/runs/cancel", { method: "POST", json: body(ids.slice(from, from + MOST)) });
          missing += answer.results.filter((/** @type {any} */ result) => result.status === null).length;
        }
        toast(t("bulk.done", { n: number(ids.length - missing) }), "good");
        onDone();
      },
    },
  );
}
