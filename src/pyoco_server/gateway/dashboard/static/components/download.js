/** Files from the API. */

import { send } from "../lib/api.js";
import { h } from "../lib/dom.js";
import { toast } from "./toast.js";

/**
 * Fetch a file with the key and save it: a plain link could not send the key.
 * @param {string} path
 * @param {string} name
 */
export async function download(path, name) {
  try {
    const response = await send(path);
    const url = URL.createObjectURL(await response.blob());
    h("a", { href: url, download: name }).click();
    setTimeout(() => URL.revokeObjectURL(url), 1_000);
  } catch (error) {
    toast(error instanceof Error ? error.message : String(error), "bad");
  }
}
