/** The route in the part of the address after '#', so that reload, bookmarks and the back button work. */

const VIEWS = ["runs", "workers", "wheels", "queue", "metrics"];

/** @returns {Route} */
export function here() {
  const [path = "", query = ""] = location.hash.replace(/^#\/?/, "").split("?", 2);
  const [view = "", ...rest] = path.split("/");
  const id = rest.length ? decodeURIComponent(rest.join("/")) : null;
  if (!VIEWS.includes(view)) return { view: "runs", id: null, query: new URLSearchParams() };
  return { view: view === "runs" && id ? "run" : view, id, query: new URLSearchParams(query) };
}

/**
 * The address of a route.
 * @param {string} view
 * @param {string | null} [id]
 * @param {URLSearchParams | Record<string, string>} [query]
 */
export function address(view, id = null, query = {}) {
  const text = new URLSearchParams(query).toString();
  return `#/${view}${id ? `/${encodeURIComponent(id)}` : ""}${text ? `?${text}` : ""}`;
}

/** @param {string} to */
export function go(to) {
  location.hash = to;
}

/**
 * Change the query of this route without an entry in the history.
 * @param {Record<string, string | null>} changes
 */
export function amend(changes) {
  const { view, id, query } = here();
  for (const [name, value] of Object.entries(changes)) {
    if (value === null || value === "") query.delete(name);
    else query.set(name, value);
  }
  history.replaceState(null, "", address(view === "run" ? "runs" : view, id, query));
  dispatchEvent(new Event("amended"));
}
