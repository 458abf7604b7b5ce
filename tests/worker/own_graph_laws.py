"""What must hold of a run that keeps its own graph: which nodes a flow demands, and which calls a log allows."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from pyoco_server.app.runtime.crashes import AT_MOST_ONCE
from pyoco_server.core import Event, EventType, ExecutionState, NodeStatus
from pyoco_server.core.payloads import NodeCreated, NodeStarted
from pyoco_server.flows.model import (
    FlowModel,
    ForEach,
    Parallel,
    Program,
    Repeat,
    Step,
    Switch,
    TaskStep,
    Trigger,
    Until,
)
from tests.worker.own_graph_flows import FAILS

# --- What a flow demands ---------------------------------------------------------------------------------------------


class Ends(NamedTuple):
    """How often each task ends in which way in a run that completes."""

    succeeded: Counter[str]
    failed: Counter[str]
    skipped: Counter[str]


def demanded(model: FlowModel, params: Mapping[str, Any]) -> Ends:
    """What a run of the flow must have done before it may be COMPLETED."""
    if isinstance(model.body, Program):
        return Ends(_demanded(model.body.steps, params), Counter(), Counter())
    ends = Ends(Counter(), Counter(), Counter())
    tasks, behind = {task.name: task for task in model.body.tasks}, model.body.depends_on

    def has_succeeded(name: str) -> bool:
        if not any(name in those for those in ends):
            befores = [has_succeeded(each) for each in behind[name]]
            may_run = (any if tasks[name].trigger is Trigger.ANY else all)(befores) or not befores
            fails = FAILS in tasks[name].inputs
            (ends.skipped if not may_run else ends.failed if fails else ends.succeeded)[name] += 1
        return name in ends.succeeded

    for name in tasks:
        has_succeeded(name)
    return ends


def _demanded(steps: Iterable[Step], params: Mapping[str, Any]) -> Counter[str]:
    total: Counter[str] = Counter()
    for step in steps:
        match step:
            case TaskStep(task):
                total[task.name] += 1
            case Parallel(branches):
                total += _demanded([each for branch in branches for each in branch], params)
            case Switch(_, cases, default):
                taken = [case.body for case in cases if case.value == params["way"]]
                total += _demanded(taken[0] if taken else default or (), params)
            case Repeat(count, body):
                total += _times(_demanded(body, params), params["count"] if isinstance(count, str) else count)
            case ForEach():
                total += _times(_demanded(step.body, params), len(params["items"]))
            case Until():  # last of a closed set
                total += _times(_demanded(step.body, params), 1 if params["count"] > 0 else 3)
    return total


def _times(once: Counter[str], times: int) -> Counter[str]:
    return Counter({name: many * times for name, many in once.items() if times})


# --- What a log says of calls ----------------------------------------------------------------------------------------

Begun = tuple[str, int]
"""A node, and the number of an attempt at it."""
_LOOP: Final = re.compile(r":(?:repeat|foreach|until)(?::\d+)?\[(\d+)\]")


def tasks_of_nodes(events: Sequence[Event], *types: str) -> dict[str, str]:
    """By node, the task that it calls, or the wait that it is if ``types`` include that."""
    return {
        payload.node_id: str(payload.described["task"])
        for event in events
        if isinstance(payload := event.payload, NodeCreated) and payload.node_type in (types or ("Task",))
    }


def node_called(events: Sequence[Event], task: str, rounds: Sequence[int]) -> str:
    """The node that a call is for: a task stands in one place of these flows, and ``rounds`` are those around it."""
    [node_id] = [
        node_id
        for node_id, name in tasks_of_nodes(events).items()
        if name == task and [*map(int, _LOOP.findall(node_id))] == [*rounds]
    ]
    return node_id


def starts_of_tasks(events: Sequence[Event]) -> list[NodeStarted]:
    """What the log says of attempts at tasks that have begun."""
    tasks = tasks_of_nodes(events)
    payloads = [event.payload for event in events]
    return [each for each in payloads if isinstance(each, NodeStarted) and each.node_id in tasks]


def check_attempts_are_numbered(events: Sequence[Event]) -> None:
    """Every start of a node has the next number: one that was committed and not called is not counted twice."""
    numbers: dict[str, int] = {}
    for start in starts_of_tasks(events):
        assert start.attempt == numbers.get(start.node_id, 0) + 1, f"{start.node_id}: attempt {start.attempt}"
        numbers[start.node_id] = start.attempt


# --- How a run ended ----------------------------------------------------------------------------------------------


def is_cancelled(events: Sequence[Event]) -> bool:
    """Whether the log has a request to cancel the run."""
    return any(event.type is EventType.EXECUTION_CANCEL_REQUESTED for event in events)


def check_end(
    model: FlowModel, params: dict[str, Any], events: Sequence[Event], state: ExecutionState, lost: set[str]
) -> None:
    """How the run ended follows from its flow, and from what was done to it.

    ``lost``: tasks that were at work when their worker was lost, and that are called at most once.
    """
    names = tasks_of_nodes(events, "Task", "Wait")
    ended = {status: _named(names, state, status) for status in NodeStatus}
    if is_cancelled(events):
        assert state.status == "CANCELED"
    elif state.status == "FAILED":
        failed = [node for node in state.nodes.values() if node.status is NodeStatus.FAILED and node.node_id in names]
        final = [node for node in failed if (node.error or {})["code"] == AT_MOST_ONCE]
        assert final
        assert {names[node.node_id] for node in final} <= lost
    else:
        assert state.status == "COMPLETED"
        demand = demanded(model, params)
        assert ended[NodeStatus.SUCCEEDED] == demand.succeeded
        assert ended[NodeStatus.FAILED] == demand.failed
        assert ended[NodeStatus.CANCELED] == demand.skipped
        assert all(node.skip is not None for node in state.nodes.values() if node.status is NodeStatus.CANCELED)


def _named(names: dict[str, str], state: ExecutionState, status: NodeStatus) -> Counter[str]:
    return Counter(
        names[node.node_id] for node in state.nodes.values() if node.node_id in names and node.status is status
    )
