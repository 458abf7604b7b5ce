/** Uploading wheels: by choosing or dropping files, with a bar for each. */

import { field, progressBar } from "../../components/controls.js";
import { icon } from "../../components/icons.js";
import { toast } from "../../components/toast.js";
import { ApiError, errorOf, headers } from "../../lib/api.js";
import { h } from "../../lib/dom.js";
import { bytes } from "../../lib/format.js";
import { t } from "../../lib/i18n.js";

/**
 * @param {AbortSignal} signal
 * @param {() => void} onDone
 */
export function uploadCard(signal, onDone) {
  const tags = h("input", { class: "input mono", placeholder: "cpu,linux", name: "tags" });
  const files = h("input", {
    type: "file",
    accept: ".whl",
    multiple: true,
    class: "visually-hidden",
    on: { change: () => take(files.files) },
  });
  const under = h("div", { class: "uploads", role: "status" });
  const drop = h(
    "label",
    {
      class: "drop",
      on: { dragover: over, dragenter: over, dragleave: () => drop.classList.remove("over"), drop: dropped },
    },
    files,
    icon("upload"),
    h("span", null, h("strong", null, t("wheels.choose")), " ", t("wheels.or_drop")),
  );

  /** @param {DragEvent} event */
  function over(event) {
    event.preventDefault();
    drop.classList.add("over");
  }

  /** @param {DragEvent} event */
  function dropped(event) {
    event.preventDefault();
    drop.classList.remove("over");
    take(event.dataTransfer?.files ?? null);
  }

  /** @param {FileList | null} list */
  function take(list) {
    for (const file of list ?? []) void send(file);
    files.value = "";
  }

  /** @param {File} file */
  async function send(file) {
    const bar = progressBar(0, file.size, file.name);
    const line = h(
      "div",
      { class: "upload" },
      h("span", { class: "mono" }, file.name),
      h("span", { class: "muted small" }, bytes(file.size)),
      bar,
    );
    under.append(line);
    try {
      await upload(file, tags.value.trim(), signal, (sent) => (bar.value = sent));
      toast(t("wheels.uploaded", { name: file.name }), "good");
      line.remove();
      onDone();
    } catch (error) {
      bar.remove();
      const shown = error instanceof ApiError ? error : new ApiError(0, {});
      line.append(
        h(
          "span",
          { class: "bad-text", role: "alert" },
          [shown.status ? shown.message : t("error.unreachable"), shown.detail, shown.action, shown.errId]
            .filter(Boolean)
            .join(" · "),
        ),
      );
    }
  }

  return h(
    "section",
    { class: "card" },
    h("h2", null, t("wheels.upload")),
    drop,
    field(t("wheels.tags"), tags, t("wheels.tags_hint")),
    under,
  );
}

/**
 * Send a file by XMLHttpRequest, as fetch does not report the progress of an upload.
 * @param {File} file
 * @param {string} tags
 * @param {AbortSignal} signal
 * @param {(sent: number) => void} onSent
 * @returns {Promise<void>}
 */
function upload(file, tags, signal, onSent) {
  const form = new FormData();
  form.append("wheel", file, file.name);
  if (tags) form.append("tags", tags);
  const request = new XMLHttpRequest();
  return new Promise((resolve, reject) => {
    request.open("POST", "/wheels");
    for (const [name, value] of Object.entries(headers())) request.setRequestHeader(name, value);
    request.upload.addEventListener("progress", (event) => onSent(event.loaded));
    request.addEventListener("error", () => reject(new ApiError(0, {})));
    request.addEventListener("abort", () => reject(new ApiError(0, {})));
    request.addEventListener("load", () => {
      if (request.status < 300) resolve();
      else reject(refusal(request));
    });
    signal.addEventListener("abort", () => request.abort());
    request.send(form);
  });
}

/** @param {XMLHttpRequest} request */
function refusal(request) {
  try {
    return errorOf(request.status, JSON.parse(request.responseText));
  } catch {
    return new ApiError(request.status, {});
  }
}
