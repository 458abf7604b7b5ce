/** Preferences (language, theme), which are not secret and may be lost. */

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
    // Without storage, the preference lasts as long as the page.
  }
}
