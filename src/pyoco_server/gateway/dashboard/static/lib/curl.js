/** A request as a curl command. It never contains the key, but names a variable. */

import { key, keyHeader } from "./auth.js";

/**
 * @param {string} path
 * @param {{method?: string, json?: any}} [options]
 */
export function curl(path, { method = "GET", json } = {}) {
  const parts = ["curl", "-sS"];
  if (method !== "GET") parts.push("-X", method);
  if (key()) parts.push("-H", `"${keyHeader()}: $PYOCO_API_KEY"`);
  if (json !== undefined)
    parts.push("-H", quoted("Content-Type: application/json"), "-d", quoted(JSON.stringify(json)));
  return [...parts, quoted(new URL(path, location.origin).href)].join(" ");
}

/** @param {string} text */
function quoted(text) {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}
