/** Whether the server can be reached, as the last request showed. */

/** @typedef {"up" | "degraded" | "down"} State */

/** @type {State} */
let current = "up";
/** @type {Set<(state: State) => void>} */
const listeners = new Set();

/**
 * Note the outcome of a request.
 * @param {State} state
 */
export function report(state) {
  if (state === current) return;
  current = state;
  listeners.forEach((listener) => listener(state));
}

/** @param {(state: State) => void} listener */
export function onConnection(listener) {
  listeners.add(listener);
}
