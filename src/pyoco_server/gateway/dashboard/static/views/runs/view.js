/** The list of runs: live, filtered by the address, of any length. */

import { button, emptyState, errorPanel } from "../../components/controls.js";
import { ask, isAbort } from "../../lib/api.js";
import { h, say } from "../../lib/dom.js";
import { hasEnded } from "../../lib/fold.js";
import { follow } from "../../lib/follow.js";
import { nowSeconds, number } from "../../lib/format.js";
import { t } from "../../lib/i18n.js";
import { address, amend, go, here } from "../../lib/router.js";
import { VirtualList } from "../../lib/virtual_list.js";
import { cancelMany } from "./bulk.js";
import { filters } from "./filters.js";
import { Pages, placeOf } from "./pages.js";
import { makeBlank, makeRow, showRun } from "./row.js";
import { RunStore } from "./store.js";

const PATIENCE_MS = 200;
const RELOAD_MS = 2_000;

/**
 * @param {HTMLElement} root
 * @param {Route} route
 * @param {AbortSignal} signal
 * @returns {View}
 */
export function mount(root, route, signal) {
  let ending = new AbortController();
  let asked = key(route);
  begin(root, route, ending.signal);
  signal.addEventListener("abort", () => ending.abort());
  const changed = () => {
    const now = here();
    if (now.view !== "runs" || key(now) === asked) return;
    asked = key(now);
    const focus = /** @type {HTMLElement | null} */ (document.activeElement)?.dataset ?? {};
    ending.abort();
    ending = new AbortController();
    root.replaceChildren();
    begin(root, now, ending.signal);
    const again =
      focus["status"] !== undefined ? `[data-status="${focus["status"]}"]` : `[data-filter="${focus["filter"]}"]`;
    /** @type {HTMLElement | null} */ (root.querySelector(again))?.focus();
  };
  addEventListener("amended", changed, { signal });
  return { update: changed };
}

/** The part of the route that decides which runs are loaded. @param {Route} route */
const key = (route) => ["status", "flow", "tag"].map((name) => route.query.get(name) ?? "").join("\n");

/**
 * @param {HTMLElement} root
 * @param {Route} route
 * @param {AbortSignal} signal
 */
function begin(root, route, signal) {
  const query = (/** @type {string} */ name) => route.query.get(name) ?? "";
  let text = query("q");
  let following = new AbortController();
  let store = storeOf(text);
  /** @type {Set<string>} */
  const selected = new Set();
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let typing;
  let active = -1;
  /** @type {string | null} the active run, if it is known which one stands there */
  let activeId = null;
  let rows = new Pages();
  /** @type {import("./pages.js").Place | null} */
  let anchor = null;

  const count = h("span", { class: "muted small", role: "status" });
  const cancel = button("", () => cancelMany([...selected], () => clear()), {
    icon: "stop",
    kind: "danger",
    hidden: true,
  });
  const scroller = h("div", {
    class: "run-rows",
    tabindex: "0",
    role: "rowgroup",
    "aria-label": t("runs.title"),
    on: { keydown: onKey, click: onClick },
  });
  const all = h("input", { type: "checkbox", "aria-label": t("runs.select_all"), on: { change: selectAll } });
  const table = h(
    "div",
    { class: "run-table", role: "table", "aria-label": t("runs.title") },
    h(
      "div",
      { role: "rowgroup", class: "run-head-group" },
      h(
        "div",
        { class: "run-row run-head", role: "row", "aria-rowindex": "1" },
        h("span", { role: "columnheader", class: "cell-select" }, all),
        [
          ["cell-status", t("runs.status")],
          ["cell-id", t("runs.id")],
          ["cell-flow", t("runs.flow")],
          ["cell-tag", t("runs.tag")],
          ["cell-tasks", t("runs.tasks")],
          ["cell-age", t("runs.age")],
          ["cell-duration", t("runs.duration")],
          ["cell-note", t("runs.note")],
        ].map(([name, word]) => h("span", { role: "columnheader", class: name }, word)),
      ),
    ),
    scroller,
  );
  const under = h("div", { class: "run-under" });
  const narrowed = filters(route, search);
  root.append(
    h("div", { class: "page-head" }, h("h1", null, t("runs.title")), count, h("span", { class: "spacer" }), cancel),
    narrowed.element,
    table,
    under,
  );

  const list = new VirtualList(
    {
      scroller,
      rowHeight: () => (matchMedia("(max-width: 720px)").matches ? 60 : 34),
      keyOf: (index) => rows.at(index)?.run_id ?? `~${index}`,
      render: (index, had) => {
        const run = rows.at(index);
        if (!run) return had ?? makeBlank(index);
        const row = had ?? makeRow(run, select);
        if (index === active && activeId === null) {
          activeId = run.run_id;
          scroller.setAttribute("aria-activedescendant", row.id);
        }
        showRun(row, run, { selected: selected.has(run.run_id), active: index === active, index, now: nowSeconds() });
        return row;
      },
      onShown: (first, last) => void store.show(first, last).catch(failed),
      placeOf: (id) => rows.indexOf(id),
    },
    signal,
  );

  /** @param {string} prefix */
  function storeOf(prefix) {
    const filter = { status: query("status"), flow: query("flow"), tag: query("tag"), run_id_prefix: prefix };
    return new RunStore(filter, AbortSignal.any([signal, following.signal]), () => draw());
  }

  /** Load the runs that match, and follow their changes. */
  /** @type {unknown} why the list could not be loaded; null if it was */
  let problem = null;

  function open() {
    following.abort();
    following = new AbortController();
    store = storeOf(text);
    const asked = new URLSearchParams();
    for (const name of /** @type {const} */ (["flow", "tag", "run_id_prefix"]))
      if (store.filter[name]) asked.set(name, store.filter[name]);
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    let reloadTimer;
    const refresh = () => void store.refresh().catch(failed);
    void follow(`/runs/~/watch?${asked}`, store.signal, {
      onEvent: (name, data) => {
        if (name === "ready") refresh();
        if (name === "runs") {
          for (const run of data.items) if (hasEnded(run.status)) selected.delete(run.run_id);
          store.merge(data.items);
        }
        if (name === "reset") {
          store.pages.settled = false;
          reloadTimer ??= setTimeout(() => {
            reloadTimer = undefined;
            if (!store.signal.aborted) store.doubt();
          }, RELOAD_MS);
        }
        if (data.counts) {
          narrowed.showCounts(data);
          store.count(data);
        }
      },
      onError: refresh, // without the stream, the list is still loaded
    });
  }

  function draw() {
    if (!store.begun && rows.count) return; // the old rows stay until there are new ones
    if (store.begun) rows = store.pages;
    const now = activeId === null ? -1 : rows.indexOf(activeId);
    if (now >= 0) active = now;
    active = Math.min(active, rows.count - 1);
    const isExact = rows.complete || rows.total !== null;
    table.setAttribute("aria-rowcount", isExact ? String(rows.count + 1) : "-1");
    table.hidden = store.begun && !rows.count;
    say(
      count,
      store.begun ? t(isExact ? "runs.count" : "runs.count_more", { n: number(rows.count) }) : t("common.loading"),
    );
    list.setCount(rows.count);
    if (problem && !store.begun) {
      say(count, "");
      under.replaceChildren(errorPanel(problem, retry));
    } else if (!store.begun || rows.count) under.replaceChildren();
    else if (text || key(route).trim()) under.replaceChildren(emptyState(t("runs.none_fit"), t("runs.none_fit_text")));
    else
      under.replaceChildren(
        emptyState(
          t("runs.none"),
          t("runs.none_text"),
          h("pre", { class: "mono hint" }, "pyoco-client submit --flow-name hello"),
        ),
      );
    drawSelection();
  }

  function drawSelection() {
    for (const id of selected) if (hasEnded(rows.byId.get(id)?.status ?? "")) selected.delete(id);
    cancel.hidden = !selected.size;
    say(/** @type {Node} */ (cancel.lastChild), t("bulk.submit", { n: number(selected.size) }));
    all.checked = selected.size > 0;
    all.indeterminate = selected.size > 0 && selected.size < rows.openRuns().length;
  }

  function clear() {
    selected.clear();
    draw();
  }

  function retry() {
    problem = null;
    open();
  }

  /** @param {unknown} error */
  function failed(error) {
    if (isAbort(error) || store.begun) return;
    problem = error;
    draw();
  }

  /**
   * Select or deselect a run; with shift, all from the last one to it.
   * @param {string} runId
   * @param {Event} [event]
   */
  function select(runId, event) {
    const run = rows.byId.get(runId);
    if (!run) return;
    const wanted = !selected.has(runId);
    const range = event && anchor && shift ? rows.openRuns(anchor, run) : hasEnded(run.status) ? [] : [runId];
    for (const one of range) {
      if (wanted) selected.add(one);
      else selected.delete(one);
    }
    anchor = placeOf(run);
    draw();
  }

  let shift = false;
  root.addEventListener("click", (event) => (shift = event.shiftKey), { capture: true, signal });

  function selectAll() {
    const open = rows.openRuns();
    const wanted = selected.size < open.length;
    selected.clear();
    if (wanted) for (const id of open) selected.add(id);
    draw();
  }

  /** @param {MouseEvent} event */
  function onClick(event) {
    const target = /** @type {HTMLElement} */ (event.target);
    const row = /** @type {HTMLElement | null} */ (target.closest(".run-row"));
    if (!row || target.closest("a, input, .cell-select") || getSelection()?.toString()) return;
    go(address("runs", row.dataset["id"]));
  }

  /** @param {KeyboardEvent} event */
  function onKey(event) {
    const page = Math.max(1, Math.floor(scroller.clientHeight / 34) - 1);
    /** @type {Record<string, number>} */
    const steps = {
      ArrowDown: 1,
      j: 1,
      ArrowUp: -1,
      k: -1,
      PageDown: page,
      PageUp: -page,
      Home: -rows.count,
      End: rows.count,
    };
    const step = steps[event.key];
    const run = rows.at(active);
    if (step !== undefined) {
      active = Math.max(0, Math.min(rows.count - 1, active + step));
      activeId = null;
      list.scrollTo(active);
    } else if (event.key === "Enter" && run) go(address("runs", run.run_id));
    else if ((event.key === " " || event.key === "x") && run) select(run.run_id);
    else if (event.key === "Escape") clear();
    else return;
    event.preventDefault();
  }

  /**
   * @param {string} wanted
   * @param {boolean} enter
   */
  function search(wanted, enter) {
    clearTimeout(typing);
    if (enter && wanted) return openRun(wanted);
    typing = setTimeout(() => {
      if (wanted === text || signal.aborted) return;
      text = wanted;
      selected.clear();
      amend({ q: wanted });
      open();
    }, PATIENCE_MS);
  }

  /**
   * The run with this id, or the only one whose id begins so.
   * @param {string} beginning
   */
  async function openRun(beginning) {
    try {
      /** @type {Run[]} */
      const found = await ask(`/runs?${new URLSearchParams({ run_id_prefix: beginning, limit: "2" })}`, { signal });
      const only = found.length === 1 ? found[0]?.run_id : beginning;
      const run = await ask(`/runs/${encodeURIComponent(only ?? beginning)}`, { signal });
      go(address("runs", run.run_id));
    } catch (error) {
      if (!isAbort(error)) under.replaceChildren(errorPanel(error));
    }
  }

  draw();
  open();
  const ticking = setInterval(() => list.plan(), 1_000);
  signal.addEventListener("abort", () => {
    clearInterval(ticking);
    clearTimeout(typing);
    following.abort();
  });
}
