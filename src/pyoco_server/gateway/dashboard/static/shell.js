/** The frame of the page: navigation, state of the connection, and the place of the view. */

import { button } from "./components/controls.js";
import { icon } from "./components/icons.js";
import { toasts } from "./components/toast.js";
import { askForKey, key, mayUse, onKey, wanted } from "./lib/auth.js";
import { onConnection } from "./lib/connection.js";
import { fill, h } from "./lib/dom.js";
import { language, switchLanguage, t } from "./lib/i18n.js";
import { address, here } from "./lib/router.js";
import { setTheme, theme } from "./lib/theme.js";
import { shortcuts, showShortcuts } from "./shortcuts.js";
import { mount as metrics } from "./views/metrics/view.js";
import { mount as queue } from "./views/queue/view.js";
import { mount as run } from "./views/run/view.js";
import { mount as runs } from "./views/runs/view.js";
import { mount as wheels } from "./views/wheels/view.js";
import { mount as workers } from "./views/workers/view.js";

/** @typedef {(root: HTMLElement, route: Route, signal: AbortSignal) => View} Mount */
/** @typedef {import("./components/icons.js").Icon} Icon */
/** @typedef {import("./lib/i18n.js").Key} Key */

/** @type {Record<string, Mount>} */
const VIEWS = { runs, run, workers, wheels, queue, metrics };
/** @type {{view: string, icon: Icon, word: Key, scope: string}[]} */
const PLACES = [
  { view: "runs", icon: "runs", word: "nav.runs", scope: "runs" },
  { view: "workers", icon: "workers", word: "nav.workers", scope: "operate" },
  { view: "wheels", icon: "wheels", word: "nav.wheels", scope: "wheels" },
  { view: "queue", icon: "queue", word: "nav.queue", scope: "operate" },
  { view: "metrics", icon: "metrics", word: "nav.metrics", scope: "operate" },
];

const bar = h("header", { class: "bar" });
const notice = h("div", { class: "notice", role: "status", "aria-live": "polite", hidden: true });
const room = h("main", { id: "view", tabindex: "-1" });

/** @type {{route: Route, view: View, ending: AbortController} | null} */
let shown = null;

export function startShell() {
  document.body.append(
    h("a", { class: "skip", href: "#view", on: { click: skip } }, t("nav.skip")),
    bar,
    notice,
    room,
    toasts(),
  );
  addEventListener("hashchange", () => show(here()));
  onConnection((state) => {
    notice.hidden = state === "up";
    notice.dataset["state"] = state;
    notice.textContent = state === "down" ? t("connection.down") : state === "degraded" ? t("connection.degraded") : "";
  });
  onKey(drawBar);
  shortcuts();
  show(here());
}

/** @param {Event} event */
function skip(event) {
  event.preventDefault();
  room.focus();
}

/** @param {Route} route */
function show(route) {
  if (shown && shown.route.view === route.view && shown.route.id === route.id && shown.view.update) {
    shown.route = route;
    shown.view.update(route);
    return;
  }
  shown?.ending.abort();
  const ending = new AbortController();
  room.replaceChildren();
  room.className = `view view-${route.view}`;
  const mount = /** @type {Mount} */ (VIEWS[route.view]);
  shown = { route, ending, view: mount(room, route, ending.signal) };
  drawBar();
}

/** Draw the page in another language; the address keeps the view. */
function redraw() {
  shown?.ending.abort();
  shown = null;
  document.querySelector(".skip")?.replaceChildren(t("nav.skip"));
  show(here());
}

function drawBar() {
  const current = shown?.route.view === "run" ? "runs" : shown?.route.view;
  document.title = t("app.title", { page: t(PLACES.find((place) => place.view === current)?.word ?? "nav.runs") });
  fill(
    bar,
    h(
      "a",
      { class: "brand", href: address("runs") },
      h("img", { src: "/static/icon.svg", alt: "", width: "22", height: "22" }),
      h("span", null, "pyoco-server"),
    ),
    h(
      "nav",
      { "aria-label": t("nav.label") },
      PLACES.filter((place) => mayUse(place.scope)).map((place) =>
        h(
          "a",
          { href: address(place.view), class: "place", "aria-current": place.view === current ? "page" : null },
          icon(place.icon),
          h("span", null, t(place.word)),
        ),
      ),
    ),
    h("span", { class: "spacer" }),
    h("div", { class: "bar-tools" }, keyButton(), languageButton(), themeButton(), shortcutsButton()),
  );
}

function keyButton() {
  if (!key() && !wanted()) return null;
  return button(t("key.title"), () => void askForKey(key(), null).then((given) => given && redraw()), {
    icon: "key",
    kind: wanted() ? "danger" : "quiet",
    bare: true,
  });
}

function languageButton() {
  const other = language() === "ja" ? "en" : "ja";
  return h(
    "button",
    {
      type: "button",
      class: "button quiet language",
      lang: other,
      title: t("nav.language"),
      on: {
        click: () => {
          switchLanguage(other);
          redraw();
        },
      },
    },
    h("span", null, other === "ja" ? "日本語" : "English"),
  );
}

function themeButton() {
  /** @type {Record<import("./lib/theme.js").Theme, [import("./lib/theme.js").Theme, Icon, Key]>} */
  const steps = {
    auto: ["light", "auto", "theme.auto"],
    light: ["dark", "sun", "theme.light"],
    dark: ["auto", "moon", "theme.dark"],
  };
  const [next, name, word] = steps[theme()];
  return button(
    t(word),
    () => {
      setTheme(next);
      drawBar();
      bar.querySelector(/** @type {"button"} */ ("button.theme"))?.focus();
    },
    { icon: name, kind: "quiet", bare: true, class: "button quiet bare theme" },
  );
}

function shortcutsButton() {
  return button(t("keys.title"), showShortcuts, {
    icon: "keyboard",
    kind: "quiet",
    bare: true,
    class: "button quiet bare only-wide",
  });
}
