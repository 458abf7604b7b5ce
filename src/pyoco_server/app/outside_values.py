"""What callers from outside may put into the log as a value: plain JSON, and the tags of built-in types.

Workers import what a class tag names, load pickles and read stored objects. None of these may come from an HTTP caller;
a command that brings one is refused before it reaches the log.
"""

from typing import Any

from pyoco_server.app.outputs import STORED, VALUE
from pyoco_server.core.wire import JsonObject
from pyoco_server.errors import InvalidInputError
from pyoco_server.values.codec import KIND, OutputKind, from_tagged, received
from pyoco_server.values.errors import ValueCodecError


def check_command(fields: JsonObject) -> None:
    """Refuse a command whose output, decision, input or parameters a worker must not read; InvalidInputError.

    ``fields`` is the command as it came in: its other fields are not looked at, and may still be wrong.
    """
    match fields.get("type"):
        case "SucceedNode":
            _check_output("output", fields.get("output"))
        case "ResumeNode":
            received("input", fields)
        case "ReportNodeProgress":
            metrics = fields.get("metrics")
            if isinstance(metrics, dict) and isinstance(metrics.get("decision"), dict):
                raise InvalidInputError("metrics.decision: this name is used by the platform; choose another")
        case "CreateExecution":
            given = fields.get("input")
            if isinstance(given, dict) and "params_kind" in given:
                check_params(given)
        case _:  # no other command brings a value
            return


def check_params(fields: JsonObject) -> JsonObject:
    """Return ``params_kind`` of a submission as the log keeps it; InvalidInputError if the params are not accepted."""
    value = received("params", fields)
    if value is not None and not (isinstance(value, dict) and all(isinstance(name, str) for name in value)):
        raise InvalidInputError("params: an object was expected, whose keys are text")
    is_tagged = fields.get("params_kind") == OutputKind.TAGGED.value
    return {"params_kind": OutputKind.TAGGED.value} if is_tagged else {}


def _check_output(name: str, output: Any) -> None:  # noqa: ANN401 any JSON
    if not isinstance(output, dict):
        return
    if isinstance(output.get(STORED), dict) and VALUE not in output:
        raise InvalidInputError(f"{name}.{STORED}: only workers refer to stored outputs; give the '{VALUE}' itself")
    kind = output.get(KIND, OutputKind.JSON.value)
    if kind not in (OutputKind.JSON.value, OutputKind.TAGGED.value):
        raise InvalidInputError(f"{name}.{KIND}: {kind!r:.40} is not accepted; use 'json' or 'tagged', or leave it out")
    if kind == OutputKind.TAGGED.value:
        if VALUE not in output:
            raise InvalidInputError(f"{name}.{VALUE}: a tagged output needs one")
        try:
            from_tagged(output[VALUE], classes=False)
        except ValueCodecError as error:
            raise InvalidInputError(f"{name}.{VALUE}{error.at[1:]}: {error.problem}") from error
