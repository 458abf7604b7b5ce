"""Records which edges belong to which flow of pyoco.

pyoco stores the edges of a flow on its tasks, so two flows that share a task would each see the edges of the other.
This module records the edges of each flow where they are made, at ``flow >> …``; it does not change the tasks, which
pyoco's own engine uses. Importing it replaces ``Flow.__rshift__`` by a function that records and calls the original.

An edge can also be stated outside of any flow: ``(a & b) >> c`` on a line of its own. It belongs to every flow that has
both tasks. If a flow had both tasks already when the edge was stated, and another flow has both, too, the edge could be
meant for either of them: that is refused, and the error names both flows.
"""

import functools
import sys
import weakref
from collections.abc import Collection, Iterable, Iterator
from itertools import pairwise
from typing import Any, Final, NamedTuple

from pyoco.core.models import Flow, Task  # type: ignore[import-untyped]  # pyoco ships no type information
from pyoco.dsl import nodes as dsl  # type: ignore[import-untyped]

from pyoco_server.flows.errors import FlowError

_RECORD: Final = "_pyoco_server_edges"
_Edge = tuple[Task, Task]
"""A task, and the task that waits for it."""


class _Seen(NamedTuple):
    """A task as it was when it was added to a flow."""

    task: Task
    trigger: str
    stated: tuple[Task, ...]
    """The tasks it waited for by edges stated outside of flows."""


class FlowEdges:
    """The edges of one flow, and its tasks as they were when they were added to it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.place = ""
        """Where the flow was last extended: file and line."""
        self.made: list[_Edge] = []
        self._seen: dict[int, _Seen] = {}

    def extend(self, flow: Flow, other: object, joints: Iterable[_Edge], place: str) -> None:
        """Record the edges that ``flow >> other`` made; ``joints`` are those from the end of the flow to ``other``."""
        self.name, self.place = flow.name, place
        steps = other.to_subflow().steps if hasattr(other, "to_subflow") else []
        links = [*_links(steps)]
        if not flow.has_control_flow():
            self.made += [*joints, *links]
        _note_made(links)
        for task in [*_heads(other), *(task for step in steps for task in _tasks(step))]:
            self._seen[id(task)] = _Seen(task, task.trigger_policy, tuple(_stated(task)))

    def check(self, tasks: Collection[Task]) -> None:
        """Refuse an edge that was stated after the flow had both tasks if another flow has both, too: FlowError."""
        for target in tasks:
            for source in self._restated(target):
                other = self._other_with(source, target) if id(source) in self._seen else None
                if other is not None:
                    raise FlowError(
                        f"flow '{self.name}' ({self.place}): {source.name} >> {target.name} was stated outside of a "
                        f"flow when this one had both tasks, and flow '{other.name}' ({other.place}) has them, too; "
                        "write the edge inside the flow that is to have it, or give one flow tasks of its own"
                    )

    def trigger_of(self, task: Task) -> str:
        """Return the task's trigger policy in this flow; a branch stated for another flow does not change it."""
        newest: str = task.trigger_policy
        if not self._restated(task) or self._other_with(task) is None:
            return newest
        return self._seen[id(task)].trigger

    def _restated(self, task: Task) -> list[Task]:
        """Return the tasks it waits for by edges that were stated after it was added to the flow."""
        seen = self._seen.get(id(task))
        before = {id(source) for source in seen.stated} if seen is not None else set()
        return [] if seen is None else [source for source in _stated(task) if id(source) not in before]

    def _other_with(self, *tasks: Task) -> "FlowEdges | None":
        others = (other for other in [*_records] if other is not self)
        return next((other for other in others if all(id(task) in other._seen for task in tasks)), None)  # noqa: SLF001


_records: "weakref.WeakSet[FlowEdges]" = weakref.WeakSet()
_made_by_flows: dict[int, tuple["weakref.ref[Task]", set[int]]] = {}
"""For each task the ids of those it waits for by an edge that a flow made; its dependencies keep them alive."""


def edges_of(flow: Flow) -> dict[str, tuple[str, ...]]:
    """Return for each task of the flow the names of the tasks it waits for; FlowError if that is ambiguous."""
    tasks = [*flow.tasks]
    record = _record_of(flow)
    if record is None:  # the flow was made before this module was imported, or without >>
        record = FlowEdges(flow.name)
        record.made = [*_links(flow.build_program().steps)]
    record.check(tasks)
    names = {task.name for task in tasks}
    depends_on: dict[str, set[str]] = {name: set() for name in names}
    for source, target in [*record.made, *((source, task) for task in tasks for source in _stated(task))]:
        if source.name in names and target.name in names:
            depends_on[target.name].add(source.name)
    return {name: tuple(sorted(sources)) for name, sources in depends_on.items()}


def trigger_of(flow: Flow, task: Task) -> str:
    """Return pyoco's trigger policy of a task in this flow."""
    record = _record_of(flow)
    policy: str = task.trigger_policy if record is None else record.trigger_of(task)
    return policy


def _record_of(flow: Flow) -> FlowEdges | None:
    found = vars(flow).get(_RECORD)
    return found if isinstance(found, FlowEdges) else None


def _stated(task: Task) -> list[Task]:
    """Return the tasks it waits for by an edge that no flow made."""
    made = _made_by_flows.get(id(task))
    return [source for source in task.dependencies if made is None or id(source) not in made[1]]


def _note_made(edges: Iterable[_Edge]) -> None:
    for source, target in edges:
        key = id(target)
        if key not in _made_by_flows:
            forget = functools.partial(_forget, key)
            _made_by_flows[key] = (weakref.ref(target, forget), set())
        _made_by_flows[key][1].add(id(source))


def _forget(key: int, _: object) -> None:
    _made_by_flows.pop(key, None)


def _heads(other: Any) -> list[Task]:  # noqa: ANN401 whatever pyoco takes on the right of >>
    """Return the tasks that wait for the end of the flow when pyoco extends it by ``other``."""
    if hasattr(other, "to_subflow"):
        return [step.task for step in other.to_subflow().steps[:1] if isinstance(step, dsl.TaskNode)]
    items = other if isinstance(other, list | tuple) else [other]
    tasks = [item.task if hasattr(item, "task") else item for item in items]
    return [task for task in tasks if isinstance(task, Task)]


def _links(steps: list[dsl.DSLNode]) -> Iterator[_Edge]:
    """Return the edges that pyoco stored on tasks when these steps were chained, also those inside blocks."""
    for left, right in pairwise(steps):
        before, after = _tasks(left), _tasks(right)
        if before and after:
            yield before[-1], after[0]
    for step in steps:
        for body in _bodies(step):
            yield from _links(body)


def _tasks(step: dsl.DSLNode) -> list[Task]:
    if isinstance(step, dsl.TaskNode):
        return [step.task]
    return [task for body in _bodies(step) for inner in body for task in _tasks(inner)]


def _bodies(step: dsl.DSLNode) -> list[list[dsl.DSLNode]]:
    if isinstance(step, dsl.SwitchNode):
        return [case.target.steps for case in step.cases]
    return [step.body.steps] if hasattr(step, "body") else []


def _record_every_extension() -> None:
    original = Flow.__rshift__

    @functools.wraps(original)
    def extend(flow: Flow, other: object) -> Any:  # noqa: ANN401 what pyoco returns
        tail = [*flow._tail]  # noqa: SLF001 where pyoco keeps the end of the flow; there is no other way to know it
        joints = [(source, target) for source in tail for target in _heads(other)]
        new = [(source, target) for source, target in joints if source not in target.dependencies]
        record = _record_of(flow)
        if record is None and not flow.tasks:
            record = FlowEdges(flow.name)
            vars(flow)[_RECORD] = record
            _records.add(record)
        made = original(flow, other)
        if not flow.has_control_flow():
            _note_made(new)
        if record is not None:
            caller = sys._getframe(1)  # noqa: SLF001 where the flow is written, for messages
            record.extend(flow, other, joints, f"{caller.f_code.co_filename}, line {caller.f_lineno}")
        return made

    Flow.__rshift__ = extend


_record_every_extension()
