/** Keeps a stream open: opens it again when it breaks or falls silent, and closes it while the page is hidden. */

import { ApiError } from "./api.js";
import { readEvents } from "./event_stream.js";

const SHORTEST_MS = 500;
const LONGEST_MS = 10_000;
/** Streams have a heartbeat every three seconds; a stream without one for so long is dead. */
const SILENT_MS = 15_000;

/**
 * @param {string} path
 * @param {AbortSignal} signal
 * @param {{onEvent: (name: string, data: any) => void, onError?: (error: unknown) => void, goesOn?: () => boolean}} how
 */
export async function follow(path, signal, { onEvent, onError, goesOn = () => true }) {
  let pause = SHORTEST_MS;
  while (!signal.aborted && goesOn()) {
    await visible(signal);
    const stop = new AbortController();
    const alarm = setInterval(() => Date.now() - receivedAt > SILENT_MS && stop.abort(), 1_000);
    let receivedAt = Date.now();
    document.addEventListener("visibilitychange", () => document.hidden && stop.abort(), { signal: stop.signal });
    try {
      await readEvents(path, AbortSignal.any([signal, stop.signal]), (name, data) => {
        receivedAt = Date.now();
        pause = SHORTEST_MS;
        onEvent(name, data);
        if (!goesOn()) stop.abort();
      });
    } catch (error) {
      if (signal.aborted || (error instanceof ApiError && error.status === 404)) return;
      if (!stop.signal.aborted) onError?.(error);
    } finally {
      clearInterval(alarm);
      stop.abort();
    }
    if (!goesOn()) return;
    await new Promise((resolve) => setTimeout(resolve, pause));
    pause = Math.min(pause * 2, LONGEST_MS);
  }
}

/** Wait until the page is visible. @param {AbortSignal} signal */
async function visible(signal) {
  while (document.hidden && !signal.aborted)
    await new Promise((resolve) => {
      document.addEventListener("visibilitychange", resolve, { once: true, signal });
      signal.addEventListener("abort", resolve, { once: true });
    });
}
