/** The known runs: loaded where they are visible, and kept up to date by the stream of changes. */

import { ask } from "../../lib/api.js";
import { PAGE, Pages } from "./pages.js";

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
    this.pages = new Pages();
    this.loading = false;
    /** @type {Run[]} changes that arrived during a request, whose answer may be older */
    this.meanwhile = [];
    this.newest = 0;
    this.begun = false;
  }

  /** Load the first page, or what changed while the stream was not open. */
  async refresh() {
    if (!this.begun) return this.load(/** @type {import("./pages.js").Page} */ (this.pages.list[0]), false);
    this.pages.settled = false;
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
      if (!cursor) return this.settle();
    }
    this.doubt(); // more changed than is worth loading one by one
  }

  /** All changes are known again. */
  settle() {
    this.pages.settled = true;
    this.pages.measure();
    this.onChange();
  }

  /** Load everything again, as far as it is visible. */
  doubt() {
    this.pages.doubt();
    this.onChange();
  }

  /**
   * Take the number of runs by status, among those that match the other filters.
   * @param {{counts: Record<string, number>, counts_complete: boolean}} tally
   */
  count({ counts, counts_complete }) {
    const all = Object.values(counts).reduce((sum, count) => sum + count, 0);
    const total = this.filter.status ? (counts[this.filter.status] ?? 0) : all;
    const before = this.pages.count;
    this.pages.setTotal(counts_complete ? total : null);
    if (this.begun && this.pages.count !== before) this.onChange();
  }

  /**
   * These rows are visible: load what is missing of them, one page at a time.
   * @param {number} first
   * @param {number} last
   */
  async show(first, last) {
    this.pages.tidy(first, last);
    const wanted = this.begun ? this.pages.missing(first, last) : null;
    if (wanted) await this.load(wanted.page, wanted.fromEnd);
  }

  /**
   * @param {import("./pages.js").Page} page
   * @param {boolean} fromEnd
   */
  async load(page, fromEnd) {
    if (this.loading) return;
    this.loading = true;
    try {
      if (fromEnd) {
        const answer = await this.ask({ order: "oldest" });
        this.pages.fillEnd(page, answer.reverse());
      } else {
        const answer = await this.ask({ order: "newest", cursor: page.from, updated_after: page.from ? null : "0" });
        for (const run of answer.items) this.newest = Math.max(this.newest, run.updated_at);
        this.pages.fill(page, answer.items, answer.next_cursor);
      }
      this.begun = true;
    } finally {
      this.loading = false;
      const missed = this.meanwhile;
      this.meanwhile = [];
      this.merge(missed);
    }
    this.onChange();
  }

  /**
   * @param {Record<string, string | null>} more
   * @returns {Promise<any>}
   */
  ask(more) {
    const query = new URLSearchParams({ limit: String(PAGE) });
    for (const [name, value] of Object.entries({ ...this.filter, ...more })) if (value) query.set(name, value);
    return ask(`/runs?${query}`, { signal: this.signal });
  }

  /** @param {Run[]} items */
  merge(items) {
    if (this.loading) this.meanwhile.push(...items);
    let changed = false;
    for (const run of items) {
      this.newest = Math.max(this.newest, run.updated_at);
      changed = this.pages.take(run, !this.filter.status || run.status === this.filter.status) || changed;
    }
    if (changed) this.onChange();
  }
}
