"""The twelve commands as routes: what each is called, and what its body may say."""

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
    "description": "On whose behalf; behind an API key, the id is the key's.",
}
_COMMON: Final[Schema] = {
    "actor": _ACTOR,
    "correlationId": {**_TEXT, "description": "What it is a part of; X-Correlation-Id comes before it."},
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
    told: str
    fields: Schema
    example: dict[str, Any]
    required: tuple[str, ...] = ()


CREATE: Final = Verb(
    "",
    "CreateExecution",
    "Bring an execution into being.",
    {
        "graphId": {"type": "string", "minLength": 1, "description": "A registered graph."},
        "input": _OBJECT,
        "executionId": {"type": ["string", "null"], **RUN_ID.json_schema},
    },
    {"graphId": "review", "input": {"document": 17}},
    ("graphId",),
)
EXECUTION_VERBS: Final = (
    Verb("start", "StartExecution", "Set it going.", {"startedBy": _PARTY}, {}),
    Verb(
        "cancel",
        "CancelExecution",
        "End it, whatever it is doing.",
        {"reason": _TEXT, "requestedBy": _PARTY},
        {"reason": "no longer needed"},
    ),
    Verb("archive", "ArchiveExecution", "Put an ended execution away.", {"reason": _TEXT}, {}),
)
NODE_VERBS: Final = (
    Verb("ready", "MarkNodeReady", "Let the node run.", {}, {}),
    Verb(
        "start",
        "StartNode",
        "Begin an attempt; without a number, the next one.",
        {"attempt": _ATTEMPT, "workerId": _TEXT},
        {"workerId": "ruby-1"},
    ),
    Verb(
        "progress",
        "ReportNodeProgress",
        "Say how far the node is.",
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
        "Let the node wait for somebody outside.",
        {"attempt": _ATTEMPT, "waitKey": _TEXT, "prompt": _OBJECT},
        {"waitKey": "approval", "prompt": {"question": "Ship it?"}},
    ),
    Verb(
        "request-resume",
        "RequestResumeNode",
        "Ask for a waiting node to go on.",
        {"attempt": _ATTEMPT, "resumeKey": _TEXT, "requestedBy": _PARTY},
        {"resumeKey": "approval"},
    ),
    Verb(
        "resume",
        "ResumeNode",
        "Make a waiting node go on; with a key, only if it is the one it waits for.",
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
    """The request's body, for the documentation. More fields may be given: the event keeps them."""
    schema: Schema = {"type": "object", "title": verb.command, "properties": {**verb.fields, **_COMMON}}
    if verb.required:
        schema["required"] = list(verb.required)
    content = {"application/json": {"schema": schema, "example": verb.example}}
    return {"requestBody": {"required": bool(verb.required), "content": content}}
