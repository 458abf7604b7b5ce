"""Draw docs/state-machine.md from the tables that the code uses, or check that it is current."""

import argparse
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TypeVar

from pyoco_server.core.events import BATCH_PLACE, PROGRESS_CLASS
from pyoco_server.core.transitions import (
    EXECUTION_RANK,
    EXECUTION_STEPS,
    IGNORED_AFTER_CANCEL,
    IGNORED_WHEN_TERMINAL,
    NODE_GUARDS,
    NODE_RANK,
    NODE_STEPS,
    REFUSED_AFTER_CANCEL,
    STEPS_DOWN,
    STEPS_IN_PLACE,
    TERMINAL_EXECUTION,
    TERMINAL_NODE,
    CommandType,
    EventType,
    ExecutionStatus,
    NodeStatus,
)

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "state-machine.md"
BATCH_CLASSES = ("creation", "cancel", "failure", "success", "progress")
RECOMPUTED = (
    "On a node that has succeeded they are the attempt that computes a lost result again: the attempt number and the "
    "output change, the status does not."
)
Status = TypeVar("Status", ExecutionStatus, NodeStatus)


def page() -> str:
    """Return the page."""
    parts = [
        "# The state machine",
        "Written by `make docs` from the tables in `src/pyoco_server/core/transitions.py`, which the code uses.",
        "## An execution",
        diagram(EXECUTION_STEPS, ExecutionStatus.ACTIVE, TERMINAL_EXECUTION, "EXECUTION_CREATED"),
        "A higher rank wins, and a rank never falls:",
        ranks(EXECUTION_RANK),
        "Once `EXECUTION_CANCEL_REQUESTED` is in the log, the only way out of `ACTIVE` is `CANCELED`.",
        "## A node",
        diagram(NODE_STEPS, NodeStatus.IDLE, TERMINAL_NODE, "NODE_CREATED"),
        ranks(NODE_RANK),
        f"The one step to a lower rank: {_steps_down()}. `NODE_STARTED` on a running node is a new attempt.",
        f"Events that leave a node where it is: {_steps_in_place()}.",
        RECOMPUTED,
        "## What a node command needs",
        guards(),
        "## After a cancel request",
        f"Refused commands: {_names(REFUSED_AFTER_CANCEL, CommandType)}.",
        "SucceedNode and FailNode of the engine that ran the node are recorded all the same.",
        f"Events without effect: {_names(IGNORED_AFTER_CANCEL, EventType)}.",
        f"Without effect in any ended execution: {_names(IGNORED_WHEN_TERMINAL, EventType)}.",
        "## Order within a batch",
        "`order_batch` puts events of different commands into this order; events of one command keep theirs.",
        "The platform sorts its own batches in `app/runtime/execution`, cancel first.",
        batch_order(),
    ]
    return "\n\n".join(parts) + "\n"


def diagram(
    steps: Mapping[Status, Mapping[EventType, Status]], first: Status, final: Iterable[Status], created_by: str
) -> str:
    """Return a Mermaid state diagram; events of the same step share an arrow."""
    lines: list[str] = ["```mermaid", "stateDiagram-v2", f"    [*] --> {first}: {created_by}"]
    for source, outgoing in steps.items():
        by_target: dict[str, list[str]] = {}
        for event, target in outgoing.items():
            by_target.setdefault(target, []).append(event.value)
        lines += [f"    {source} --> {target}: {' / '.join(events)}" for target, events in by_target.items()]
    lines += [f"    {status} --> [*]" for status in steps if status in final]
    return "\n".join([*lines, "```"])


def _steps_in_place() -> str:
    return ", ".join(f"{_names(events, EventType)} on `{status}`" for status, events in STEPS_IN_PLACE.items())


def ranks(table: Mapping[Status, int]) -> str:
    """Return the statuses, strongest first."""
    rows: list[tuple[Status, int]] = sorted(table.items(), key=lambda row: -row[1])
    return "\n".join(["| status | rank |", "|---|---|", *(f"| `{status}` | {rank} |" for status, rank in rows)])


def guards() -> str:
    """Return the table of statuses that accept each command."""
    lines = ["| command | taken when | nothing to do when | recorded as |", "|---|---|---|---|"]
    for command, guard in NODE_GUARDS.items():
        taken, done = _names(guard.accepts, NodeStatus), _names(guard.already_done, NodeStatus)
        lines.append(f"| `{command}` | {taken} | {done} | `{guard.emits}` |")
    return "\n".join(lines)


def batch_order() -> str:
    """Return the classes of events, in order."""
    lines = ["| | class | events |", "|---|---|---|"]
    for number, name in enumerate(BATCH_CLASSES):
        places = {place: event for event, (found, place) in BATCH_PLACE.items() if found == number}
        members = [f"`{places[place]}`" for place in sorted(places)]
        shown = "all others, in the order given" if number == PROGRESS_CLASS else ", ".join(members)
        lines.append(f"| {number} | {name} | {shown} |")
    return "\n".join(lines)


def _steps_down() -> str:
    return ", ".join(f"`{source}` → `{target}` on `{event}`" for (source, event), target in STEPS_DOWN.items())


def _names(members: Iterable[str], everyone: Iterable[str]) -> str:
    """Return members in the order of their definition."""
    chosen = set(members)
    return ", ".join(f"`{member}`" for member in everyone if member in chosen)


def main() -> int:
    """Write the page, or with ``--check`` print whether it is current."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing, fail if the page is not current")
    if not parser.parse_args().check:
        PAGE.write_text(page(), encoding="utf-8")
        return 0
    if PAGE.exists() and PAGE.read_text(encoding="utf-8") == page():
        return 0
    print(f"{PAGE.relative_to(ROOT)} is not current: run 'make docs'")
    return 1


if __name__ == "__main__":
    sys.exit(main())
