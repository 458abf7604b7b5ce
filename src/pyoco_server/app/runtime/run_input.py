"""The input of a run, as its first event has it: all that the platform needs to show the run and to queue it."""

import contextlib
from datetime import datetime
from typing import Annotated, Any, Final

import msgspec

from pyoco_server.app.ports import NewId
from pyoco_server.core import Actor, Event, ExecutionState, fold, handle, initial_state
from pyoco_server.core.commands import CreateExecution
from pyoco_server.core.json_codec import JsonObject

PLATFORM: Final = "platform"
"""The field of EXECUTION_CREATED for what the platform adds, if the input is of another client's form."""


class RunInput(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The flow's parameters, and who submitted what to where."""

    flow_name: str
    params: JsonObject = {}
    params_kind: str = "json"
    """How the parameters are written: as plain or as tagged JSON; see ``values.codec``."""
    tag: str = "default"
    tags: tuple[str, ...] = ()
    submitted_at: float = 0.0
    tenant_id: str | None = None
    api_key_id: str | None = None
    workflow_yaml: str | None = None
    """The flow itself, if it was submitted with the run: a worker that resumes the run has nothing but the log."""
    workflow_yaml_sha256: str | None = None
    workflow_yaml_bytes: Annotated[int, msgspec.Meta(ge=0)] | None = None

    def to_json(self) -> JsonObject:
        """Return the input that EXECUTION_CREATED has: ``params`` for the flow, ``run`` for the platform."""
        fields: JsonObject = msgspec.to_builtins(self)
        given = {"params": fields.pop("params", {})}
        if "params_kind" in fields:
            given["params_kind"] = fields.pop("params_kind")
        return {**given, "run": fields}

    @classmethod
    def of(cls, state: ExecutionState, platform: object = None) -> "RunInput":
        """Read it back; an execution created without any of it is a run of the flow its graph is named after.

        A client may create an execution with any input, so what looks like ours need not be. What the platform
        recorded beside the input counts, where it recorded something.
        """
        given: dict[str, Any] = state.input or {}
        params = given.get("params")
        kind = given.get("params_kind")
        plain = {
            "flow_name": state.graph_id or "",
            "params": params if isinstance(params, dict) else {},
            "params_kind": kind if isinstance(kind, str) else "json",
            "submitted_at": state.created_at.timestamp() if state.created_at is not None else 0.0,
        }
        known = given.get("run") if platform is None else platform
        if isinstance(known, dict):
            with contextlib.suppress(msgspec.ValidationError):
                return msgspec.convert(
                    {**plain, **known, "params": plain["params"], "params_kind": plain["params_kind"]}, cls
                )
        return msgspec.convert(plain, cls)

    @classmethod
    def of_snapshot(cls, snapshot: JsonObject) -> "RunInput":
        """Read it from a snapshot that any program may have written; fields of another form are left out."""
        fields: JsonObject = {}
        for field in msgspec.structs.fields(cls):
            with contextlib.suppress(msgspec.ValidationError):
                if field.name in snapshot:
                    fields[field.name] = msgspec.convert(snapshot[field.name], field.type)
        return cls(**{**fields, "flow_name": fields.get("flow_name") or "unknown"})

    @classmethod
    def of_creation(cls, created: Event) -> "RunInput":
        """The same from the first event of a log."""
        return cls.of(fold([created]), created.payload.extra.get(PLATFORM))

    def creation_event(
        self, run_id: str, actor: Actor, *, now: datetime, new_id: NewId, correlation_id: str | None = None
    ) -> Event:
        """Return EXECUTION_CREATED for a run with this input: the first event of its log."""
        create = CreateExecution(
            execution_id=run_id,
            actor=actor,
            correlation_id=correlation_id,
            graph_id=self.flow_name,
            input=self.to_json(),
        )
        [created] = handle(initial_state(run_id), create, now=now, new_id=new_id, graph_ids={self.flow_name})
        return created
