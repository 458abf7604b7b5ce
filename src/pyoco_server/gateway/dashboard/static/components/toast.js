/** Short messages that disappear by themselves; screen readers announce them. */

import { h } from "../lib/dom.js";

const STAY_MS = 5_000;
const room = h("div", { class: "toasts", role: "status", "aria-live": "polite" });

export const toasts = () => room;

/**
 * @param {string} text
 * @param {"plain" | "good" | "bad"} [tone]
 */
export function toast(text, tone = "plain") {
  const shown = h("div", { class: "toast", data: { tone } }, text);
  room.append(shown);
  setTimeout(() => shown.remove(), STAY_MS);
}
