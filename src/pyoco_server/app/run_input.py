"""What is known of a run from its very first event: everything the platform needs to show it and to queue it."""

import contextlib
from typing import Annotated, Any

import msgspec

from pyoco_server.core import ExecutionState
from pyoco_server.core.wire import JsonObject


class RunInput(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The input of EXECUTION_CREATED: the flow's parameters, and who submitted what to where."""

    flow_name: str
    params: JsonObject = {}
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
        """As EXECUTION_CREATED carries it: ``params`` for the flow, ``run`` for the platform."""
        fields: JsonObject = msgspec.to_builtins(self)
        params = fields.pop("params", {})
        return {"params": params, "run": fields}

    @classmethod
    def of(cls, state: ExecutionState) -> "RunInput":
        """Read it back; an execution created without any of it is a run of the flow its graph is named after.

        Whoever creates an execution may give it any input, so that what looks like ours need not be.
        """
        given: dict[str, Any] = state.input or {}
        params = given.get("params")
        plain = {
            "flow_name": state.graph_id or "",
            "params": params if isinstance(params, dict) else {},
            "submitted_at": state.created_at.timestamp() if state.created_at is not None else 0.0,
        }
        known = given.get("run")
        if isinstance(known, dict):
            with contextlib.suppress(msgspec.ValidationError):
                return msgspec.convert({**plain, **known, "params": plain["params"]}, cls)
        return msgspec.convert(plain, cls)
