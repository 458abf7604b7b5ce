/**
 * All runs as pages in the order of submission. Only pages near the visible rows hold their runs; of the others only the
 * beginning and the number of runs are known, so that a long list costs no more than a short one.
 */

import { hasEnded } from "../../lib/fold.js";

export const PAGE = 200;
/** The rows above and below the visible ones that keep their runs. */
const HELD = 1_000;
/** The rows beyond the visible ones that are loaded in advance. */
const AHEAD = 200;
/** A page with more runs, because new ones arrived, is loaded again, and so divided. */
const LONGEST = 5 * PAGE;

/**
 * Where a run stands; it never changes.
 * @typedef {{submitted_at: number, run_id: string}} Place
 *
 * @typedef {{
 *   after: Place | null,
 *   from: string | null,
 *   atEnd: boolean,
 *   runs: Run[] | null,
 *   open: Place[],
 *   count: number,
 *   begin: number,
 *   visited: boolean,
 *   doubted: boolean,
 * }} Page
 * It has the runs behind `after` up to the `after` of the next; `from` is the cursor that loads it, unless it is loaded
 * from the end of the list. `open` are those that had not ended when it last held its runs. A page that was never
 * visited is a gap: runs that were not loaded yet, and `count` is how many there must be.
 */

export class Pages {
  constructor() {
    /** @type {Page[]} newest first; never empty */
    this.list = [page(null, null)];
    /** @type {Map<string, Run>} those that are loaded */
    this.byId = new Map();
    /** @type {number | null} how many there are, as far as the server says */
    this.total = null;
    /** @type {Place | null} the newest of all */
    this.top = null;
    this.count = 0;
    /** Whether all new runs at the top are known. If not, it is unknown where additional ones belong. */
    this.settled = true;
  }

  /** Whether every page was visited. */
  get complete() {
    return this.list.every((one) => one.visited);
  }

  /** @param {number} index */
  at(index) {
    const found = this.list[leading(this.list, (one) => one.begin <= index) - 1];
    return found?.runs?.[index - found.begin];
  }

  /** The row of a loaded run, else -1. @param {string} runId */
  indexOf(runId) {
    const run = this.byId.get(runId);
    if (!run) return -1;
    const { begin, runs } = this.pageOf(run);
    return begin + leading(runs ?? [], (one) => comesBefore(one, run));
  }

  /** @param {Place} place */
  pageOf(place) {
    const at = leading(this.list, ({ after }) => !after || comesBefore(after, place));
    return /** @type {Page} */ (this.list[Math.max(0, at - 1)]);
  }

  /** @param {number | null} total */
  setTotal(total) {
    this.total = total;
    this.measure();
  }

  /** Where pages begin. The first gap has what the others have not. */
  measure() {
    const gap = this.list.find((one) => !one.visited);
    const others = this.list.reduce((sum, one) => sum + (one === gap ? 0 : one.count), 0);
    if (gap && this.settled && this.total !== null) gap.count = Math.max(1, this.total - others);
    this.count = 0;
    for (const one of this.list) {
      one.begin = this.count;
      this.count += one.count;
    }
  }

  /**
   * Apply a change of a run. A run in a page that does not hold its runs is ignored: it is loaded when needed.
   * @param {Run} run
   * @param {boolean} fits whether it belongs to the list
   * @returns {boolean} whether anything changed
   */
  take(run, fits) {
    const home = this.pageOf(run);
    const known = this.byId.get(run.run_id);
    if (known) {
      if (run.version < known.version) return false;
      if (run.version === known.version && run.updated_at === known.updated_at) return false;
      if (fits) Object.assign(known, run);
      else this.remove(known);
      return true;
    }
    if (home.open.length && hasEnded(run.status)) home.open = home.open.filter((one) => one.run_id !== run.run_id);
    const isNew = !this.top || comesBefore(run, this.top);
    if (!fits || !home.visited || !(home.runs || isNew)) return false;
    home.runs?.splice(
      leading(home.runs, (one) => comesBefore(one, run)),
      0,
      run,
    );
    if (home.runs) this.byId.set(run.run_id, run);
    home.count += 1;
    if (isNew) this.top = placeOf(run);
    this.measure();
    return true;
  }

  /** @param {Run} run */
  remove(run) {
    const home = this.pageOf(run);
    this.byId.delete(run.run_id);
    home.runs = (home.runs ?? []).filter((one) => one !== run);
    home.count = home.runs.length;
    this.measure();
  }

  /**
   * Fill a page from its top. If it has become longer than an answer, it is divided.
   * @param {Page} asked
   * @param {Run[]} answer newest first
   * @param {string | null} next
   */
  fill(asked, answer, next) {
    const at = this.list.indexOf(asked);
    const bound = this.list[at + 1]?.after ?? null;
    const runs = bound ? answer.filter((run) => !comesBefore(bound, run)) : answer;
    const last = runs.at(-1);
    if (last && next && runs.length === answer.length && (!bound || comesBefore(last, bound))) {
      const count = Math.max(1, asked.count - runs.length);
      this.list.splice(at + 1, 0, { ...page(placeOf(last), next), count });
    }
    if (!asked.after) this.settled = true;
    this.hold(asked, runs);
  }

  /**
   * Fill a page from the end of the list: it is a page of its own, and the gap ends before it.
   * @param {Page} asked the gap, or a page that came from the end
   * @param {Run[]} answer newest first
   */
  fillEnd(asked, answer) {
    const { after } = asked;
    const runs = after ? answer.filter((run) => comesBefore(after, run)) : answer;
    const first = runs[0];
    if (!first || runs.length < PAGE) return this.hold(asked, runs);
    if (asked.visited) {
      asked.after = placeOf(first); // it became longer than an answer: the rest belongs to the page before
      const before = this.list[this.list.indexOf(asked) - 1];
      if (before) before.doubted = true;
    }
    const end = asked.visited ? asked : { ...page(placeOf(first), null), atEnd: true };
    if (end !== asked) {
      asked.count = Math.max(1, asked.count - runs.length + 1);
      this.list.push(end);
    }
    this.hold(end, runs.slice(1));
  }

  /**
   * @param {Page} one
   * @param {Run[]} runs
   */
  hold(one, runs) {
    const newest = runs.map((run) => {
      const known = this.byId.get(run.run_id);
      return known && known.version > run.version ? known : run;
    });
    for (const run of one.runs ?? []) this.byId.delete(run.run_id);
    for (const run of newest) this.byId.set(run.run_id, run);
    Object.assign(one, { runs: newest, open: [], count: newest.length, visited: true, doubted: false });
    const [first] = newest;
    if (first && (!this.top || comesBefore(first, this.top))) this.top = placeOf(first);
    if (!newest.length && this.list.length > 1 && one.after) this.list.splice(this.list.indexOf(one), 1);
    this.measure();
  }

  /** Too much changed: mark all loaded runs as outdated; they stay until they are loaded again. */
  doubt() {
    this.settled = false;
    for (const one of this.list) one.doubted = one === this.list[0] || one.runs !== null;
  }

  /**
   * Drop the runs of pages that are far from these rows.
   * @param {number} first
   * @param {number} last
   */
  tidy(first, last) {
    for (const one of this.list) {
      if (!one.runs || (one.begin + one.count >= first - HELD && one.begin <= last + HELD)) continue;
      for (const run of one.runs) this.byId.delete(run.run_id);
      one.open = one.runs.filter((run) => !hasEnded(run.status)).map(placeOf);
      one.runs = null;
    }
  }

  /**
   * The page to load next, if these rows are visible.
   * @param {number} first
   * @param {number} last
   * @returns {{page: Page, fromEnd: boolean} | null}
   */
  missing(first, last) {
    const lacks = (/** @type {Page} */ one) => !one.runs || one.doubted;
    const within = (/** @type {number} */ margin) =>
      this.list.find(
        (one) => lacks(one) && one.begin <= last + margin && one.begin + one.count > Math.max(0, first - margin),
      );
    const next = within(AHEAD);
    const found =
      within(0) ??
      this.list.find((one) => one.doubted && !one.after) ??
      (next && (next.visited || next.begin > first) ? next : null) ?? // a gap is loaded only when it is needed
      this.list.find((one) => one.runs && one.runs.length > LONGEST);
    if (!found) return null;
    const reachesEnd = found === this.list.at(-1) && last >= this.count - PAGE / 2;
    return { page: found, fromEnd: found.atEnd || (!found.visited && reachesEnd && first - found.begin > 2 * PAGE) };
  }

  /**
   * Those that have not ended, all or from one to another.
   * @param {Place} [one]
   * @param {Place} [other]
   * @returns {string[]}
   */
  openRuns(one, other) {
    const [from, to] = one && other && comesBefore(other, one) ? [other, one] : [one, other];
    return this.list
      .flatMap(({ runs, open }) => (runs ? runs.filter((run) => !hasEnded(run.status)) : open))
      .filter((place) => !(from && comesBefore(place, from)) && !(to && comesBefore(to, place)))
      .map((place) => place.run_id);
  }
}

/**
 * @param {Place | null} after
 * @param {string | null} from
 * @returns {Page}
 */
function page(after, from) {
  return { after, from, atEnd: false, runs: null, open: [], count: 1, begin: 0, visited: false, doubted: false };
}

/** @param {Place} run @returns {Place} */
export const placeOf = ({ submitted_at, run_id }) => ({ submitted_at, run_id });

/**
 * @param {Place} one
 * @param {Place} other
 */
function comesBefore(one, other) {
  return one.submitted_at !== other.submitted_at ? one.submitted_at > other.submitted_at : one.run_id > other.run_id;
}

/**
 * How many come first for which something holds; it holds for none behind one for which it does not.
 * @template T
 * @param {T[]} list
 * @param {(one: T) => boolean} holds
 */
function leading(list, holds) {
  let [low, high] = [0, list.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (holds(/** @type {T} */ (list[middle]))) low = middle + 1;
    else high = middle;
  }
  return low;
}
