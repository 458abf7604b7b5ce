"""What is known of a run from its very first event: everything the platform needs to show it and to queue it."""

import contextlib
from typing import Annotated, Any, Final

import msgspec

from pyoco_server.core import Event, ExecutionState, fold
from pyoco_server.core.wire import JsonObject

PLATFORM: Final = "platform"
"""Under this name EXECUTION_CREATED keeps what the platform adds, if the input is somebody else's."""


class RunInput(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What EXECUTION_CREATED says: the flow's parameters, and who submitted what to where."""

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
    """The flow itself, if it was submitted with the run: the log must do for whoever goes on with it."""
    workflow_yaml_sha256: str | None = None
    workflow_yaml_bytes: Annotated[int, msgspec.Meta(ge=0)] | None = None

    def to_json(self) -> JsonObject:
        """As the input of a run of ours: ``params`` for the flow, ``run`` for the platform."""
        fields: JsonObject = msgspec.to_builtins(self)
        given = {"params": fields.pop("params", {})}
        if "params_kind" in fields:
            given["params_kind"] = fields.pop("params_kind")
        return {**given, "run": fields}

    @classmethod
    def of(cls, state: ExecutionState, platform: object = None) -> "RunInput":
        """Read it back; an execution created without any of it is a run of the flow its graph is named after.

        Whoever creates an execution may give it any input, so that what looks like ours need not be. What the platform
        said beside it counts, where it said something.
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
        """What a snapshot tells of it, whoever wrote that: what is not as it should be is left out."""
        told: JsonObject = {}
        for field in msgspec.structs.fields(cls):
            with contextlib.suppress(msgspec.ValidationError):
                if field.name in snapshot:
                    told[field.name] = msgspec.convert(snapshot[field.name], field.type)
        return cls(**{**told, "flow_name": told.get("flow_name") or "unknown"})

    @classmethod
    def of_creation(cls, created: Event) -> "RunInput":
        """The same from the first event of a log."""
        return cls.of(fold([created]), created.payload.extra.get(PLATFORM))
