"""The results of a run, from its log: which task returned what, in the order in which it happened.

Folding the log through here rebuilds the shared results of a run, so a process that takes over sees what the one before
saw. Values that are stored beside the log are fetched; a value that is lost, or pickled, is a deferred value that only
a task that reads it notices (``values.lazy``).
"""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from pyoco.core.models import TaskState  # type: ignore[import-untyped]  # pyoco ships no type information

from pyoco_server.app.runtime.context import RunScope
from pyoco_server.app.runtime.outputs import STORED, VALUE, Outputs, ValueOwner, inline_value, is_stored
from pyoco_server.app.runtime.rounds import is_in_loop, is_isolating, is_marked_isolated
from pyoco_server.core import Event, ExecutionState, initial_state
from pyoco_server.core.json_codec import JsonObject
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
from pyoco_server.values.codec import KIND
from pyoco_server.values.errors import ResultLostError
from pyoco_server.values.lazy import Deferred, LazyDict, LoadableValue, LostValue, is_deferred


class ResultKeeper:
    """Listens to a log and keeps the run's results up to date."""

    def __init__(self, scope: RunScope, run_id: str) -> None:
        self.missing: dict[ValueOwner, JsonObject] = {}
        """Values that are stored beside the log and were not fetched yet, with what the log says of them."""
        self.deferred: dict[str, Deferred] = {}
        """Nodes whose value is lost or was not loaded, in the order in which they ended."""
        self.newest_ends: dict[str, int] = {}
        """By node, the newest attempt that succeeded."""
        self._scope = scope
        self._run_id = run_id
        self._ends: dict[str, int] = {}
        self._newest: dict[str, int] = {}
        self._task_of: dict[str, tuple[str, tuple[str, ...]]] = {}
        self._in_hand: dict[ValueOwner, Any] = {}
        self.failed: dict[str, None] = {}
        """Nodes that failed, in the order in which they did; without those in ``isolated``."""
        self.isolated: dict[str, None] = {}
        """Nodes whose failure ended only their round, in the order in which they failed."""
        self._isolating: set[str] = set()
        self.decisions: dict[tuple[str, str], Any] = {}
        """What blocks decided, by node and key."""

    def owner(self, node_id: str, key: str | None = None) -> ValueOwner:
        """What an output of the node, or a decision of the block, belongs to."""
        task = self._task_of.get(node_id)
        return ValueOwner(self._run_id, node_id, None if task is None else task[0], key)

    def hand_over(self, owner: ValueOwner, value: Any) -> None:  # noqa: ANN401 whatever a task returned
        """Have a value ready for the moment it is recorded: this process uses the object itself, not the log's copy."""
        self._in_hand[owner] = value

    def retract(self, owner: ValueOwner) -> None:
        """Drop a value that was handed over and not recorded."""
        self._in_hand.pop(owner, None)

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
            if is_isolating(described) and is_in_loop(payload.node_id):
                self._isolating.add(payload.node_id)

    def _node_started(self, payload: NodeStarted) -> None:
        self._note(payload, TaskState.RUNNING)

    def _node_succeeded(self, payload: NodeSucceeded) -> None:
        self._note(payload, TaskState.SUCCEEDED)
        if payload.node_id in self._task_of:
            self.newest_ends[payload.node_id] = payload.attempt or 0
            self._succeeded(payload.node_id, payload.output)

    def _node_failed(self, payload: NodeFailed) -> None:
        self._note(payload, TaskState.FAILED)
        is_isolated = payload.node_id in self._isolating or is_marked_isolated(payload.error)
        (self.isolated if is_isolated else self.failed)[payload.node_id] = None

    def _node_canceled(self, payload: NodeCanceled) -> None:
        self._note(payload, TaskState.CANCELLED)

    def _progressed(self, payload: NodeProgressReported) -> None:
        match payload.metrics:
            case {"decision": {"key": str(key), **kept}} if kept.keys() & {VALUE, STORED, KIND}:
                self._decided(self.owner(payload.node_id, key), {str(name): part for name, part in kept.items()})
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

    def _succeeded(self, node_id: str, output: JsonObject | None) -> None:
        self._ends.setdefault(node_id, len(self._ends))  # computed again, a result keeps its place among the others
        owner = self.owner(node_id)
        self.missing.pop(owner, None)
        if owner in self._in_hand:
            self.keep(node_id, self._in_hand.pop(owner))
        elif output is not None and is_stored(output):
            self.missing[owner] = output
        else:
            self.keep(node_id, inline_value(owner, output))

    def _decided(self, owner: ValueOwner, kept: JsonObject) -> None:
        place = owner.node_id, owner.key or ""
        if owner in self._in_hand:
            self.decisions[place] = self._in_hand.pop(owner)
        elif is_stored(kept):
            self.missing[owner] = kept
        else:
            self.decisions[place] = inline_value(owner, kept)

    def keep(self, node_id: str, value: Any) -> None:  # noqa: ANN401 whatever a task returned
        """Store a value under its task's name and wherever the task's outputs say.

        Values that are fetched may come after one that was made later, by another round or another task with the same
        output: the later one stays.
        """
        if is_deferred(value):
            self.deferred[node_id] = value
        else:
            self.deferred.pop(node_id, None)
        task, outputs = self._task_of[node_id]
        end = self._ends[node_id]
        if self._is_newest(f"results.{task}", end):
            self._scope.keep(task, tuple(path for path in outputs if self._is_newest(path, end)), value)

    def lost_before(self, node_id: str) -> list[str]:
        """Nodes whose value is lost and that succeeded before ``node_id`` did, if it did; in that order."""
        latest = self._ends.get(node_id, len(self._ends))
        lost = [other for other, value in self.deferred.items() if isinstance(value, LostValue)]
        return sorted((other for other in lost if self._ends[other] < latest), key=self._ends.__getitem__)

    def explain_loss(self, node_id: str, reason: str) -> None:
        """Say why a lost value is not computed again; the error of a task that reads it names the reason."""
        self.keep(node_id, self.owner(node_id).lost(reason))

    def lose(self, lost: ResultLostError) -> bool:
        """Take a value as lost that cannot be loaded here; False if it is lost already, or no node's value."""
        node_id = lost.node_id
        if node_id is None or not isinstance(self.deferred.get(node_id), LoadableValue):
            return False
        self.explain_loss(node_id, lost.reason)
        return True

    def _is_newest(self, path: str, end: int) -> bool:
        newest = self._newest.setdefault(path, end)
        self._newest[path] = max(newest, end)
        return end >= newest

    async def fetch(self, outputs: Outputs) -> None:
        """Read what is stored beside the log."""
        for owner, output in [*self.missing.items()]:
            value = await outputs.read(owner, output)
            if self.missing.pop(owner, None) is not output:  # recorded again meanwhile
                continue
            if owner.key is not None:
                self.decisions[owner.node_id, owner.key] = value
            else:
                self.keep(owner.node_id, value)


def _paths(outputs: object) -> tuple[str, ...]:
    """Return where a result is also kept; values of another form, which another program wrote, are ignored."""
    return tuple(path for path in outputs if isinstance(path, str)) if isinstance(outputs, list) else ()


async def results_of(events: Sequence[Event], outputs: Outputs) -> LazyDict:
    """The results a log holds, by task; to read one that is lost is an error."""
    run_id = events[0].execution_id
    scope = RunScope("", "", {}, "")
    keeper = ResultKeeper(scope, run_id)
    keeper.listen(events, initial_state(run_id))
    await keeper.fetch(outputs)
    return scope.results
