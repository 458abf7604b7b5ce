/** A stream that is kept open: opened anew when it breaks or falls silent, and closed while nobody looks. */

import { ApiError } from "./api.js";
import { readEvents } from "./event_stream.js";

const SHORTEST_MS = 500;
const LONGEST_MS = 10_000;
/** Streams have a heartbeat every three seconds; one without for so long is dead, whatever the network says. */
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
    const alarm = setInterval(() => Date.now() - heard > SILENT_MS && stop.abort(), 1_000);
    let heard = Date.now();
    document.addEventListener("visibilitychange", () => document.hidden && stop.abort(), { signal: stop.signal });
    try {
      await readEvents(path, AbortSignal.any([signal, stop.signal]), (name, data) => {
        heard = Date.now();
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

/** Until somebody looks. @param {AbortSignal} signal */
async function visible(signal) {
  while (document.hidden && !signal.aborted)
    await new Promise((resolve) => {
      document.addEventListener("visibilitychange", resolve, { once: true, signal });
      signal.addEventListener("abort", resolve, { once: true });
    });
}
