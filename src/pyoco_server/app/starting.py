"""What a process begins as soon as the log allows it.

A node that becomes ready is begun by whoever drives the run, in the very commit that made it ready: the start costs no
append of its own.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from types import MappingProxyType
from typing import Any

from pyoco_server.app.ports import Clock
from pyoco_server.app.unused_told import UNUSED, Unused, read_unused
from pyoco_server.app.wheels_used import WHEELS, read_wheels
from pyoco_server.core import Actor, ActorKind, Command, Event, ExecutionState, NodeStatus
from pyoco_server.core.commands import NodeCommand, PutNodeWaiting, StartNode
from pyoco_server.core.payloads import NodeReady, NodeStarted
from pyoco_server.core.wire import JsonObject, rfc3339
from pyoco_server.flows.model import Step, TaskStep, WaitSpec


class Starter:
    """Knows the steps of one run, and gives commands in the name of one worker."""

    def __init__(
        self,
        run_id: str,
        steps: dict[str, Step],
        *,
        worker_id: str,
        clock: Clock,
        wheels: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """``wheels``: those in use here, which the log is to name."""
        self.steps = steps
        """By node; blocks add to it as they go."""
        self.worker_id = worker_id
        self.actor = Actor(ActorKind.SYSTEM, worker_id)
        self._run_id = run_id
        self._clock = clock
        self.unused: Unused = {}
        """Parameters nothing takes, which the log is to name."""
        self._wheels = dict(wheels)
        self._named: JsonObject = {WHEELS: {}, UNUSED: {}}

    def listen(self, events: Sequence[Event], _: ExecutionState) -> None:
        """Take note of what the log named last."""
        for event in events:
            payload = event.payload
            if type(payload) is NodeStarted and payload.extra:
                extra = payload.extra
                said = {WHEELS: read_wheels(extra.get(WHEELS)), UNUSED: read_unused(extra.get(UNUSED))}
                self._named |= {name: value for name, value in said.items() if value is not None}

    def _news(self) -> JsonObject:
        """What the log has not been told yet."""
        known: JsonObject = {WHEELS: self._wheels, UNUSED: self.unused}
        return {name: value for name, value in known.items() if value != self._named[name]}

    def follow_ups(self, events: Sequence[Event], state: ExecutionState) -> Iterator[Command]:
        """Begin what ``events`` made ready; a wait begins by waiting."""
        for event in events:
            payload = event.payload
            if type(payload) is not NodeReady or payload.node_id not in self.steps:
                continue
            node, step = state.nodes[payload.node_id], self.steps[payload.node_id]
            if node.status is NodeStatus.READY:
                yield self.command(StartNode, node.node_id, attempt=node.attempt + 1, worker_id=self.worker_id)
                if isinstance(step, TaskStep) and step.task.wait is not None:
                    yield self.waiting(node.node_id, step.task.wait)

    def waiting(self, node_id: str, wait: WaitSpec) -> Command:
        """Put a node to wait, for as long as its author allows."""
        extra: JsonObject = {}
        if wait.deadline_sec is not None:
            extra["deadline"] = rfc3339(self._clock.now() + timedelta(seconds=wait.deadline_sec))
            if wait.has_default:
                extra["default"] = wait.default
        return self.command(PutNodeWaiting, node_id, wait_key=wait.key, prompt=dict(wait.prompt), extra=extra)

    def command(self, command: type[NodeCommand], node_id: str, **fields: Any) -> Command:  # noqa: ANN401 wire fields
        """A command about a node of this run."""
        if command is StartNode:
            fields["extra"] = self._news()
        given: Any = command(execution_id=self._run_id, actor=self.actor, node_id=node_id, **fields)
        made: Command = given
        return made
