/**
 * The API key. It is kept in memory and nowhere else: other pages of this origin (the API's own documentation loads
 * scripts from elsewhere) could read any storage, and a tab that is closed should leave nothing behind.
 */

let held = "";
let refused = false;
/** @type {Promise<boolean> | null} */
let asking = null;
/** @type {(error: Error | null) => Promise<string | null>} */
let prompt = async () => null;
/** @type {string[] | null} the scopes of the key, as a refusal named them; null: nothing was refused yet */
let scopes = null;
/** @type {Set<() => void>} */
const listeners = new Set();

/** The key, or an empty text. */
export const key = () => held;

/** The header of the key. */
export const keyHeader = () => document.documentElement.dataset["apiKeyHeader"] || "X-API-Key";

/** Whether the API requires a key and there is none. */
export const wanted = () => refused;

/**
 * Whether the key has this scope, as far as is known.
 * @param {string} scope
 */
export const mayUse = (scope) => scopes === null || scopes.includes(scope);

/** @param {unknown} named the scopes of the key, as a refusal names them */
export function learnScopes(named) {
  if (!Array.isArray(named) || scopes?.join() === named.join()) return;
  scopes = named.map(String);
  listeners.forEach((listener) => listener());
}

/**
 * Set the function that asks the user for a key.
 * @param {(error: Error | null) => Promise<string | null>} how
 */
export function promptWith(how) {
  prompt = how;
}

/** @param {() => void} listener */
export function onKey(listener) {
  listeners.add(listener);
}

/**
 * Ask the user for a key, once for all waiting requests; true if they should be sent again. A user who declines is not
 * asked again until they open the dialog themselves.
 * @param {string} used the key that was refused
 * @param {Error | null} error
 */
export async function askForKey(used, error) {
  if (held !== used) return true;
  if (refused && error) return false;
  asking ??= prompt(error).then((given) => {
    asking = null;
    refused = given === null && error !== null;
    if (given !== null) [held, scopes] = [given, null];
    listeners.forEach((listener) => listener());
    return given !== null;
  });
  return asking;
}
