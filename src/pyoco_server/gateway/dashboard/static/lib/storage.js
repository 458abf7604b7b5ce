/** Preferences (language, theme): nothing secret, and nothing that matters if it cannot be kept. */

/** @param {string} name */
export function recall(name) {
  try {
    return localStorage.getItem(`pyoco.${name}`);
  } catch {
    return null;
  }
}

/**
 * @param {string} name
 * @param {string} value
 */
export function remember(name, value) {
  try {
    localStorage.setItem(`pyoco.${name}`, value);
  } catch {
    // A browser that keeps nothing asks again next time.
  }
}
