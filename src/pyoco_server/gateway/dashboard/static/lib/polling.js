/** Polls: never twice at a time, slower after failures, not while the page is hidden. */

const LONGEST_MS = 15_000;

/**
 * Repeat a task until the signal aborts.
 * @param {() => Promise<void>} task
 * @param {number} everyMs
 * @param {AbortSignal} signal
 */
export function poll(task, everyMs, signal) {
  let failures = 0;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  let running = false;

  async function turn() {
    clearTimeout(timer);
    if (signal.aborted || running || document.hidden) return;
    running = true;
    try {
      await task();
      failures = 0;
    } catch {
      failures += 1; // the task has shown the error
    }
    running = false;
    if (!signal.aborted) timer = setTimeout(turn, Math.min(everyMs * 2 ** failures, Math.max(LONGEST_MS, everyMs)));
  }

  document.addEventListener("visibilitychange", turn, { signal });
  addEventListener("online", turn, { signal });
  signal.addEventListener("abort", () => clearTimeout(timer));
  void turn();
  return turn;
}
