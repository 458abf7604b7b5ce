/** The runs that are known: loaded page by page, and kept up to date by what is told of changes. */

import { ask } from "../../lib/api.js";

const PAGE = 200;
const MOST_PAGES_AT_ONCE = 5;
/** Snapshots of one moment may arrive in any order; looking back a little misses none. */
const OVERLAP_SEC = 2;

/** @typedef {{status: string, flow: string, tag: string, run_id_prefix: string}} Filter */

export class RunStore {
  /**
   * @param {Filter} filter
   * @param {AbortSignal} signal
   * @param {() => void} onChange
   */
  constructor(filter, signal, onChange) {
    this.filter = filter;
    this.signal = signal;
    this.onChange = onChange;
    /** @type {Run[]} newest first */
    this.runs = [];
    /** @type {Map<string, Run>} */
    this.byId = new Map();
    /** @type {string | null} */
    this.cursor = null;
    this.complete = false;
    this.loading = false;
    this.newest = 0;
    this.begun = false;
  }

  /** Load the first page, or what changed while nothing was told. */
  async refresh() {
    if (!this.begun) return this.begin();
    let cursor = null;
    for (let page = 0; page < MOST_PAGES_AT_ONCE; page += 1) {
      /** @type {RunPage} */
      const answer = await this.ask({
        updated_after: String(Math.max(0, this.newest - OVERLAP_SEC)),
        cursor,
        status: "",
      });
      this.merge(answer.items);
      cursor = answer.next_cursor;
      if (!cursor) return;
    }
    await this.begin(); // more changed than is worth following
  }

  async begin() {
    const before = this.newest;
    /** @type {RunPage} */
    const answer = await this.ask({ updated_after: "0" });
    this.runs = [];
    this.byId.clear();
    this.begun = false;
    this.newest = before;
    this.merge(answer.items);
    this.cursor = answer.next_cursor;
    this.complete = !this.cursor;
    this.begun = true;
    this.onChange();
  }

  /** Load the next page, unless it is on its way. */
  async more() {
    if (this.loading || this.complete || !this.begun) return;
    this.loading = true;
    try {
      /** @type {RunPage} */
      const answer = await this.ask({ cursor: this.cursor });
      for (const run of answer.items) this.put(run);
      this.cursor = answer.next_cursor;
      this.complete = !this.cursor;
    } finally {
      this.loading = false;
    }
    this.onChange();
  }

  /**
   * @param {Record<string, string | null>} more
   * @returns {Promise<RunPage>}
   */
  ask(more) {
    const query = new URLSearchParams({ limit: String(PAGE) });
    for (const [name, value] of Object.entries({ ...this.filter, ...more })) if (value) query.set(name, value);
    return ask(`/runs?${query}`, { signal: this.signal });
  }

  /** @param {Run[]} items */
  merge(items) {
    let changed = false;
    for (const run of items) {
      this.newest = Math.max(this.newest, run.updated_at);
      const known = this.byId.get(run.run_id);
      if (known && known.version === run.version && known.updated_at === run.updated_at) continue;
      changed = true;
      if (this.filter.status && run.status !== this.filter.status) this.remove(run.run_id);
      else this.put(run);
    }
    if (changed) this.onChange();
  }

  /** @param {Run} run */
  put(run) {
    const known = this.byId.get(run.run_id);
    if (known) {
      if (run.version >= known.version) Object.assign(known, run);
      return;
    }
    const last = this.runs.at(-1);
    if (!last || comesBefore(last, run)) {
      if (this.begun && !this.loading && !this.complete) return; // it belongs to a page that is not loaded yet
      this.runs.push(run);
    } else {
      this.runs.splice(this.place(run), 0, run);
    }
    this.byId.set(run.run_id, run);
  }

  /** @param {string} runId */
  remove(runId) {
    const known = this.byId.get(runId);
    if (!known) return;
    this.byId.delete(runId);
    const at = this.place(known);
    if (this.runs[at] === known) this.runs.splice(at, 1);
    else this.runs = this.runs.filter((run) => run !== known);
  }

  /** Where a run stands, or would. @param {Run} run */
  place(run) {
    let [low, high] = [0, this.runs.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (comesBefore(/** @type {Run} */ (this.runs[middle]), run)) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}

/**
 * @param {Run} one
 * @param {Run} other
 */
function comesBefore(one, other) {
  return one.submitted_at !== other.submitted_at ? one.submitted_at > other.submitted_at : one.run_id > other.run_id;
}
