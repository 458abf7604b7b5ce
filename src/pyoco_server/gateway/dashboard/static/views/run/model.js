/** The model of a run view: the newest snapshot, the log so far, and the state at the chosen version. */

import { ask, isAbort } from "../../lib/api.js";
import { follow } from "../../lib/follow.js";
import { empty, fold, hasEnded, step } from "../../lib/fold.js";
import { poll } from "../../lib/polling.js";

const CONTROL = new Set(["Start", "Success", "Fork", "Join", "Failure", "Cancel", "End"]);

/** Whether the node only connects others. @param {FoldedNode} node */
export const isControl = (node) => CONTROL.has(node.type) || (node.inputs === null && node.id.startsWith(":"));

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
    /** @type {number | null} the chosen version; null: the newest */
    this.at = null;
    this.past = empty();
    this.reading = false;
    this.again = false;
    /** @type {unknown} why the log could not be read; null if it could */
    this.problem = null;
    /** @type {string[]} where the log is inconsistent */
    this.notes = [];
  }

  get path() {
    return `/runs/${encodeURIComponent(this.runId)}`;
  }

  /** The id of a node may contain slashes. @param {string} nodeId */
  nodePath(nodeId) {
    return `${this.path}/nodes/${nodeId.split("/").map(encodeURIComponent).join("/")}`;
  }

  /** The state at the chosen version. */
  get state() {
    return this.at === null ? this.live : this.past;
  }

  /** The number of events up to the chosen version. */
  get seen() {
    return this.at ?? this.events.length;
  }

  start() {
    poll(() => this.look(), LOOK_MS, this.signal);
    void this.watch();
  }

  /** Repeat what failed. */
  retry() {
    void this.look().catch(() => {}); // the error is shown where it occurred
    if (this.problem) void this.read();
  }

  /** Read the newest snapshot. */
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
    const moved = this.run !== null && this.run.worker_id !== run.worker_id && run.worker_alive === undefined;
    this.run = { ...this.run, ...run };
    if (moved) {
      delete this.run.worker_alive; // that was about another worker
      void this.look().catch(() => {}); // the poll shows the error
    }
    if (run.version > this.events.length) void this.read();
    this.onChange();
  }

  /** Follow the stream of snapshots until the run has ended. */
  watch() {
    return follow(`${this.path}/watch`, this.signal, {
      onEvent: (name, data) => name === "snapshot" && this.take(data.snapshot),
      goesOn: () => !this.run || !hasEnded(this.run.status),
    });
  }

  /** Read the events after the known ones. */
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
        this.problem = null;
        this.notes = page.notes ?? [];
        this.onChange();
      }
    } catch (error) {
      if (!isAbort(error)) {
        this.problem = error;
        this.onError(error);
      }
    } finally {
      this.reading = false;
    }
  }

  /**
   * Choose a version of the past; null for the newest.
   * @param {number | null} at
   */
  lookAt(at) {
    this.at = at === null || at >= this.events.length ? null : Math.max(0, at);
    if (this.at !== null) this.past = fold(this.events, this.at);
    this.onChange();
  }
}
