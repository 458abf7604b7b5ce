/** Parameters, results, and the raw snapshot. */

import { jsonBlock } from "../../components/controls.js";
import { ask, isAbort } from "../../lib/api.js";
import { fill, h } from "../../lib/dom.js";
import { t } from "../../lib/i18n.js";
import { isControl } from "./model.js";

/**
 * @param {import("./view.js").Desk} desk
 * @returns {import("./view.js").Part}
 */
export function dataPanel(desk) {
  const { model } = desk;
  const element = h("div", { class: "data" });
  let drawn = "";

  function update() {
    const version = model.at ?? model.run?.version ?? 0;
    const known = `${version} of ${model.events.length}`;
    if (known === drawn || !model.run) return;
    drawn = known;
    const outputs = [...model.state.nodes.values()].filter((node) => !isControl(node) && node.output !== undefined);
    const raw = h("div", null, jsonBlock(model.run, t("data.raw")));
    fill(
      element,
      section(t("data.params"), model.run.params ?? {}),
      section(
        t("data.results"),
        Object.fromEntries(outputs.map((node) => [node.id, node.output?.value ?? node.output])),
      ),
      typeof model.state.input?.["run"]?.workflow_yaml === "string"
        ? section("flow.yaml", model.state.input["run"].workflow_yaml)
        : null,
      h(
        "section",
        { class: "wide" },
        h("h3", null, model.at === null ? t("data.raw") : t("data.state_then", { n: version })),
        raw,
      ),
    );
    const path = model.at === null ? `${model.path}?include=full` : `${model.path}/state?at=${version}`;
    ask(path, { signal: desk.signal }).then(
      (found) => drawn === known && raw.replaceChildren(jsonBlock(found, t("data.raw"))),
      (error) => {
        if (!isAbort(error)) drawn = ""; // repeated with the next change
      },
    );
  }

  return { element, update };
}

/**
 * @param {string} title
 * @param {unknown} value
 */
const section = (title, value) => h("section", null, h("h3", null, title), jsonBlock(value, title));
