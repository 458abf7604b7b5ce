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
/** @type {string[] | null} what the key is good for, as far as a refusal has told; null: nothing was refused yet */
let scopes = null;
/** @type {Set<() => void>} */
const listeners = new Set();

/** The key, or an empty text. */
export const key = () => held;

/** The header it goes in. */
export const keyHeader = () => document.documentElement.dataset["apiKeyHeader"] || "X-API-Key";

/** Does the API want a key that was not given? */
export const wanted = () => refused;

/**
 * Is the key good for this, as far as is known?
 * @param {string} scope
 */
export const mayUse = (scope) => scopes === null || scopes.includes(scope);

/** @param {unknown} told the scopes of the key, as a refusal names them */
export function learnScopes(told) {
  if (!Array.isArray(told) || scopes?.join() === told.join()) return;
  scopes = told.map(String);
  listeners.forEach((listener) => listener());
}

/**
 * Say how a person is asked.
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
 * Ask for a key, once for all who need one; true if it is worth trying again. Who said no is not asked again until they
 * open the dialog themselves.
 * @param {string} used the key that was not good enough
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
