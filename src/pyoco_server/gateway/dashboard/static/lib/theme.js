/** The theme: light, dark, or that of the system. */

import { recall, remember } from "./storage.js";

/** @typedef {"auto" | "light" | "dark"} Theme */

/** @returns {Theme} */
export function theme() {
  const chosen = recall("theme");
  return chosen === "light" || chosen === "dark" ? chosen : "auto";
}

/** @param {Theme} wanted */
export function setTheme(wanted) {
  remember("theme", wanted);
  applyTheme();
}

export function applyTheme() {
  document.documentElement.dataset["theme"] = theme();
}
