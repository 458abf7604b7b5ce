"""The rounds of a loop: which failures end only their round, and how many rounds and tasks ended in which way.

A task with ``fail_policy: isolate`` inside a loop ends its round when it fails; the loop continues with the other
rounds. The log alone says so: the node of such a task is created with ``failPolicy``, and a block inside the round that
ends with it (a choice, a parallel group) fails with ``isolated`` in the detail of its error. A process that takes over
reads the same and decides the same.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import msgspec

from pyoco_server.core import ExecutionState, NodeState, NodeStatus
from pyoco_server.core.graph import NodeFailPolicy
from pyoco_server.core.json_codec import JsonObject
from pyoco_server.flows.model import OnFailure, Parallel, Steps, TaskSpec, TaskStep
from pyoco_server.flows.plan import name_steps
from pyoco_server.texts import shortened
from pyoco_server.values.errors import text_of

FAIL_POLICY: Final = "failPolicy"
ISOLATED: Final = "isolated"
"""In the detail of a block's error: the failure ends only the round around the block."""
NODE: Final = "node"
"""In the detail of a block's error: the node inside the block that failed."""
ROUNDS: Final = "rounds"
"""In the detail of a loop's error: the same counts that a loop with failed rounds has as its output."""
MOST_ERRORS: Final = 20
"""How many failed rounds a loop's result names; the log and the task records have all of them."""
LONGEST_OF_ROUND: Final = 500
"""Characters that a loop's result keeps of a failed round's message."""
_IN_LOOP: Final = re.compile(r":(?:foreach|repeat|until)(?::\d+)?\[\d+\]/")


def is_in_loop(node_id: str) -> bool:
    """Whether the node belongs to a round of a loop."""
    return _IN_LOOP.search(node_id) is not None


def described_in_round(task: TaskSpec, described: JsonObject) -> JsonObject:
    """What NODE_CREATED says of a task inside a round: its policy too, if a failure ends only the round."""
    return (
        {**described, FAIL_POLICY: NodeFailPolicy.ISOLATE.value} if task.on_failure is OnFailure.ISOLATE else described
    )


def is_isolating(described: Mapping[str, Any]) -> bool:
    """Whether NODE_CREATED says that a failure of this node ends only its round."""
    return described.get(FAIL_POLICY) == NodeFailPolicy.ISOLATE.value


def is_marked_isolated(error: JsonObject | None) -> bool:
    """Whether the error of a block says that its failure ends only the round around it."""
    return _detail(error).get(ISOLATED) is True


def failed_node(error: JsonObject | None) -> str | None:
    """The node inside a block that the block's error names."""
    named = _detail(error).get(NODE)
    return named if isinstance(named, str) else None


def rounds_in(error: JsonObject | None) -> object:
    """The counts of rounds in the error of a loop, if it has them."""
    return _detail(error).get(ROUNDS)


def error_of_block(node: NodeState, *, isolated: bool) -> JsonObject:
    """The error of a block in which ``node`` did not succeed: the node's own, with the node's id."""
    error = node.error or {"code": "CHILD_CANCELED", "message": f"node '{node.node_id}' ended {node.status}"}
    named = failed_node(error) or node.node_id
    kept = {name: value for name, value in _detail(error).items() if name not in {ISOLATED, ROUNDS}}
    return {**error, "detail": {**kept, NODE: named, **({ISOLATED: True} if isolated else {})}}


class ChildFailedError(Exception):
    """A node inside a block did not succeed, so the block cannot; ``is_isolated``: it ends only the round around it."""

    def __init__(self, node: NodeState, *, is_isolated: bool = False) -> None:
        super().__init__(f"node '{node.node_id}' ended {node.status}")
        self.node = node
        self.is_isolated = is_isolated


class BlockFailedError(Exception):
    """A block failed by its author's doing: an expression, a choice that fits no case, a count that is no number."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(text_of(error))
        self.error = error


class SiblingFailedError(Exception):
    """A node inside a block is not begun, since one beside it has failed."""


class RunEndedError(Exception):
    """A node inside a block is not created, since the run is cancelled or has ended."""


class Rounds:
    """Counts the rounds of one loop as they end."""

    def __init__(self, node_id: str, body: Steps, total: int | None) -> None:
        """``total`` is None if it is not known before the loop has ended."""
        self._node_id = node_id
        self._body = body
        self._total = total
        self._begun = self._ok = 0
        self._failed = 0
        self._errors: list[JsonObject] = []

    def begin(self) -> None:
        """Count a round that begins."""
        self._begun += 1

    def succeed(self) -> None:
        """Count a round in which every step succeeded."""
        self._ok += 1

    def fail(self, node: NodeState) -> None:
        """Count a round that ended because ``node`` failed; one whose node was cancelled counts as stopped."""
        if node.status is not NodeStatus.FAILED:
            return
        self._failed += 1
        if len(self._errors) < MOST_ERRORS:
            error = node.error or {}
            named = failed_node(error) or node.node_id
            message = error.get("message")
            shown = shortened(message, LONGEST_OF_ROUND) if isinstance(message, str) else message
            self._errors.append({NODE: named, "code": error.get("code"), "message": shown})

    def result(self, state: ExecutionState) -> JsonObject | None:
        """The counts, or None if no round failed. ``stopped`` are rounds that began and were given up."""
        if not self._failed:
            return None
        total = self._begun if self._total is None else self._total
        stopped = self._begun - self._ok - self._failed
        return {
            "rounds": total,
            "ok": self._ok,
            "failed": self._failed,
            **({"stopped": stopped} if stopped else {}),
            "not_started": total - self._begun,
            "tasks": self._tasks(state, total),
            "errors": self._errors,
        }

    def _tasks(self, state: ExecutionState, total: int) -> JsonObject:
        """Counts of the tasks that every round reaches unless it fails: not those of choices and inner loops."""
        counts: dict[str, Tally] = {}
        for index in range(self._begun):
            for node_id, task in _every_round(f"{self._node_id}[{index}]/", self._body):
                counts.setdefault(task, Tally()).add(state.nodes.get(node_id))
        for tally in counts.values():
            tally.not_started += total - self._begun
        return {task: tally.to_json() for task, tally in counts.items()}


def _every_round(prefix: str, steps: Steps) -> Iterator[tuple[str, str]]:
    for node_id, step in name_steps(steps, prefix):
        match step:
            case TaskStep(task):
                yield node_id, task.name
            case Parallel(branches):
                for index, branch in enumerate(branches):
                    yield from _every_round(f"{node_id}[{index}]/", branch)
            case _:
                pass


class Tally:
    """How many nodes of one task ended in which way."""

    def __init__(self) -> None:
        self.ok = self.failed = self.cancelled = self.running = self.not_started = 0

    def add(self, node: NodeState | None) -> None:
        """Count a node; None is one that was never created."""
        match None if node is None else node.status:
            case NodeStatus.SUCCEEDED:
                self.ok += 1
            case NodeStatus.FAILED:
                self.failed += 1
            case NodeStatus.CANCELED:
                self.cancelled += 1
            case NodeStatus.RUNNING | NodeStatus.WAITING | NodeStatus.READY:
                self.running += 1
            case _:
                self.not_started += 1

    def to_json(self) -> JsonObject:
        """The counts; those that are rare only if there is something to count."""
        rare = {"cancelled": self.cancelled, "running": self.running}
        return {
            "ok": self.ok,
            "failed": self.failed,
            **{name: count for name, count in rare.items() if count},
            "not_started": self.not_started,
        }


class _Counted(msgspec.Struct):
    not_started: int


class _Result(msgspec.Struct):
    rounds: int
    tasks: dict[str, _Counted]


def not_started_in(result: object) -> dict[str, int]:
    """From a loop's result, the number of rounds each task was not started in; empty if it is something else."""
    try:
        found = msgspec.convert(result, _Result)
    except msgspec.ValidationError:
        return {}
    return {task: counted.not_started for task, counted in found.tasks.items()}


def tallies(
    tasks: Iterator[tuple[str, str]], node: Callable[[str], NodeState | None], not_started: Mapping[str, int]
) -> dict[str, JsonObject]:
    """The counts of every task in a loop, from its nodes (id and task) and what loops said was not started."""
    counts: dict[str, Tally] = {}
    for node_id, task in tasks:
        if is_in_loop(node_id):
            counts.setdefault(task, Tally()).add(node(node_id))
    for task, count in not_started.items():
        counts.setdefault(task, Tally()).not_started += count
    return {task: tally.to_json() for task, tally in counts.items()}


def _detail(error: JsonObject | None) -> JsonObject:
    detail = (error or {}).get("detail")
    return detail if isinstance(detail, dict) else {}
