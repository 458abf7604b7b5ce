/** A run as it is watched: its newest snapshot, its log so far, and the state at the version the reader looks at. */

import { ApiError, ask, isAbort } from "../../lib/api.js";
import { readEvents } from "../../lib/event_stream.js";
import { empty, fold, hasEnded, step } from "../../lib/fold.js";
import { poll } from "../../lib/polling.js";

const PAGE = 5_000;
const LOOK_MS = 5_000;

export class RunModel {
  /**
   * @param {string} runId
   * @param {AbortSignal} signal
   * @param {() => void} onChange
   * @param {(error: unknown) => void} onError
   */
  constructor(runId, signal, onChange, onError) {
    this.runId = runId;
    this.signal = signal;
    this.onChange = onChange;
    this.onError = onError;
    /** @type {Run | null} */
    this.run = null;
    /** @type {RunEvent[]} */
    this.events = [];
    /** @type {Map<string, number>} by event id */
    this.versions = new Map();
    this.live = empty();
    /** @type {number | null} the version looked at; null: the newest */
    this.at = null;
    this.past = empty();
    this.reading = false;
    this.again = false;
  }

  get path() {
    return `/runs/${encodeURIComponent(this.runId)}`;
  }

  /** The state the reader looks at. */
  get state() {
    return this.at === null ? this.live : this.past;
  }

  /** How many events the reader sees. */
  get seen() {
    return this.at ?? this.events.length;
  }

  start() {
    poll(() => this.look(), LOOK_MS, this.signal);
    void this.watch();
  }

  /** Ask how the run stands. */
  async look() {
    try {
      this.take(await ask(this.path, { signal: this.signal }));
    } catch (error) {
      if (!isAbort(error)) this.onError(error);
      throw error;
    }
  }

  /** @param {Run} run */
  take(run) {
    if (this.run && run.version < this.run.version) return;
    this.run = { ...this.run, ...run };
    if (run.version > this.events.length) void this.read();
    this.onChange();
  }

  /** Follow the stream of snapshots until the run has ended; it is opened anew whenever it breaks. */
  async watch() {
    let pause = 500;
    while (!this.signal.aborted && !(this.run && hasEnded(this.run.status))) {
      const stop = new AbortController();
      try {
        await readEvents(`${this.path}/watch`, AbortSignal.any([this.signal, stop.signal]), (name, data) => {
          pause = 500;
          if (name === "snapshot") this.take(data.snapshot);
          if (this.run && hasEnded(this.run.status)) stop.abort();
        });
      } catch (error) {
        if (this.signal.aborted || (error instanceof ApiError && error.status === 404)) return;
      }
      await new Promise((resolve) => setTimeout(resolve, pause));
      pause = Math.min(pause * 2, 10_000);
    }
  }

  /** Read what the log has behind what is known. */
  async read() {
    this.again = true;
    if (this.reading) return;
    this.reading = true;
    try {
      while (this.again) {
        this.again = false;
        /** @type {EventsPage} */
        const page = await ask(`${this.path}/events?after=${this.events.length}&limit=${PAGE}`, {
          signal: this.signal,
        });
        for (const event of page.events) {
          this.events.push(event);
          this.versions.set(event.eventId, event.version);
          step(this.live, event);
        }
        if (page.next_after !== null) this.again = true;
        this.onChange();
      }
    } catch (error) {
      if (!isAbort(error)) this.onError(error);
    } finally {
      this.reading = false;
    }
  }

  /**
   * Look at a version of the past; null for what is now.
   * @param {number | null} at
   */
  lookAt(at) {
    this.at = at === null || at >= this.events.length ? null : Math.max(0, at);
    if (this.at !== null) this.past = fold(this.events, this.at);
    this.onChange();
  }
}
