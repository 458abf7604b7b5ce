"""The shapes of answers, for the OpenAPI document and for clients that are generated from it.

Answers are not validated against them at run time; the tests do that. More fields may be added at any time; clients
ignore unknown ones.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from pyoco_server.app.snapshots.status import RunStatus, TaskStatus

Seconds = Annotated[float, Field(description="Unix seconds.", examples=[1_760_000_000.25])]
WorkerState = Literal["RUNNING", "IDLE", "STOPPED_GRACEFUL", "DISCONNECTED"]


class _OpenDocument(BaseModel):
    """Has these fields, and perhaps more."""

    model_config = ConfigDict(extra="allow")


class _Core(BaseModel):
    """A document of the core, with names in camelCase; has these fields, and perhaps more."""

    model_config = ConfigDict(extra="allow", alias_generator=to_camel)


class ErrorFacts(BaseModel):
    """What went wrong, for programs and for people."""

    err_id: Annotated[str | None, Field(examples=["ERR-PYOCO-0005"])]
    msg_id: Annotated[str | None, Field(examples=["MSG-PYOCO-0005"])]
    message: Annotated[str, Field(description="In the language of Accept-Language: ja or en.")]
    action: Annotated[str | None, Field(description="How to resolve it.")]
    details: dict[str, Any]


class ErrorAnswer(BaseModel):
    """Every error has this shape."""

    error: ErrorFacts
    detail: Annotated[Any, Field(description="A sentence, or the list of problems of the request.")]


class Healthy(BaseModel):
    """The gateway answers."""

    status: Literal["ok"]


class Readiness(BaseModel):
    """Whether the gateway can work."""

    status: Literal["ready", "unavailable"]
    nats: Literal["connected", "disconnected"]
    index_lag_sec: float | None
    synced_by: Literal["server", "clients", "none", "operator"] | None


class RunAccepted(_OpenDocument):
    """A run that is queued."""

    run_id: str
    status: RunStatus


class RunSubmitted(RunAccepted):
    """A run that is queued, or with `wait_sec` has perhaps ended."""

    snapshot: Annotated[
        dict[str, Any] | None,
        Field(description="With `wait_sec`: the newest snapshot, the last one if the run has ended."),
    ] = None


class YamlRunAccepted(RunAccepted):
    """A run that was submitted with its flow.yaml."""

    workflow_yaml_sha256: str
    workflow_yaml_bytes: int


class RunRefused(ErrorAnswer):
    """A submission among many that was refused."""

    run_id: None
    status: None


class BatchAccepted(BaseModel):
    """The result of each submission, in their order."""

    results: list[RunAccepted | RunRefused]


class RunSummary(_OpenDocument):
    """A run in a list."""

    run_id: str
    status: RunStatus
    updated_at: Seconds


class RunPageDocument(BaseModel):
    """A page of runs, and the cursor of the next one."""

    items: list[RunSummary]
    next_cursor: Annotated[str | None, Field(description="Pass it as `cursor`; null at the end.")]


class Waiting(_OpenDocument):
    """A node that waits to be resumed."""

    node_id: str
    task: str
    wait_key: str | None
    prompt: Any
    deadline: Seconds | None


class Held(_OpenDocument):
    """Why a run is held: no live worker of its tag has the code of its next tasks."""

    needs: Annotated[list[str], Field(description="Names of tasks.")]
    since: Seconds
    seen_by: Annotated[str, Field(description="The worker that found the code missing.")]


class Code(_OpenDocument):
    """The code that the run was last driven with: a digest over its flow's graph and the wheels in use."""

    sha256: str
    started_with: Annotated[str | None, Field(description="The first digest, if it was another one.")] = None


class TaskTally(BaseModel):
    """The rounds of a loop, as one task in it ended."""

    ok: int
    failed: int
    cancelled: int = 0
    running: int = 0
    not_started: Annotated[int, Field(description="Rounds that ended before the task, or did not start.")]


class Redrive(_OpenDocument):
    """Which run another one repeats."""

    of: str
    root: Annotated[str, Field(description="The first run of the line.")]
    try_: Annotated[int, Field(alias="try", description="2 for the first redrive of a run.")]
    from_: Annotated[str | list[str], Field(alias="from")]


class RunSnapshot(_OpenDocument):
    """The snapshot of a run."""

    run_id: str
    flow_name: str
    status: RunStatus
    params: dict[str, Any]
    tasks: dict[str, TaskStatus]
    heartbeat_at: Seconds
    updated_at: Seconds
    tag: str
    tags: list[str]
    submitted_at: Seconds
    worker_id: str | None
    params_kind: Annotated[str, Field(description="`tagged` if `params` have tags for types JSON lacks.")] = "json"
    task_records: Annotated[
        dict[str, Any],
        Field(
            description="With `include=records`. By node: `task`, `state` (also as `status`), `attempt`, `started_at`, "
            "`ended_at`, `duration_ms`, `worker_id`, and if there are any `error`, `output`, `progress`, `message`. "
            "`output_kind` is `tagged`, `pickle` or `lost`; without it the output is plain JSON. `output_repr` is the "
            "text of an output that is not JSON."
        ),
    ] = {}
    task_records_truncated: bool
    start_time: Seconds | None
    end_time: Seconds | None
    error: str | None
    cancel_requested_at: Seconds | None
    cancel_requested_by: Annotated[str | None, Field(description="`api_key:<id>`; null without an API key.")]
    waiting: list[Waiting]
    held: Annotated[Held | None, Field(description="Left out unless the run is held.")] = None
    redrive: Annotated[Redrive | None, Field(description="Which run this one repeats; left out if none.")] = None
    redriven_as: Annotated[
        list[str], Field(description="The runs that repeat this one; left out if there are none.")
    ] = []
    error_code: Annotated[str | None, Field(description="The code of the error; left out unless it failed.")] = None
    code: Annotated[Code | None, Field(description="Left out until a worker has started the run.")] = None
    version: int
    wheels: Annotated[
        dict[str, str], Field(description="Wheels that the run was executed with: file name, start of SHA-256.")
    ] = {}
    stored_bytes: Annotated[int | None, Field(description="The bytes of all results, if they are 64 KiB or more.")] = (
        None
    )
    unused_params: Annotated[
        dict[str, str | None],
        Field(description="Parameters that no task takes, each with the name that may have been meant."),
    ] = {}
    task_tallies: Annotated[
        dict[str, TaskTally],
        Field(
            description="For each task inside a loop, its rounds by outcome; present when a task of a loop has "
            "`fail_policy: isolate`, or when a round has failed."
        ),
    ] = {}
    driven_outside: Annotated[bool, Field(description="Driven through `/executions`, not by a worker.")] = False


class RunWithWorker(RunSnapshot):
    """The snapshot of a run, and whether its worker is alive."""

    worker_alive: bool
    worker_heartbeat_at: Seconds | None
    worker_tags: list[str] | None


class RunTasks(_OpenDocument):
    """The tasks of a run."""

    run_id: str
    flow_name: str
    status: RunStatus
    tasks: dict[str, TaskStatus]
    task_records: dict[str, Any]
    task_tallies: Annotated[
        dict[str, TaskTally], Field(description="As in the run: for each task inside a loop, its rounds by outcome.")
    ] = {}
    task_records_truncated: bool


class PlannedNode(BaseModel):
    """What becomes of one node, and why."""

    node: str
    why: str


class RedrivePlanDocument(BaseModel):
    """What a new run keeps of the old one, what it runs if everything succeeds, and what it drops."""

    keep: list[PlannedNode]
    run: list[PlannedNode]
    drop: list[PlannedNode]


class RunRedriven(RunAccepted):
    """The new run, and what it does."""

    redrive: Redrive
    plan: RedrivePlanDocument


class RedrivePlanned(BaseModel):
    """With `dry_run`: what a redrive would do."""

    plan: RedrivePlanDocument


class RedriveResult(_OpenDocument):
    """What became of one run among many; with `error` if it was not redriven."""

    of: Annotated[str, Field(description="The old run.")]
    run_id: Annotated[str | None, Field(description="The new run; null with `dry_run`, or if it was not redriven.")]
    status: RunStatus | None


class RedriveResults(BaseModel):
    """The result for each run, and where the next request continues."""

    results: list[RedriveResult]
    next_cursor: Annotated[str | None, Field(description="Send it as `cursor` with the same request; null at the end.")]


class CancelResult(_OpenDocument):
    """The result of one cancel; with `error` if it was refused."""

    run_id: str
    status: RunStatus | None


class CancelResults(BaseModel):
    """The result of each cancel."""

    results: list[CancelResult]


class LoggedEvent(_Core):
    """An event in the log."""

    event_id: str
    type: str
    execution_id: str
    occurred_at: str
    payload: dict[str, Any]


Notes = Annotated[
    list[str],
    Field(description="Where the log is inconsistent; left out if it is not."),
]


class EventPageDocument(BaseModel):
    """A page of events, the version after them, and where the next page begins."""

    events: list[LoggedEvent]
    version: int
    next_after: int | None
    notes: Notes = []


class GraphDocument(_Core):
    """Nodes and edges."""

    graph_id: str
    nodes: list[dict[str, Any]]
    edges: list[dict[str, Any]]
    notes: Notes = []


class StateDocument(_Core):
    """The state of an execution."""

    execution_id: str
    version: int
    notes: Notes = []


class CommandAnswer(_Core):
    """What a command led to."""

    execution_id: str
    version: int
    events: list[LoggedEvent]


class WorkerDocument(_OpenDocument):
    """A worker in the registry."""

    worker_id: str
    instance_id: str | None
    state: WorkerState
    hidden: bool
    last_seen_at: Seconds | None
    last_heartbeat_at: Seconds | None
    tags: list[str]
    current_run_id: str | None
    last_run_id: str | None
    last_run_status: str | None
    stopped_at: Seconds | None
    stop_reason: str | None


class WorkerPatched(BaseModel):
    """A worker that was hidden or shown."""

    worker_id: str
    hidden: bool
    updated_at: Seconds


class DeadLetterDocument(BaseModel):
    """A job that could not be executed."""

    sequence: int
    tag: str
    entry: dict[str, Any]
