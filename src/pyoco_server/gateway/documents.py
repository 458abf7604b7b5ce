"""What answers look like, for the documentation and for those who make clients from it.

Nothing is checked against these on its way out: the tests hold the answers to them. More fields may be added at any
time; clients ignore what they do not know.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from pyoco_server.app.statuses import RunStatus, TaskStatus

Seconds = Annotated[float, Field(description="Unix seconds.", examples=[1_760_000_000.25])]
WorkerState = Literal["RUNNING", "IDLE", "STOPPED_GRACEFUL", "DISCONNECTED"]


class _Open(BaseModel):
    """Has these fields, and perhaps more."""

    model_config = ConfigDict(extra="allow")


class _Core(BaseModel):
    """Of the core, whose names are spelt in camelCase; has these fields, and perhaps more."""

    model_config = ConfigDict(extra="allow", alias_generator=to_camel)


class ErrorFacts(BaseModel):
    """What went wrong, for programs and for people."""

    err_id: Annotated[str | None, Field(examples=["ERR-PYOCO-0005"])]
    msg_id: Annotated[str | None, Field(examples=["MSG-PYOCO-0005"])]
    message: Annotated[str, Field(description="In the language of Accept-Language: ja or en.")]
    action: Annotated[str | None, Field(description="What can be done about it.")]
    details: dict[str, Any]


class ErrorAnswer(BaseModel):
    """Every error has this shape."""

    error: ErrorFacts
    detail: Annotated[Any, Field(description="What exactly: a sentence, or a list of what is wrong with the request.")]


class Healthy(BaseModel):
    """The gateway answers."""

    status: Literal["ok"]


class Readiness(BaseModel):
    """Whether the gateway can work."""

    status: Literal["ready", "unavailable"]
    nats: Literal["connected", "disconnected"]
    index_lag_sec: float | None


class RunAccepted(_Open):
    """A run that is queued; submitted again under the same key, the same answer."""

    run_id: str
    status: RunStatus


class RunSubmitted(RunAccepted):
    """A run that is queued, or has run already where whoever submitted it has waited."""

    snapshot: Annotated[
        dict[str, Any] | None, Field(description="With `wait_sec`: how the run ended, or how it stands by now.")
    ] = None


class YamlRunAccepted(RunAccepted):
    """A run that brought its flow along."""

    workflow_yaml_sha256: str
    workflow_yaml_bytes: int


class RunRefused(ErrorAnswer):
    """A submission among many that came to nothing."""

    run_id: None
    status: None


class BatchAccepted(BaseModel):
    """What became of each submission, in their order."""

    results: list[RunAccepted | RunRefused]


class RunSummary(_Open):
    """A run in a list."""

    run_id: str
    status: RunStatus
    updated_at: Seconds


class RunPage(BaseModel):
    """Some runs, and how to get at those behind them."""

    items: list[RunSummary]
    next_cursor: Annotated[str | None, Field(description="Pass it as `cursor`; null at the end.")]


class Waiting(_Open):
    """A node that waits for somebody to resume it."""

    node_id: str
    task: str
    wait_key: str | None
    prompt: Any
    deadline: Seconds | None


class Held(_Open):
    """What a run is held for: no live worker of its tag has the code of the tasks that are next."""

    needs: Annotated[list[str], Field(description="Names of tasks.")]
    since: Seconds
    seen_by: Annotated[str, Field(description="The worker that found the code missing.")]


class Code(_Open):
    """The code that the run was last driven with: a digest over its flow's graph and the wheels in use."""

    sha256: str
    started_with: Annotated[str | None, Field(description="The first digest, if it was another one.")] = None


class TaskTally(BaseModel):
    """The rounds of a loop, as one task in it ended."""

    ok: int
    failed: int
    cancelled: int = 0
    running: int = 0
    not_started: Annotated[int, Field(description="Rounds that ended, or were not begun, before the task.")]


class RunSnapshot(_Open):
    """How a run stands."""

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
    code: Annotated[Code | None, Field(description="Left out until a worker has started the run.")] = None
    version: int
    wheels: Annotated[
        dict[str, str], Field(description="Wheels it was executed with: file name, start of SHA-256.")
    ] = {}
    unused_params: Annotated[
        dict[str, str | None], Field(description="Parameters nothing takes, each with what may have been meant.")
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
    """How a run stands, and whether its worker lives."""

    worker_alive: bool
    worker_heartbeat_at: Seconds | None
    worker_tags: list[str] | None


class RunTasks(_Open):
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


class CancelResult(_Open):
    """What became of one cancel; an error in its place if it came to nothing."""

    run_id: str
    status: RunStatus | None


class CancelResults(BaseModel):
    """What became of each cancel."""

    results: list[CancelResult]


class LoggedEvent(_Core):
    """A fact in the log."""

    event_id: str
    type: str
    execution_id: str
    occurred_at: str
    payload: dict[str, Any]


Notes = Annotated[
    list[str],
    Field(description="Where the log's graph is inconsistent; left out if it is not, as of every log of ours."),
]


class EventPage(BaseModel):
    """Some events, the version they lead to, and where to go on."""

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


class CommandAnswer(_Core):
    """What a command led to."""

    execution_id: str
    version: int
    events: list[LoggedEvent]


class WorkerDocument(_Open):
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
    """A job that came to nothing."""

    sequence: int
    tag: str
    entry: dict[str, Any]
