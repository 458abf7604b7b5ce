/**
 * Folds events into the state of a run, at any version. The rules are those of the server's reducer: the stronger status
 * wins, and after a cancel request nothing moves forward. A test holds the two together, version by version.
 */

/** @type {Record<NodeStatus, number>} */
const RANK = { IDLE: 1, READY: 2, RUNNING: 3, WAITING: 4, SUCCEEDED: 5, FAILED: 6, CANCELED: 7 };
const ENDED = new Set(["SUCCEEDED", "FAILED", "CANCELED"]);
/** @type {Record<string, NodeStatus>} */
const PROPOSED = {
  NODE_READY: "READY",
  NODE_STARTED: "RUNNING",
  NODE_WAITING: "WAITING",
  NODE_SUCCEEDED: "SUCCEEDED",
  NODE_FAILED: "FAILED",
  NODE_CANCELED: "CANCELED",
};
const IGNORED_AFTER_CANCEL = new Set([
  "NODE_READY",
  "NODE_STARTED",
  "NODE_PROGRESS_REPORTED",
  "NODE_WAITING",
  "NODE_RESUME_REQUESTED",
  "NODE_RESUMED",
  "EXECUTION_COMPLETED",
  "EXECUTION_FAILED",
]);

/**
 * The state after these events.
 * @param {RunEvent[]} events
 * @param {number} [count] how many of them; all if it is not said
 * @returns {Folded}
 */
export function fold(events, count = events.length) {
  const state = empty();
  for (let index = 0; index < count; index += 1) step(state, /** @type {RunEvent} */ (events[index]));
  return state;
}

/** @returns {Folded} */
export function empty() {
  return {
    status: "PENDING",
    version: 0,
    nodes: new Map(),
    createdAt: null,
    startedAt: null,
    endedAt: null,
    cancelRequestedAt: null,
    input: null,
    failure: null,
    now: 0,
  };
}

/**
 * Apply one more event.
 * @param {Folded} state
 * @param {RunEvent} event
 */
export function step(state, event) {
  const at = Date.parse(event.occurredAt) / 1000;
  state.version = event.version;
  state.now = at;
  if (state.cancelRequestedAt !== null && IGNORED_AFTER_CANCEL.has(event.type)) return;
  if (event.type.startsWith("EXECUTION_")) executionStep(state, event, at);
  else if (event.type === "NODE_CREATED") createNode(state, event, at);
  else if (event.type.startsWith("NODE_")) nodeStep(state, event, at);
}

/**
 * @param {Folded} state
 * @param {RunEvent} event
 * @param {number} at
 */
function executionStep(state, event, at) {
  switch (event.type) {
    case "EXECUTION_CREATED":
      state.createdAt ??= at;
      state.input ??= event.payload["input"] ?? null;
      break;
    case "EXECUTION_STARTED":
      state.startedAt ??= at;
      if (state.status === "PENDING") state.status = "RUNNING";
      break;
    case "EXECUTION_COMPLETED":
      if (!hasEnded(state.status)) end(state, "COMPLETED", at);
      break;
    case "EXECUTION_FAILED":
      state.failure ??= event.payload;
      if (state.status !== "CANCELLED") end(state, "FAILED", at);
      break;
    case "EXECUTION_CANCEL_REQUESTED":
      state.cancelRequestedAt ??= at;
      if (!hasEnded(state.status)) state.status = "CANCELLING";
      break;
    case "EXECUTION_CANCELED":
      end(state, "CANCELLED", at);
      for (const node of state.nodes.values()) if (!ENDED.has(node.status)) finish(node, "CANCELED", at);
      break;
  }
}

/**
 * Whether a run with this status has ended.
 * @param {string} status
 */
export const hasEnded = (status) => status === "COMPLETED" || status === "FAILED" || status === "CANCELLED";

/**
 * @param {Folded} state
 * @param {RunStatus} status
 * @param {number} at
 */
function end(state, status, at) {
  state.status = status;
  state.endedAt ??= at;
}

/**
 * @param {Folded} state
 * @param {RunEvent} event
 * @param {number} at
 */
function createNode(state, event, at) {
  const id = String(event.payload["nodeId"]);
  if (state.nodes.has(id)) return;
  const meta = event.payload["meta"] ?? {};
  const own = meta.node ?? {};
  state.nodes.set(id, {
    id,
    type: String(event.payload["nodeType"]),
    label: typeof own.task === "string" ? own.task : (id.split("/").at(-1) ?? id),
    status: state.status === "CANCELLED" ? "CANCELED" : "IDLE",
    attempt: 0,
    workerId: null,
    waitKey: null,
    prompt: null,
    output: undefined,
    error: null,
    failures: [],
    progress: null,
    message: null,
    skip: null,
    meta: own,
    inputs: typeof meta.inputs === "number" ? meta.inputs : null,
    edges: Array.isArray(meta.edges) ? meta.edges : [],
    createdAt: at,
    startedAt: null,
    endedAt: null,
    spans: [],
  });
}

/**
 * @param {Folded} state
 * @param {RunEvent} event
 * @param {number} at
 */
function nodeStep(state, event, at) {
  const { payload, type } = event;
  const node = state.nodes.get(payload["nodeId"]);
  if (!node || (payload["attempt"] ?? Infinity) < node.attempt) return;
  if (type === "NODE_READY" && hasEnded(state.status)) return;
  switch (type) {
    case "NODE_READY":
      if (RANK[node.status] < RANK.READY) begin(node, "queued", at);
      break;
    case "NODE_STARTED":
      startAttempt(node, payload, at);
      break;
    case "NODE_PROGRESS_REPORTED":
      node.progress = payload["progress"] ?? node.progress;
      node.message = payload["message"] ?? node.message;
      break;
    case "NODE_WAITING":
      node.waitKey = payload["waitKey"] ?? node.waitKey;
      node.prompt = payload["prompt"] ?? node.prompt;
      if (RANK[node.status] < RANK.WAITING) begin(node, "waiting", at);
      break;
    case "NODE_RESUMED":
      if (node.status === "WAITING") {
        node.status = "RUNNING";
        begin(node, "attempt", at);
      }
      break;
    case "NODE_SUCCEEDED":
      node.output = payload["output"] ?? node.output;
      break;
    case "NODE_FAIL_REPORTED":
      node.error = payload["error"] ?? node.error;
      node.failures.push({ attempt: payload["attempt"] ?? node.attempt, at, error: node.error });
      if (!ENDED.has(node.status)) {
        close(node, at, "failed");
        begin(node, "backoff", at);
      }
      break;
    case "NODE_FAILED":
      node.error = payload["error"] ?? node.error;
      break;
    case "NODE_CANCELED":
      node.skip = payload["skip"] ?? node.skip;
      break;
  }
  const proposed = PROPOSED[type];
  if (!proposed || RANK[proposed] <= RANK[node.status]) return;
  if (ENDED.has(proposed)) finish(node, proposed, at);
  else node.status = proposed;
}

/**
 * @param {FoldedNode} node
 * @param {Record<string, any>} payload
 * @param {number} at
 */
function startAttempt(node, payload, at) {
  if (payload["attempt"] > node.attempt) [node.progress, node.message] = [null, null];
  node.attempt = payload["attempt"];
  node.workerId = payload["workerId"] ?? node.workerId;
  if (ENDED.has(node.status)) return;
  node.startedAt ??= at;
  begin(node, "attempt", at);
}

/**
 * @param {FoldedNode} node
 * @param {NodeStatus} status
 * @param {number} at
 */
function finish(node, status, at) {
  node.status = status;
  node.endedAt = at;
  if (node.spans.at(-1)?.kind === "backoff" && node.spans.at(-1)?.from === at) node.spans.pop();
  close(node, at, status === "SUCCEEDED" ? "ok" : status === "FAILED" ? "failed" : "canceled");
}

/**
 * @param {FoldedNode} node
 * @param {Span["kind"]} kind
 * @param {number} at
 */
function begin(node, kind, at) {
  close(node, at, "ok");
  node.spans.push({ kind, from: at, to: null, attempt: node.attempt, outcome: "" });
}

/**
 * @param {FoldedNode} node
 * @param {number} at
 * @param {Span["outcome"]} outcome
 */
function close(node, at, outcome) {
  const last = node.spans.at(-1);
  if (!last || last.to !== null) return;
  last.to = at;
  last.outcome = outcome;
}
