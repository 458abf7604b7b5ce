"""The job: what travels in the queue. The log is the truth; a job only says that a run wants a worker."""

from typing import Annotated, Any, ClassVar, Literal

import msgspec

from pyoco_server.app.outside_values import check_params
from pyoco_server.app.run_input import RunInput
from pyoco_server.core import DecodeError, Event, decode_event, event_to_dict
from pyoco_server.core.payloads import ExecutionCreated
from pyoco_server.core.wire import JsonObject
from pyoco_server.errors import InvalidInputError, PyocoServerError
from pyoco_server.identifiers import RUN_ID

Token = Annotated[str, msgspec.Meta(pattern=rf"^{RUN_ID.pattern}\Z", max_length=RUN_ID.longest)]


class InvalidJobError(PyocoServerError):
    """A message in the queue is not a job; ``run_id`` is there if that much could be read."""

    err_id: ClassVar[str | None] = "ERR-PYOCO-0012"
    msg_id: ClassVar[str | None] = "MSG-PYOCO-0012"

    def __init__(self, problem: str, fields: JsonObject) -> None:
        super().__init__(f"not a job: {problem}")
        self.fields = fields
        run_id = fields.get("run_id")
        self.run_id = run_id if RUN_ID.fits(run_id) else None


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
    """Where the log of the run ended when the job was queued; without it the job is somebody else's."""
    created: JsonObject | None = None
    """EXECUTION_CREATED without what the job has anyway, so that a new run need not be read."""
    snapshot_revision: Annotated[int, msgspec.Meta(ge=1)] | None = None
    """Where a new run's first snapshot is: whoever goes on from there need not look for it."""
    wake: bool = False
    """The run was put aside and has something to do again."""
    rescue: bool = False
    """Nobody seems to take care of the run."""
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
        """The run's first input as the job tells it."""
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
        """The EXECUTION_CREATED the log begins with, if the job tells it."""
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

    def _refusal(self, problem: str) -> InvalidJobError:
        return InvalidJobError(problem, {"run_id": self.run_id, "flow_name": self.flow_name})


def new_job(run_id: str, given: RunInput, *, created: Event, position: int, revision: int | None = None) -> Job:
    """The job of a run that has just been created."""
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
    """The job as JSON."""
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
