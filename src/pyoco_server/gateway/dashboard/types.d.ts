// The answers of the API, as far as the dashboard uses them, and the types that its modules share.

type Json = unknown;
type RunStatus = "PENDING" | "RUNNING" | "COMPLETED" | "FAILED" | "CANCELLING" | "CANCELLED";
type NodeStatus = "IDLE" | "READY" | "RUNNING" | "WAITING" | "SUCCEEDED" | "FAILED" | "CANCELED";
type WorkerState = "RUNNING" | "IDLE" | "STOPPED_GRACEFUL" | "DISCONNECTED";

interface Waiting {
  node_id: string;
  task: string;
  wait_key: string | null;
  prompt: Record<string, Json> | null;
  deadline: string | null;
}

interface Run {
  run_id: string;
  flow_name: string;
  status: RunStatus;
  params?: Record<string, Json>;
  tasks: Record<string, string>;
  updated_at: number;
  heartbeat_at: number;
  submitted_at: number;
  start_time: number | null;
  end_time: number | null;
  tag: string;
  tags: string[];
  worker_id: string | null;
  error: string | null;
  cancel_requested_at: number | null;
  cancel_requested_by: string | null;
  cancel_reason: string | null;
  waiting?: Waiting[];
  archived_at: number | null;
  version: number;
  worker_alive?: boolean;
  worker_heartbeat_at?: number | null;
  tenant_id?: string;
  api_key_id?: string;
  workflow_yaml_sha256?: string;
  wheels?: Record<string, string>;
  unused_params?: Record<string, string | null>;
  held?: { needs: string[]; since: number; seen_by: string };
  code?: { sha256: string; started_with?: string };
  task_tallies?: Record<string, TaskTally>;
}

interface TaskTally {
  ok: number;
  failed: number;
  cancelled?: number;
  running?: number;
  not_started: number;
}

interface RunPage {
  items: Run[];
  next_cursor: string | null;
}

interface RunEvent {
  eventId: string;
  type: string;
  occurredAt: string;
  actor: { kind: string; id?: string };
  causationId?: string;
  correlationId?: string;
  payload: Record<string, any>;
  version: number;
}

interface EventsPage {
  events: RunEvent[];
  version: number;
  next_after: number | null;
  notes?: string[];
}

interface Worker {
  worker_id: string;
  instance_id: string;
  state: WorkerState;
  hidden: boolean;
  last_seen_at: number;
  last_heartbeat_at: number;
  tags: string[];
  current_run_id: string | null;
  current_run_ids?: string[];
  last_run_id: string | null;
  last_run_status: RunStatus | null;
  last_run_finished_at?: number | null;
  stopped_at: number | null;
  stop_reason: string | null;
  wheel_sync?: Record<string, any>;
}

interface Wheel {
  name: string;
  size_bytes: number;
  modified: number;
  sha256_hex: string | null;
  tags: string[];
}

interface WheelEvent {
  event_id: string;
  occurred_at: number;
  action: "upload" | "delete";
  wheel_name: string;
  tags: string[];
  size_bytes: number | null;
  actor?: { tenant_id?: string | null; api_key_id?: string | null };
  source?: Record<string, string | null>;
}

interface DeadLetter {
  sequence: number;
  tag: string;
  entry: {
    timestamp: number;
    reason: string;
    error: string | null;
    run_id?: string;
    flow_name?: string;
    worker_id?: string;
    num_delivered?: number;
    subject?: string;
  };
}

interface Sample {
  name: string;
  labels: Record<string, string>;
  value: number;
}

interface Histogram {
  bounds: number[];
  counts: number[];
}

interface Reading {
  at: number;
  samples: Sample[];
  histograms: Record<string, Histogram>;
}

interface Span {
  kind: "queued" | "attempt" | "waiting" | "backoff";
  from: number;
  to: number | null;
  attempt: number;
  outcome: "" | "ok" | "failed" | "canceled";
}

interface FoldedNode {
  id: string;
  type: string;
  label: string;
  status: NodeStatus;
  attempt: number;
  workerId: string | null;
  waitKey: string | null;
  prompt: Record<string, any> | null;
  output: any;
  error: Record<string, any> | null;
  failures: { attempt: number; at: number; error: Record<string, any> | null }[];
  progress: number | null;
  message: string | null;
  skip: { by: string; countsAs: string } | null;
  meta: Record<string, any>;
  inputs: number | null;
  edges: { to: string; on?: string }[];
  createdAt: number;
  startedAt: number | null;
  endedAt: number | null;
  spans: Span[];
}

interface Folded {
  status: RunStatus;
  version: number;
  nodes: Map<string, FoldedNode>;
  createdAt: number | null;
  startedAt: number | null;
  endedAt: number | null;
  cancelRequestedAt: number | null;
  input: Record<string, any> | null;
  failure: Record<string, any> | null;
  now: number;
}

interface Route {
  view: string;
  id: string | null;
  query: URLSearchParams;
}

interface View {
  update?(route: Route): void;
}

interface Placed {
  node: FoldedNode;
  x: number;
  y: number;
  width: number;
  height: number;
  kind: "box" | "dot" | "block";
  depth: number;
}

interface Wire {
  from: string;
  to: string;
  on: string;
  points: [number, number][];
}

interface Layout {
  width: number;
  height: number;
  nodes: Map<string, Placed>;
  wires: Wire[];
  frames: { x: number; y: number; width: number; height: number }[];
  rounds: { x: number; y: number; text: string }[];
}
