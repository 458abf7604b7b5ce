"""The twelve commands as routes: the path of each, and the fields of its body."""

from typing import Any, Final, NamedTuple

from pyoco_server.core import ActorKind
from pyoco_server.identifiers import RUN_ID

Schema = dict[str, Any]

_TEXT: Final[Schema] = {"type": ["string", "null"]}
_OBJECT: Final[Schema] = {"type": ["object", "null"]}
_ATTEMPT: Final[Schema] = {"type": ["integer", "null"], "minimum": 1, "maximum": 2**53}
_PARTY: Final[Schema] = {
    "type": ["object", "null"],
    "properties": {"kind": {"type": "string"}, "id": _TEXT},
    "required": ["kind"],
}
_ACTOR: Final[Schema] = {
    "type": ["object", "null"],
    "properties": {"kind": {"enum": [kind.value for kind in ActorKind]}, "id": _TEXT},
    "required": ["kind"],
    "additionalProperties": False,
    "description": "Who gives the command; with an API key, its id is the id of the key.",
}
_COMMON: Final[Schema] = {
    "actor": _ACTOR,
    "correlationId": {**_TEXT, "description": "The id of a larger operation; X-Correlation-Id takes precedence."},
}
_KIND: Final[Schema] = {"enum": ["json", "tagged", None], "description": "How `input` is written."}
_ERROR: Final[Schema] = {
    "type": ["object", "null"],
    "properties": {"code": _TEXT, "message": _TEXT, "detail": _OBJECT},
}


class Verb(NamedTuple):
    """One command: the end of its path, its name, what it does, and the fields of its body."""

    name: str
    command: str
    description: str
    fields: Schema
    example: dict[str, Any]
    required: tuple[str, ...] = ()


CREATE: Final = Verb(
    "",
    "CreateExecution",
    "Create an execution.",
    {
        "graphId": {"type": "string", "minLength": 1, "description": "A registered graph."},
        "input": _OBJECT,
        "executionId": {"type": ["string", "null"], **RUN_ID.json_schema},
    },
    {"graphId": "review", "input": {"document": 17}},
    ("graphId",),
)
EXECUTION_VERBS: Final = (
    Verb("start", "StartExecution", "Start the execution.", {"startedBy": _PARTY}, {}),
    Verb(
        "cancel",
        "CancelExecution",
        "End the execution, whatever it is doing.",
        {"reason": _TEXT, "requestedBy": _PARTY},
        {"reason": "no longer needed"},
    ),
    Verb("archive", "ArchiveExecution", "Archive an ended execution.", {"reason": _TEXT}, {}),
)
NODE_VERBS: Final = (
    Verb("ready", "MarkNodeReady", "Mark the node as ready to run.", {}, {}),
    Verb(
        "start",
        "StartNode",
        "Start an attempt; without a number, the next one.",
        {"attempt": _ATTEMPT, "workerId": _TEXT},
        {"workerId": "ruby-1"},
    ),
    Verb(
        "progress",
        "ReportNodeProgress",
        "Report the progress of the node.",
        {
            "attempt": _ATTEMPT,
            "progress": {"type": ["number", "null"], "minimum": 0, "maximum": 100},
            "message": _TEXT,
            "metrics": _OBJECT,
        },
        {"progress": 40, "message": "page 4 of 10"},
    ),
    Verb(
        "wait",
        "PutNodeWaiting",
        "Let the node wait for an answer from outside.",
        {"attempt": _ATTEMPT, "waitKey": _TEXT, "prompt": _OBJECT},
        {"waitKey": "approval", "prompt": {"question": "Ship it?"}},
    ),
    Verb(
        "request-resume",
        "RequestResumeNode",
        "Ask for a waiting node to be resumed.",
        {"attempt": _ATTEMPT, "resumeKey": _TEXT, "requestedBy": _PARTY},
        {"resumeKey": "approval"},
    ),
    Verb(
        "resume",
        "ResumeNode",
        "Resume a waiting node; with a key, only if the node waits for it.",
        {"attempt": _ATTEMPT, "resumeKey": _TEXT, "input": {"description": "Kept in the event."}, "input_kind": _KIND},
        {"resumeKey": "approval", "input": {"approved": True}},
    ),
    Verb(
        "succeed",
        "SucceedNode",
        "The work is done.",
        {"attempt": _ATTEMPT, "output": _OBJECT},
        {"attempt": 1, "output": {"pages": 10}},
    ),
    Verb(
        "fail",
        "FailNode",
        "The attempt failed.",
        {"attempt": _ATTEMPT, "error": _ERROR, "retryable": {"type": "boolean"}},
        {"attempt": 1, "error": {"code": "TIMEOUT", "message": "no answer"}, "retryable": True},
    ),
)


def document(verb: Verb) -> dict[str, Any]:
    """Describe the request's body. It may have more fields: the event keeps them."""
    schema: Schema = {"type": "object", "title": verb.command, "properties": {**verb.fields, **_COMMON}}
    if verb.required:
        schema["required"] = list(verb.required)
    content = {"application/json": {"schema": schema, "example": verb.example}}
    return {"requestBody": {"required": bool(verb.required), "content": content}}
