"""Jobs: what travels in the queue, and how it is queued.

The log is the truth; a job only says that a run wants a worker. A job that gets lost therefore costs only time: the
reconciler finds the run. So that no run waits for that, a wake-up that the queue did not confirm is queued again in the
background, under an id by which the queue recognises it.
"""

import asyncio
import logging
from datetime import timedelta
from typing import Annotated, Any, ClassVar, Final, Literal

import msgspec

from pyoco_server.app.ports import Clock, TooLargeError, UnavailableError, WorkQueue
from pyoco_server.app.runtime.run_input import RunInput
from pyoco_server.core import DecodeError, Event, decode_event, event_to_dict
from pyoco_server.core.json_codec import JsonObject
from pyoco_server.core.payloads import ExecutionCreated
from pyoco_server.errors import InvalidInputError, PyocoServerError
from pyoco_server.identifiers import RUN_ID
from pyoco_server.values.codec import OutputKind, received

_log = logging.getLogger(__name__)

MOST: Final = 1_000
"""How many wake-ups are queued again at the same time at most. Any other is tried once, then left to the reconciler."""
PATIENCE: Final = timedelta(seconds=100)
"""By then the reconciler finds the run, and the queue may soon forget that it had the same job before."""
_FIRST_PAUSE_SEC: Final = 0.1
_LONGEST_PAUSE_SEC: Final = 5.0

Token = Annotated[str, msgspec.Meta(pattern=rf"^{RUN_ID.pattern}\Z", max_length=RUN_ID.longest)]


class InvalidJobError(PyocoServerError):
    """A message in the queue is not a job; ``run_id`` is set if that much could be read."""

    err_id: ClassVar[str | None] = "ERR-PYOCO-0012"
    msg_id: ClassVar[str | None] = "MSG-PYOCO-0012"

    def __init__(self, problem: str, fields: JsonObject) -> None:
        super().__init__(f"not a job: {problem}")
        self.fields = fields
        run_id, flow_name = fields.get("run_id"), fields.get("flow_name")
        self.run_id = run_id if RUN_ID.fits(run_id) else None
        self.flow_name = flow_name if isinstance(flow_name, str) else None


class Job(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The specification's fields, then ours."""

    run_id: Token
    flow_name: Annotated[str, msgspec.Meta(min_length=1)]
    tag: Token
    submitted_at: float
    tags: tuple[str, ...] | None = None
    params: JsonObject | None = None
    params_kind: Literal["json", "tagged"] = "json"

    log_position: Annotated[int, msgspec.Meta(ge=1)] | None = None
    """Where the run's log ended when the job was queued; a job without it comes from another program."""
    created: JsonObject | None = None
    """EXECUTION_CREATED without what the job has anyway, so that a worker need not read a new run."""
    snapshot_revision: Annotated[int, msgspec.Meta(ge=1)] | None = None
    """The revision of a new run's first snapshot, so that a worker need not read it."""
    wake: bool = False
    """The run was parked and can continue."""
    rescue: bool = False
    """No worker seems to own the run."""
    held_since: float | None = None
    """The run was held since then, and its code may be available now."""
    declined_by: tuple[str, ...] = ()
    """Instances of workers that returned the job because they lack its code."""
    handed_over: Annotated[int, msgspec.Meta(ge=0)] = 0
    """How many times the job was replaced for that reason."""
    workflow_yaml: str | None = None
    workflow_yaml_sha256: str | None = None
    tenant_id: str | None = None
    api_key_id: str | None = None

    def input(self) -> RunInput:
        """Return the run's input as the job has it."""
        return RunInput(
            flow_name=self.flow_name,
            params=self.params or {},
            params_kind=self.params_kind,
            tag=self.tag,
            tags=self.tags if self.tags is not None else (self.tag,),
            submitted_at=self.submitted_at,
            tenant_id=self.tenant_id,
            api_key_id=self.api_key_id,
            workflow_yaml=self.workflow_yaml,
            workflow_yaml_sha256=self.workflow_yaml_sha256,
            workflow_yaml_bytes=len(self.workflow_yaml.encode()) if self.workflow_yaml is not None else None,
        )

    def creation(self) -> Event | None:
        """Return the EXECUTION_CREATED that the log begins with, if the job has it."""
        if self.created is None:
            return None
        payload = {"graphId": self.flow_name, "input": self.input().to_json()}
        try:
            # By way of JSON: that is several times quicker than looking at every value of a mapping.
            created = decode_event(msgspec.json.encode({**self.created, "payload": payload}))
        except (DecodeError, RecursionError, OverflowError) as error:
            raise self._refusal(f"created: {error}") from error
        if not isinstance(created.payload, ExecutionCreated) or created.execution_id != self.run_id:
            raise self._refusal("created: it must be the EXECUTION_CREATED of this run")
        return created

    def dedup_id(self) -> str:
        """Return the id by which the queue recognises the same job: the run, where its log ended, and the reason."""
        held = "" if self.held_since is None else f":held:{self.held_since}"
        return f"{self.run_id}:{self.log_position}{':rescue' if self.rescue else ''}{held}"

    def _refusal(self, problem: str) -> InvalidJobError:
        return InvalidJobError(problem, {"run_id": self.run_id, "flow_name": self.flow_name})


def new_job(run_id: str, given: RunInput, *, created: Event, position: int, revision: int | None = None) -> Job:
    """Return the job of a run that has just been created."""
    envelope = event_to_dict(created)
    del envelope["payload"]
    return Job(
        run_id=run_id,
        flow_name=given.flow_name,
        tag=given.tag,
        tags=given.tags,
        params=given.params,
        params_kind="tagged" if given.params_kind == "tagged" else "json",
        submitted_at=given.submitted_at,
        log_position=position,
        created=envelope,
        snapshot_revision=revision,
        workflow_yaml=given.workflow_yaml,
        workflow_yaml_sha256=given.workflow_yaml_sha256,
        tenant_id=given.tenant_id,
        api_key_id=given.api_key_id,
    )


def encode_job(job: Job) -> bytes:
    """Return the job as JSON."""
    return msgspec.json.encode(job)


def decode_job(body: bytes) -> Job:
    """Read a job; InvalidJobError names what is wrong with it."""
    try:
        fields: Any = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidJobError(str(error), {}) from error
    if not isinstance(fields, dict):
        raise InvalidJobError("a JSON object was expected", {})
    try:
        job = msgspec.convert(fields, Job)
        if job.params_kind != "json":
            check_params(fields)
    except InvalidInputError as error:
        raise InvalidJobError(str(error), fields) from error
    except (msgspec.ValidationError, RecursionError) as error:
        raise InvalidJobError(str(error), fields) from error
    return job


def check_params(fields: JsonObject) -> JsonObject:
    """Return ``params_kind`` of a submission or job as the log keeps it; InvalidInputError if its params are refused.

    Parameters from outside may be plain JSON or tags of built-in types. Workers import what a class tag names, load
    pickles and read stored objects; none of these is accepted.
    """
    value = received("params", fields)
    if value is not None and not (isinstance(value, dict) and all(isinstance(name, str) for name in value)):
        raise InvalidInputError("params: an object was expected, whose keys are text")
    is_tagged = fields.get("params_kind") == OutputKind.TAGGED.value
    return {"params_kind": OutputKind.TAGGED.value} if is_tagged else {}


async def queue_job(queue: WorkQueue, job: Job) -> None:
    """Queue a job; UnavailableError if it is unknown whether the queue has it."""
    await queue.publish(job.tag, encode_job(job), dedup_id=job.dedup_id())


class WakeUpQueue:
    """Queues wake-ups; one that the queue did not confirm is queued again in the background."""

    def __init__(self, queue: WorkQueue, clock: Clock) -> None:
        self._queue = queue
        self._clock = clock
        self._retrying: set[asyncio.Task[None]] = set()

    async def send(self, job: Job) -> None:
        """Queue a wake-up; UnavailableError if the queue did not confirm it, then it is tried again in the background.

        Cancelling this cancels only the first attempt.
        """
        try:
            await self.send_once(job)
        except (UnavailableError, asyncio.CancelledError):
            self._try_again(job)
            raise

    async def send_once(self, job: Job) -> None:
        """Queue a job; UnavailableError if it is unknown whether the queue has it. The caller tries again."""
        await queue_job(self._queue, job)

    def _try_again(self, job: Job) -> None:
        if len(self._retrying) < MOST:
            sending = asyncio.create_task(self._until_stored(job), name=f"{job.run_id} woken")
            self._retrying.add(sending)
            sending.add_done_callback(self._retrying.discard)

    async def _until_stored(self, job: Job) -> None:
        until, pause_sec = self._clock.now() + PATIENCE, _FIRST_PAUSE_SEC
        while self._clock.now() < until:
            await self._clock.sleep(pause_sec)
            pause_sec = min(2 * pause_sec, _LONGEST_PAUSE_SEC)
            try:
                await self.send_once(job)
            except UnavailableError:
                continue
            except TooLargeError:
                break  # it would be refused again; the reconciler reports the run
            return
        extra = {"action": "wake_left_to_sweep", "run_id": job.run_id}
        _log.warning("the wake-up job of a resumed run was not queued; the reconciler will queue it", extra=extra)
