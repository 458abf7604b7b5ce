"""Results as the log tells them: who returned what, in the order in which it happened.

Folding the log through here rebuilds the shared results of a run, so a process that takes over sees what the one before
saw. Values the log could not hold come from memory while the process that made them lives, large ones from where they
are stored.
"""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from pyoco.core.models import TaskState  # type: ignore[import-untyped]  # pyoco ships no type information

from pyoco_server.app.context import RunScope
from pyoco_server.app.outputs import VALUE, Outputs, fresh
from pyoco_server.core import Event, ExecutionState, initial_state
from pyoco_server.core.payloads import (
    ExecutionCancelRequested,
    NodeCanceled,
    NodeCreated,
    NodeFailed,
    NodePayload,
    NodeProgressReported,
    NodeStarted,
    NodeSucceeded,
    Payload,
)
from pyoco_server.core.wire import JsonObject


class ResultKeeper:
    """Listens to a log and keeps the run's results up to date."""

    def __init__(self, scope: RunScope) -> None:
        self.missing: dict[str, JsonObject | None] = {}
        """Nodes whose value is not here, in the order in which they ended, with what the log says of it."""
        self._scope = scope
        self._ends: dict[str, int] = {}
        self._newest: dict[str, int] = {}
        self._task_of: dict[str, tuple[str, tuple[str, ...]]] = {}
        self._in_hand: dict[str, Any] = {}
        self.failed: dict[str, None] = {}
        """Nodes that failed, in the order in which they did."""
        self.decisions: dict[tuple[str, str], Any] = {}
        """What blocks decided, by node and key."""

    def hand_over(self, node_id: str, value: Any) -> None:  # noqa: ANN401 whatever a task returned
        """Have a value ready for the moment its node is recorded as succeeded."""
        self._in_hand[node_id] = value

    def take_back(self, node_id: str) -> None:
        """Its node was not recorded as succeeded."""
        self._in_hand.pop(node_id, None)

    def listen(self, events: Sequence[Event], _: ExecutionState) -> None:
        """Take what the events say."""
        for event in events:
            take = self._TAKE.get(type(event.payload))
            if take is not None:
                take(self, event.payload)

    def _node_created(self, payload: NodeCreated) -> None:
        described = payload.described
        task = described.get("task")
        if isinstance(task, str):
            self._task_of[payload.node_id] = (task, _paths(described.get("outputs")))
            self._scope.note(task, TaskState.PENDING)

    def _node_started(self, payload: NodeStarted) -> None:
        self._note(payload, TaskState.RUNNING)

    def _node_succeeded(self, payload: NodeSucceeded) -> None:
        self._note(payload, TaskState.SUCCEEDED)
        if payload.node_id in self._task_of:
            self._succeeded(payload.node_id, payload.output)

    def _node_failed(self, payload: NodeFailed) -> None:
        self._note(payload, TaskState.FAILED)
        self.failed[payload.node_id] = None

    def _node_canceled(self, payload: NodeCanceled) -> None:
        self._note(payload, TaskState.CANCELLED)

    def _progressed(self, payload: NodeProgressReported) -> None:
        match payload.metrics:
            case {"decision": {"key": key, "value": value}}:
                self.decisions[payload.node_id, key] = value
            case _:  # a number for people to look at
                pass

    def _cancel_requested(self, _: ExecutionCancelRequested) -> None:
        self._scope.mark_cancelling()

    _TAKE: ClassVar[dict[type[Payload], Callable[["ResultKeeper", Any], None]]] = {
        NodeCreated: _node_created,
        NodeStarted: _node_started,
        NodeSucceeded: _node_succeeded,
        NodeFailed: _node_failed,
        NodeCanceled: _node_canceled,
        NodeProgressReported: _progressed,
        ExecutionCancelRequested: _cancel_requested,
    }
    """What is to be done about which event; the others have nothing to do with results."""

    def _note(self, payload: NodePayload, state: TaskState) -> None:
        found = self._task_of.get(payload.node_id)
        if found is not None:
            self._scope.note(found[0], state)

    def _succeeded(self, node_id: str, output: dict[str, Any] | None) -> None:
        self._ends[node_id] = len(self._ends)
        if node_id in self._in_hand:
            self.keep(node_id, self._in_hand.pop(node_id))
        elif output is not None and VALUE in output:
            self.keep(node_id, fresh(output[VALUE]))
        else:
            self.missing[node_id] = output

    def keep(self, node_id: str, value: Any) -> None:  # noqa: ANN401 whatever a task returned
        """Store a value under its task's name and wherever the task's outputs say.

        A value that was missing may come after one that was made later, by another round or another task with the same
        output: the later one stays.
        """
        self.missing.pop(node_id, None)
        task, outputs = self._task_of[node_id]
        end = self._ends[node_id]
        if self._is_newest(f"results.{task}", end):
            self._scope.keep(task, tuple(path for path in outputs if self._is_newest(path, end)), value)

    def _is_newest(self, path: str, end: int) -> bool:
        newest = self._newest.setdefault(path, end)
        self._newest[path] = max(newest, end)
        return end >= newest

    async def fetch(self, outputs: Outputs) -> None:
        """Read what is stored beside the log; what stays missing has to be made again."""
        for node_id, output in [*self.missing.items()]:
            found, value = await outputs.read(output)
            if found:
                self.keep(node_id, value)


def _paths(outputs: object) -> tuple[str, ...]:
    """Where a result is also kept; what somebody else wrote there is nothing to us."""
    return tuple(path for path in outputs if isinstance(path, str)) if isinstance(outputs, list) else ()


async def results_of(events: Sequence[Event], outputs: Outputs) -> dict[str, Any]:
    """The results a log holds, by task; those it could not hold are missing."""
    scope = RunScope("", "", {}, "")
    keeper = ResultKeeper(scope)
    keeper.listen(events, initial_state(events[0].execution_id))
    await keeper.fetch(outputs)
    return scope.results
