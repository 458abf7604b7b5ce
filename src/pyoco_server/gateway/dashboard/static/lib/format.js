/** Formats times in the zone of the browser, durations and sizes. */

import { language, t } from "./i18n.js";

/** @param {number | null | undefined} seconds unix seconds */
export function moment(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  return formatter({ dateStyle: "medium", timeStyle: "medium" }).format(seconds * 1000);
}

/** @param {number | null | undefined} seconds unix seconds */
export function clock(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  const date = new Date(seconds * 1000);
  const today = new Date().toDateString() === date.toDateString();
  /** @type {Intl.DateTimeFormatOptions} */
  const time = { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false };
  return formatter(today ? time : { month: "short", day: "numeric", ...time }).format(date);
}

/** @param {number} seconds unix seconds, with milliseconds shown */
export function precise(seconds) {
  return formatter({
    hour: "2-digit",
    minute: "2-digit",
    second: "2-digit",
    fractionalSecondDigits: 3,
    hour12: false,
  }).format(seconds * 1000);
}

/** @param {number | null | undefined} seconds */
export function duration(seconds) {
  if (seconds === null || seconds === undefined || Number.isNaN(seconds)) return "–";
  if (seconds < 0.0005) return "0 ms";
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 9.95) return `${seconds.toFixed(1)} s`;
  if (seconds < 59.5) return `${Math.round(seconds)} s`;
  const whole = Math.round(seconds);
  const [days, hours, minutes] = [
    Math.floor(whole / 86400),
    Math.floor(whole / 3600) % 24,
    Math.floor(whole / 60) % 60,
  ];
  if (days) return `${days} d ${hours} h`;
  if (hours) return `${hours} h ${minutes} min`;
  return whole % 60 ? `${minutes} min ${whole % 60} s` : `${minutes} min`;
}

/**
 * How long ago, in one short text.
 * @param {number | null | undefined} seconds unix seconds
 * @param {number} now
 */
export function age(seconds, now) {
  if (seconds === null || seconds === undefined) return "–";
  const passed = Math.max(0, now - seconds);
  if (passed < 1.5) return t("time.now");
  if (passed < 60) return t("time.seconds", { n: Math.floor(passed) });
  if (passed < 3600) return t("time.minutes", { n: Math.floor(passed / 60) });
  if (passed < 86400) return t("time.hours", { n: Math.floor(passed / 3600) });
  return t("time.days", { n: Math.floor(passed / 86400) });
}

/** @param {number | null | undefined} count */
export function bytes(count) {
  if (count === null || count === undefined) return "–";
  const units = ["B", "KiB", "MiB", "GiB"];
  let [value, unit] = [count, 0];
  while (value >= 1024 && unit < units.length - 1) [value, unit] = [value / 1024, unit + 1];
  return `${unit && value < 10 ? value.toFixed(1) : Math.round(value)} ${units[unit]}`;
}

/** @param {number} count */
export function number(count) {
  return new Intl.NumberFormat(language()).format(count);
}

/** @param {string} id */
export const shortId = (id) => (id.length > 12 ? id.slice(0, 8) : id);

/** Unix seconds by the clock of the browser. */
export const nowSeconds = () => Date.now() / 1000;

/** @type {Map<string, Intl.DateTimeFormat>} */
const formatters = new Map();

/** @param {Intl.DateTimeFormatOptions} options */
function formatter(options) {
  const name = language() + JSON.stringify(options);
  let found = formatters.get(name);
  if (!found) formatters.set(name, (found = new Intl.DateTimeFormat(language(), options)));
  return found;
}
