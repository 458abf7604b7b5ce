"""How large one run may become: the rounds of a loop, the nodes, the events.

A few characters of a flow can ask for any number of rounds (``repeat(count=1000000000)``), and a run keeps the worker,
the log and every reader of the log busy as long as it grows. What the text of a flow shows is refused when the flow is
submitted; a count that is computed, and what retries and progress add, when the run reaches the limit.
"""

import sys
from typing import ClassVar, Final

import msgspec

from pyoco_server.flows.errors import FlowError
from pyoco_server.flows.model import FlowModel, ForEach, Network, Parallel, Repeat, Step, Steps, Switch, TaskStep, Until

RUN_TOO_LARGE: Final = "RUN_TOO_LARGE"
"""The code of a run that fails because of it."""


class RunTooLargeError(FlowError):
    """A run would exceed a limit of the platform."""

    err_id: ClassVar[str | None] = "ERR-PYOCO-0113"
    msg_id: ClassVar[str | None] = "MSG-PYOCO-0113"


class RunLimits(msgspec.Struct, frozen=True):
    """What one run may have at most."""

    rounds: int = sys.maxsize
    """Of one loop."""
    nodes: int = sys.maxsize
    events: int = sys.maxsize

    def check_rounds(self, rounds: int, loop: str) -> None:
        """Refuse a loop of this number of rounds: RunTooLargeError."""
        if rounds > self.rounds:
            raise RunTooLargeError(
                f"{loop} has {_shown(rounds)} rounds, and a loop may have {self.rounds}: split the work among several "
                "runs, or let the operator raise PYOCO_RUN_MAX_ROUNDS"
            )

    def check_nodes(self, nodes: int) -> None:
        """Refuse a run of this number of nodes: RunTooLargeError."""
        if nodes > self.nodes:
            raise RunTooLargeError(
                f"the run needs more than {self.nodes} nodes: every task of every round is one; split the work among "
                "several runs, or let the operator raise PYOCO_RUN_MAX_NODES"
            )

    def check_events(self, events: int) -> None:
        """Refuse to continue a run of this number of events: RunTooLargeError."""
        if events >= self.events:
            raise RunTooLargeError(
                f"the run has {events} events, the most it may have: split the work among several runs, report less "
                "progress, or let the operator raise PYOCO_RUN_MAX_EVENTS"
            )


NO_LIMITS: Final = RunLimits()


def check_size(model: FlowModel, limits: RunLimits) -> None:
    """Refuse a flow whose text shows that a run of it would exceed a limit: RunTooLargeError."""
    if isinstance(model.body, Network):
        limits.check_nodes(len(model.body.tasks))
    else:
        limits.check_nodes(_least_nodes(model.body.steps, limits))


def _least_nodes(steps: Steps, limits: RunLimits) -> int:
    """Return how many nodes these steps have at least in a run that succeeds; refuse loops that are too long."""
    return sum(_least_of(step, limits) for step in steps)


def _least_of(step: Step, limits: RunLimits) -> int:
    match step:
        case TaskStep():
            return 1
        case Repeat(count=count, body=body):
            inside = _least_nodes(body, limits)
            if isinstance(count, str):  # computed when the run reaches it
                return 1
            limits.check_rounds(count, "a repeat")
            return 1 + count * inside
        case Until(body=body, max_iter=most):
            limits.check_rounds(most or 0, "an until")
            return 1 + _least_nodes(body, limits)
        case ForEach(body=body):
            _least_nodes(body, limits)
            return 1
        case Parallel(branches=branches):
            return 1 + sum(_least_nodes(branch, limits) for branch in branches)
        case Switch(cases=cases, default=default):
            bodies = [*(case.body for case in cases), *([default] if default is not None else [])]
            return 1 + min((_least_nodes(body, limits) for body in bodies), default=0)


def _shown(number: int) -> str:
    """Return a number that an expression may have made very long."""
    return str(number) if number < 10**30 else "more than 10**30"
