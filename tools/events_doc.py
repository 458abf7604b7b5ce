"""Write docs/reference/events.md from the structs of the 24 events, or check that it is current."""

import inspect
import sys
from typing import Final

from pyoco_server.core.events import ActorKind
from pyoco_server.core.json_codec import wire_fields
from pyoco_server.core.payloads import PAYLOADS, Payload
from pyoco_server.core.transitions import (
    EXECUTION_PROPOSALS,
    IGNORED_AFTER_CANCEL,
    NODE_PROPOSALS,
    STEPS_DOWN,
    EventType,
)
from tools.golden_events import actors_of, example_of, of_type
from tools.pages import REFERENCE, code, json_block, run, table
from tools.wire_types import fields_table

PAGE: Final = REFERENCE / "events.md"

INTRODUCTION: Final = """\
# The 24 events

Written by `make docs` from `src/pyoco_server/core/payloads.py`; the examples are lines of `tests/golden/logs`.

An event is a fact about one execution. The list is closed: nothing else is ever written to a log or accepted from one.
What an event says beyond its declared fields is kept as it is.

`GET /runs/{run_id}/events` shows the log of a run, `pyoco-client events` does the same in a terminal.

## The envelope

| field | meaning |
|---|---|
| `eventId` | the event's own id |
| `executionId` | the execution it is about; for a run, its run id |
| `type` | one of the 24 |
| `occurredAt` | when, RFC 3339 in UTC, by the clock of the process that appended it |
| `actor` | who caused it: `{"kind", "id"?}`, where the kind is one of KINDS |
| `correlationId` | what the command was a part of (`X-Correlation-Id`), if the client sent it |
| `causationId` | the event or command that led to it, if there is one |
| `schemaVersion` | 1 |
| `version` | its place in the log, where a log is shown; no part of the fact |
| `payload` | what the sections below describe |
"""

EMITTED: Final = {
    EventType.EXECUTION_CREATED: "`CreateExecution`; for a run, `POST /runs`, or a worker that finds a foreign job",
    EventType.EXECUTION_STARTED: "`StartExecution`; for a run, the worker that begins it",
    EventType.EXECUTION_COMPLETED: "the orchestrator, when a `Success` end is reached and nothing is left to do",
    EventType.EXECUTION_ARCHIVED: "`ArchiveExecution`",
    EventType.EXECUTION_CANCEL_REQUESTED: "`CancelExecution`; a `Canceled` end; a gateway that could not accept a run",
    EventType.EXECUTION_CANCELED: "the orchestrator, when a cancel was requested and no node is at work",
    EventType.EXECUTION_FAIL_REQUESTED: "nothing here; a log of another implementation may have it, as a record",
    EventType.EXECUTION_FAILED: "the orchestrator, when a failure is not absorbed; a worker, for a run it cannot begin",
    EventType.NODE_CREATED: "the orchestrator: at the start, and for loops and choices as they are reached",
    EventType.NODE_READY: "the orchestrator, when what the node depends on has ended; `MarkNodeReady`",
    EventType.NODE_STARTED: "`StartNode`: the process that drives the execution; the orchestrator, for control nodes",
    EventType.NODE_PROGRESS_REPORTED: "`ReportNodeProgress`; for a run, a task that reports through its context",
    EventType.NODE_WAITING: "`PutNodeWaiting`; for a run, a wait that is reached",
    EventType.NODE_RESUME_REQUESTED: "`RequestResumeNode`: only a request; resuming a run does not write it",
    EventType.NODE_RESUMED: "`ResumeNode`; a worker or sweep, when a wait with a default is past its deadline",
    EventType.NODE_SUCCEEDED: "`SucceedNode`: the worker that ran the task; the orchestrator, for control nodes",
    EventType.NODE_FAIL_REPORTED: "`FailNode`: an attempt failed, whatever becomes of the node",
    EventType.NODE_FAILED: "`FailNode`, when no attempt is left; the orchestrator, for a join that cannot be passed",
    EventType.NODE_CANCEL_REQUESTED: "a worker, for a node past its limit; the orchestrator, for branches that lost",
    EventType.NODE_CANCELED: "the orchestrator, at the end of a cancel or for a node that can never run; a worker",
    EventType.NODE_INTERRUPT_REQUESTED: "the orchestrator, for nodes at work when a cancel or a failure ends their run",
    EventType.FORK_OPENED: "the orchestrator",
    EventType.JOIN_GATE_UPDATED: "the orchestrator, when a branch comes in at a join (of wide joins, not every one)",
    EventType.JOIN_PASSED: "the orchestrator",
}


def page() -> str:
    """Return the page."""
    rows = ((f"[`{kind}`](#{kind.lower()})", _summary(payload), _effect(kind)) for kind, payload in PAYLOADS.items())
    overview = table(("event", "says", "proposes"), rows)
    kinds = code(kind.value for kind in ActorKind)
    parts = [INTRODUCTION.replace("KINDS", kinds).rstrip(), "## Overview", overview]
    parts += [_section(kind, payload) for kind, payload in PAYLOADS.items()]
    return "\n\n".join(parts) + "\n"


def _section(kind: EventType, payload: type[Payload]) -> str:
    declared = wire_fields(payload)
    example = example_of(kind, declared)
    more = sorted({name for one in of_type(kind) for name in one.event["payload"]} - declared)
    parts = [
        f"### {kind}",
        f"{_summary(payload)} Emitted by: {EMITTED[kind]}. Actors in the golden logs: {', '.join(actors_of(kind))}.",
        fields_table(payload),
    ]
    if more:
        parts.append(f"Seen beside them, in the golden logs: {code(more)}.")
    if kind in IGNORED_AFTER_CANCEL:
        parts.append("Without effect once a cancel was requested.")
    parts += [f"From `{example.case}`:", json_block(example.event)]
    return "\n\n".join(parts)


def _summary(payload: type[Payload]) -> str:
    return " ".join((inspect.getdoc(payload) or "").replace("``", "`").split())


def _effect(kind: EventType) -> str:
    if kind in EXECUTION_PROPOSALS:
        return f"execution `{EXECUTION_PROPOSALS[kind]}`"
    if kind in NODE_PROPOSALS:
        return f"node `{NODE_PROPOSALS[kind]}`"
    down = [target for (_, event), target in STEPS_DOWN.items() if event is kind]
    return f"node `{down[0]}`" if down else "nothing: a record"


if __name__ == "__main__":
    sys.exit(run(__doc__, {PAGE: page}))
