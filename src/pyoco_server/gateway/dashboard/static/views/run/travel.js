/** The slider through a run's past. */

import { button } from "../../components/controls.js";
import { h, say } from "../../lib/dom.js";
import { precise } from "../../lib/format.js";
import { t } from "../../lib/i18n.js";

/**
 * @param {import("./view.js").Desk} desk
 * @returns {import("./view.js").Part}
 */
export function travelBar(desk) {
  const { model } = desk;
  const slider = h("input", {
    type: "range",
    min: "0",
    max: "0",
    "aria-label": t("travel.label"),
    on: { input: () => desk.travel(Number(slider.value)) },
  });
  const where = h("output", { class: "mono small" });
  const live = button(`● ${t("travel.live")}`, () => desk.travel(null), { kind: "quiet", class: "button quiet live" });
  const element = h("div", { class: "travel" }, slider, where, live);

  return {
    element,
    update: () => {
      slider.max = String(model.events.length);
      slider.value = String(model.seen);
      const last = model.events[model.seen - 1];
      const text = `${model.seen}/${model.events.length}${last ? ` · ${precise(Date.parse(last.occurredAt) / 1000)}` : ""}`;
      say(where, text);
      slider.setAttribute("aria-valuetext", last ? `${text} ${last.type}` : text);
      element.classList.toggle("past", model.at !== null);
      live.setAttribute("aria-pressed", String(model.at === null));
    },
  };
}
