/** Texts in the chosen language; the type checker proves that both dictionaries have the same keys. */

import { en } from "../i18n/en.js";
import { ja } from "../i18n/ja.js";
import { recall, remember } from "./storage.js";

/** @typedef {keyof typeof en} Key */
/** @typedef {"en" | "ja"} Language */

/** @type {Record<Language, Record<Key, string>>} */
const DICTIONARIES = { en, ja };

/** @type {Language} */
let current = "en";

export function chooseLanguage() {
  const opened = document.documentElement.lang === "ja" ? "ja" : "en";
  const chosen = recall("language");
  setLanguage(chosen === "ja" || chosen === "en" ? chosen : opened);
}

export const language = () => current;

/** @param {Language} wanted */
export function setLanguage(wanted) {
  current = wanted;
  document.documentElement.lang = wanted;
}

/** @param {Language} wanted */
export function switchLanguage(wanted) {
  remember("language", wanted);
  setLanguage(wanted);
}

/**
 * The text, with its placeholders filled in.
 * @param {Key} key
 * @param {Record<string, string | number>} [values]
 */
export function t(key, values) {
  const text = DICTIONARIES[current][key] ?? key;
  return values ? text.replace(/\{(\w+)\}/g, (_, name) => String(values[name] ?? "")) : text;
}
