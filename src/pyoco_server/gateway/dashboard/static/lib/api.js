/** Requests to the API: the key, one shape of errors, and the state of the connection. */

import { askForKey, key, keyHeader, learnScopes } from "./auth.js";
import { report } from "./connection.js";
import { language } from "./i18n.js";

/** What the API refused, or why it could not be reached (status 0). */
export class ApiError extends Error {
  /**
   * @param {number} status
   * @param {{message?: string, err_id?: string, action?: string, details?: any, detail?: any}} facts
   */
  constructor(status, facts) {
    super(facts.message ?? `HTTP ${status}`);
    this.status = status;
    this.errId = facts.err_id ?? "";
    this.action = facts.action ?? "";
    this.details = facts.details ?? null;
    this.detail = typeof facts.detail === "string" ? facts.detail : problems(facts.detail);
  }
}

/**
 * @typedef {{method?: string, json?: any, body?: BodyInit, signal?: AbortSignal, accept?: string}} Options
 */

/**
 * Request JSON.
 * @param {string} path
 * @param {Options} [options]
 * @returns {Promise<any>}
 */
export async function ask(path, options = {}) {
  const response = await send(path, options);
  try {
    return await response.json();
  } catch (error) {
    throw unreachable(error);
  }
}

/**
 * Request text.
 * @param {string} path
 * @param {Options} [options]
 */
export async function askText(path, options = {}) {
  const response = await send(path, options);
  try {
    return await response.text();
  } catch (error) {
    throw unreachable(error);
  }
}

/**
 * Send a request; ask the user for a key if it is refused without one. Raises ApiError unless it succeeds.
 * @param {string} path
 * @param {Options} [options]
 * @returns {Promise<Response>}
 */
export async function send(path, options = {}) {
  for (;;) {
    const used = key();
    const response = await once(path, options);
    if (response.ok) return response;
    const error = await refusal(response);
    if (error.errId === "ERR-PYOCO-0107") learnScopes(error.details?.scopes);
    const wantsKey = response.status === 401 || (response.status === 403 && error.errId === "ERR-PYOCO-0015");
    if (!wantsKey || !(await askForKey(used, error))) throw error;
  }
}

/** The headers of every request. @returns {Record<string, string>} */
export function headers() {
  const given = key();
  return { "Accept-Language": language(), ...(given ? { [keyHeader()]: given } : {}) };
}

/**
 * @param {string} path
 * @param {Options} options
 */
async function once(path, { method = "GET", json, body, signal, accept }) {
  const sent = headers();
  if (accept) sent["Accept"] = accept;
  if (json !== undefined) sent["Content-Type"] = "application/json";
  try {
    const response = await fetch(path, {
      method,
      headers: sent,
      body: json !== undefined ? JSON.stringify(json) : body,
      signal,
      cache: "no-store",
      credentials: "omit",
    });
    report(response.status === 503 ? "degraded" : "up");
    return response;
  } catch (error) {
    throw unreachable(error);
  }
}

/**
 * The error of a failed fetch; an aborted one stays as it is.
 * @param {unknown} error
 */
function unreachable(error) {
  if (error instanceof DOMException && error.name === "AbortError") return error;
  report("down");
  return new ApiError(0, { message: error instanceof Error ? error.message : String(error) });
}

/** @param {Response} response */
async function refusal(response) {
  try {
    return errorOf(response.status, await response.json());
  } catch {
    return new ApiError(response.status, {});
  }
}

/**
 * The error in an answer.
 * @param {number} status
 * @param {any} facts
 */
export function errorOf(status, facts) {
  return new ApiError(status, { ...(facts?.error ?? {}), detail: facts?.detail });
}

/** @param {any} detail */
function problems(detail) {
  if (!Array.isArray(detail)) return "";
  return detail.map((one) => `${(one.loc ?? []).join(".")}: ${one.msg ?? ""}`).join("\n");
}

/** @param {unknown} error */
export function isAbort(error) {
  return error instanceof DOMException && error.name === "AbortError";
}
