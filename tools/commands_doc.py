"""Write docs/reference/commands.md from the structs and guards of the 12 commands, or check that it is current."""

import inspect
import sys
from collections.abc import Iterator
from typing import Final

from pyoco_server.core.command_handler import RejectionCode
from pyoco_server.core.commands import COMMANDS, AttemptCommand, BaseCommand, NodeCommand
from pyoco_server.core.json_codec import wire_fields
from pyoco_server.core.transitions import NODE_GUARDS, REFUSED_AFTER_CANCEL, CommandType, NodeStatus
from pyoco_server.gateway.schemas.commands import CREATE, EXECUTION_VERBS, NODE_VERBS, Verb
from tools.pages import REFERENCE, code, json_block, run, table
from tools.wire_types import fields_table

PAGE: Final = REFERENCE / "commands.md"
COMMON: Final = wire_fields(BaseCommand)

INTRODUCTION: Final = """\
# The 12 commands

Written by `make docs` from `src/pyoco_server/core/commands.py` and the guards the code runs on.

A command is a request to one execution. It is checked against the newest state. If it is accepted, its events and all
their consequences are one commit; if it is refused, it changes nothing. The list is closed. Undeclared fields of a
command are copied into its event.

Every command has a route under `/executions` (see [HTTP](http.md)), so a program in any language can drive an
execution. The routes of `/runs` give the same commands.

| answer | when |
|---|---|
| 202 | accepted: `events` has its events, `version` the new version |
| 200 | the state is already as requested, or it repeats a request under its `Idempotency-Key`: `events` is empty |
| 404 | there is no such execution or node: ERR-PYOCO-0005, ERR-PYOCO-0104 |
| 409 | a guard refuses: ERR-PYOCO-0103, with `COMMAND_REJECTED` as `details.code` and the reason in `details.reason` |
| 409 | the `Idempotency-Key` was used for another request: ERR-PYOCO-0105 |
| 422 | it is not understood: ERR-PYOCO-0002 |

All commands have these fields. Over HTTP `executionId` comes from the path; `actor` from the body, else it is a `user`,
and behind an API key its `id` is always the key's; `correlationId` from `X-Correlation-Id`, else from the body:
"""

REASONS: Final = {
    RejectionCode.WRONG_EXECUTION: "it is for another execution (never over HTTP)",
    RejectionCode.EXECUTION_NOT_FOUND: "the execution was never created",
    RejectionCode.EXECUTION_EXISTS: "the id is taken",
    RejectionCode.EXECUTION_TERMINAL: "the execution has ended",
    RejectionCode.EXECUTION_NOT_TERMINAL: "the execution has not ended yet",
    RejectionCode.CANCEL_REQUESTED: "a cancel was requested, and cancel wins",
    RejectionCode.GRAPH_NOT_FOUND: "no such graph is registered (422 over HTTP), or the run has none before it starts",
    RejectionCode.NODE_NOT_FOUND: "the execution has no such node",
    RejectionCode.NODE_IS_CONTROL: "it is a control node, which only the orchestrator moves",
    RejectionCode.NODE_TERMINAL: "the node has ended",
    RejectionCode.NODE_STATUS: "the node's status does not allow it",
    RejectionCode.NODE_HELD: "the attempt is held by another worker",
    RejectionCode.STALE_ATTEMPT: "the attempt was replaced by a later one",
    RejectionCode.UNKNOWN_ATTEMPT: "the attempt never started",
    RejectionCode.BETWEEN_ATTEMPTS: "the attempt was reported failed, and the next one has not started",
    RejectionCode.RESUME_KEY_MISMATCH: "the node waits for another key",
}

NEEDS: Final = {
    CommandType.CREATE_EXECUTION: "The id is free, and the graph is registered.",
    CommandType.START_EXECUTION: "It has not ended and was not asked to cancel. Started already: nothing to do.",
    CommandType.CANCEL_EXECUTION: "Nothing. Ended already, or asked to cancel already: nothing to do.",
    CommandType.ARCHIVE_EXECUTION: "The execution has ended. Archived already: nothing to do.",
}


def page() -> str:
    """Return the page."""
    verbs = {verb.command: (verb, path) for verb, path in _routes()}
    routes = table(
        ("command", "route", "asks"),
        ((f"[`{name}`](#{name.lower()})", f"`POST {verbs[name][1]}`", verbs[name][0].description) for name in COMMANDS),
    )
    reasons = table(("`details.reason`", "meaning"), ((f"`{reason}`", meaning) for reason, meaning in REASONS.items()))
    parts = [
        INTRODUCTION.rstrip(),
        fields_table(BaseCommand),
        "## Overview",
        routes,
        "## Reasons for a refusal",
        reasons,
    ]
    parts += [_section(command, *verbs[name]) for name, command in COMMANDS.items()]
    return "\n\n".join(parts) + "\n"


def _routes() -> Iterator[tuple[Verb, str]]:
    yield CREATE, "/executions"
    for verb in EXECUTION_VERBS:
        yield verb, f"/executions/{{id}}/{verb.name}"
    for verb in NODE_VERBS:
        yield verb, f"/executions/{{id}}/nodes/{{nodeId}}/{verb.name}"


def _section(command: type[BaseCommand], verb: Verb, path: str) -> str:
    guard = NODE_GUARDS.get(command.type)
    needs = NEEDS.get(command.type, "")
    if guard is not None:
        needs = f"Taken when the node is {_statuses(guard.accepts)}; recorded as `{guard.emits}`."
        if guard.already_done:
            needs += f" {_statuses(guard.already_done)}: nothing to do."
    parts = [
        f"## {command.type}",
        " ".join((inspect.getdoc(command) or "").replace("``", "`").split()),
        fields_table(command, without=COMMON),
        needs,
        f"Refused with: {code(refusals(command))}.",
        f"`POST {path}`" + (" with" if verb.example else ", no body needed."),
    ]
    return "\n\n".join([*parts, json_block(verb.example)] if verb.example else parts)


def refusals(command: type[BaseCommand]) -> list[RejectionCode]:
    """Return the reasons why this command can be refused, in the order of `core/command_handler.py`."""
    code = RejectionCode
    own = {
        CommandType.CREATE_EXECUTION: [code.EXECUTION_EXISTS, code.GRAPH_NOT_FOUND],
        CommandType.ARCHIVE_EXECUTION: [code.EXECUTION_NOT_TERMINAL],
        CommandType.START_EXECUTION: [code.GRAPH_NOT_FOUND],
        CommandType.START_NODE: [code.NODE_HELD],
        CommandType.RESUME_NODE: [code.RESUME_KEY_MISMATCH],
    }.get(command.type, [])
    found = [] if command.type is CommandType.CREATE_EXECUTION else [code.EXECUTION_NOT_FOUND]
    if command.type in REFUSED_AFTER_CANCEL:
        found += [code.EXECUTION_TERMINAL, code.CANCEL_REQUESTED]
    if issubclass(command, NodeCommand):
        found += [code.NODE_NOT_FOUND, code.NODE_IS_CONTROL, code.NODE_TERMINAL, code.NODE_STATUS]
    if issubclass(command, AttemptCommand):
        found += [code.STALE_ATTEMPT]
        found += [code.UNKNOWN_ATTEMPT] if command.type is not CommandType.START_NODE else []
        if NodeStatus.RUNNING in NODE_GUARDS[command.type].accepts and command.type is not CommandType.FAIL_NODE:
            found += [code.BETWEEN_ATTEMPTS]
    return found + own


def _statuses(members: frozenset[NodeStatus]) -> str:
    return " or ".join(f"`{status}`" for status in NodeStatus if status in members)


if __name__ == "__main__":
    sys.exit(run(__doc__, {PAGE: page}))
