"""Deaths of workers count against the task that ran: how often, and when the task is not called again.

A worker that takes over a run finds tasks that another worker started and did not report on. Unless the other worker
handed the run back, it died, or was cut off, during that attempt: a *crash*. The NODE_STARTED of the next attempt says
so in its field ``crashed``: the log alone has the count. A worker that stops in good order writes ``handedBack`` into a
NODE_PROGRESS_REPORTED of each task it leaves: in the log, because a snapshot may be lost.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final

from pyoco_server.core import Event, ExecutionState, NodeState
from pyoco_server.core.json_codec import JsonObject
from pyoco_server.core.payloads import NodeProgressReported, NodeStarted
from pyoco_server.flows.model import MAX_CRASHES, Step, TaskSpec, TaskStep

CRASHED: Final = "crashed"
HANDED_BACK: Final = "handedBack"
EVALUATING: Final = "evaluating"
"""In NODE_PROGRESS_REPORTED of a block or wait: does it evaluate an expression that runs code of users?"""
WORKER_DIED: Final = "WORKER_DIED"
"""The code of the error of a task during which too many workers died."""
AT_MOST_ONCE: Final = "AT_MOST_ONCE"
"""The code of the error of a task that was started once and is not called again."""


class CrashHistory:
    """Listens to a log and counts the crashes of each node."""

    def __init__(self) -> None:
        self._workers: defaultdict[str, list[str]] = defaultdict(list)
        self._handed_back: dict[str, int] = {}
        self._evaluating: dict[str, int] = {}

    def listen(self, events: Sequence[Event], _: ExecutionState) -> None:
        """Count what the events say."""
        for event in events:
            payload = event.payload
            if type(payload) is NodeStarted and CRASHED in payload.extra:
                self._workers[payload.node_id].append(_worker_in(payload.extra[CRASHED]))
            elif type(payload) is NodeProgressReported and payload.extra and payload.attempt:
                if HANDED_BACK in payload.extra:
                    self._handed_back[payload.node_id] = payload.attempt
                if EVALUATING in payload.extra:
                    is_begun = payload.extra[EVALUATING] is True
                    self._evaluating[payload.node_id] = payload.attempt if is_begun else 0

    def is_running_code(self, node: NodeState, step: Step | None) -> bool:
        """Does the attempt at work run code of users? A block or a wait does only while it evaluates."""
        is_task = isinstance(step, TaskStep) and step.task.wait is None
        return node.is_at_work and (is_task or self._evaluating.get(node.node_id) == node.attempt)

    def workers(self, node: NodeState, me: str) -> list[str]:
        """The workers that died during the node, with the one that has it now unless that is alive: ``me`` is."""
        died = self._workers.get(node.node_id, [])
        is_dead = node.is_at_work and node.worker_id not in {None, me}
        if not is_dead or self._handed_back.get(node.node_id) == node.attempt:
            return died
        return [*died, str(node.worker_id)]

    def news(self, node: NodeState, me: str) -> JsonObject:
        """Return the fields of a NODE_STARTED that follows a crash; none if the attempt before it did not crash."""
        known, now = len(self._workers.get(node.node_id, [])), self.workers(node, me)
        if len(now) == known:
            return {}
        return {CRASHED: {"attempt": node.attempt, "workerId": node.worker_id, "crashes": len(now)}}

    def verdict(self, node: NodeState, step: Step, me: str) -> JsonObject | None:
        """The error of a node at work that ``me`` takes over and whose code must not run again; None if it may."""
        task = step.task if isinstance(step, TaskStep) and step.task.wait is None else None
        if task is not None and task.at_most_once:
            return {"code": AT_MOST_ONCE, "message": _at_most_once(node, task, me)}
        workers = self.workers(node, me)
        most = MAX_CRASHES if task is None else task.max_crashes
        if len(workers) < most or not self.news(node, me):
            return None
        message = _worker_died(task, workers) if task is not None else _expression_died(node, workers)
        return {"code": WORKER_DIED, "message": message, "detail": {"workers": list(workers)}}


def is_under_suspicion(events: Sequence[Event], state: ExecutionState, me: str, crashes: int) -> bool:
    """Return whether so many workers died during one of the tasks that are at work."""
    history = CrashHistory()
    history.listen(events, state)
    return any(len(history.workers(node, me)) >= crashes for node in state.live_nodes() if node.is_at_work)


def _worker_in(crashed: Any) -> str:  # noqa: ANN401 any program may have written it
    return str(crashed.get("workerId")) if isinstance(crashed, dict) else "unknown"


def _worker_died(task: TaskSpec, workers: Sequence[str]) -> str:
    return (
        f"task '{task.name}' is not called again: {len(workers)} workers died or were cut off while it ran "
        f"({', '.join(workers)}; max_crashes={task.max_crashes}). Look for a crash or for too much memory in the task; "
        "give it isolation: process, so that only its process dies; or raise max_crashes if the workers died of "
        "something else"
    )


def _expression_died(node: NodeState, workers: Sequence[str]) -> str:
    return (
        f"the expression of node '{node.node_id}' is not evaluated again: {len(workers)} workers died or were cut off "
        f"while it ran ({', '.join(workers)}). It reads a value whose own code runs when it is loaded, compared or "
        "shown: let the task that makes the value return numbers, text, lists or dictionaries instead"
    )


def _at_most_once(node: NodeState, task: TaskSpec, me: str) -> str:
    who = "this worker lost its connection" if node.worker_id == me else f"worker '{node.worker_id}' stopped or died"
    return (
        f"task '{task.name}' was started and is not called again (at_most_once): {who} before the result was recorded, "
        "so the outcome of the call is unknown. Find out whether it took effect before you submit the run again"
    )
