/** Is the server there? Learned from whatever was asked last. */

/** @typedef {"up" | "degraded" | "down"} State */

/** @type {State} */
let current = "up";
/** @type {Set<(state: State) => void>} */
const listeners = new Set();

/**
 * Note how the last request went.
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
