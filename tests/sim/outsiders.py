"""Outsiders: workers that drive executions on registered graphs with the core's commands, through a gateway.

Several of them race on the same executions. A command without an answer may have taken effect, may do so later, or
never: the outsider looks again, or repeats the command under the same key.
"""

import asyncio
import random
from typing import TYPE_CHECKING, Any, Final

from pyoco_server.app.ports import UnavailableError
from pyoco_server.app.runs.commands import CommandResult, Sender
from pyoco_server.app.runs.run_log import OpenRun, RunNotFoundError
from pyoco_server.app.runs.submit import IdempotencyKeyError
from pyoco_server.app.snapshots.status import run_status
from pyoco_server.core import Actor, ActorKind, CommandRejected, ExecutionState, NodeStatus
from pyoco_server.core.json_codec import JsonObject
from pyoco_server.core.state import NodeState
from pyoco_server.gateway.timeouts import in_time
from tests.sim.asking import Caller, NoAnswerError
from tests.sim.history import CREATED, EXISTS, Kind, Operation
from tests.sim.outside import GRAPH_IDS, Given

if TYPE_CHECKING:
    from tests.sim.world import World

DEADLINE_SEC: Final = 2.0
ARCHIVE: Final = "ArchiveExecution"


class Outsider(Caller):
    """One such worker."""

    def __init__(self, world: "World", name: str, chance: random.Random) -> None:
        super().__init__(world, name, chance)
        self._outside = world.outside
        self._count = 0
        self._seen: dict[str, ExecutionState] = {}
        """The state of executions when this outsider last looked."""

    @property
    def name(self) -> str:
        """Its worker id."""
        return self.process.name

    async def act(self, times: int, within_sec: float) -> None:
        """Create an execution, then do random deeds for a while."""
        chance = self._chance
        deeds = (*[self.drive] * 14, self.create, self.create, self.cancel, self.get, self.look, self.resume_a_run)
        await self.create()
        for _ in range(times):
            await asyncio.sleep(chance.random() * 2 * within_sec / times)
            await deeds[int(chance.random() * len(deeds))]()

    # --- Executions --------------------------------------------------------------------------------------------------

    async def create(self) -> None:
        """Create an execution; sometimes repeat a request that this or another outsider has sent."""
        chance, wanted = self._chance, self._outside.wanted
        if wanted and chance.random() < 0.3:
            fields, key = wanted[int(chance.random() * len(wanted))]
        else:
            fields = {"graphId": GRAPH_IDS[int(chance.random() * len(GRAPH_IDS))]}
            key = f"execution {len(wanted)}"
            if chance.random() < 0.5:
                fields, key = {**fields, "executionId": f"execution-{len(wanted)}"}, None
            wanted.append((fields, key))
        name = str(key or fields["executionId"])
        operation = Operation(Kind.CREATE, "", self._loop.steps, key=name, client=self.name)
        with self._history.asking(operation):
            try:
                answer = await self._ask(
                    f"create {name}", lambda gate: in_time(gate.commands.create_from(fields, self._sender(key)))
                )
                operation.run_id, operation.answer = answer.execution_id, CREATED if answer.events else EXISTS
            except CommandRejected as error:
                operation.run_id, operation.answer = error.command.execution_id, EXISTS
            except RunNotFoundError as error:
                self._world.violation("no acknowledged run is lost", f"{name} was created, and then: {error}")
                return
            except (NoAnswerError, UnavailableError):
                return
            operation.answered = self._loop.steps
            self._outside.note(operation.run_id, is_left=self._chance.random() < 0.3)

    async def cancel(self) -> None:
        """Cancel some execution, in one of the two ways; not without reconcilers, which end nodes that are running."""
        execution_id = self._some_execution()
        if execution_id is None or not self._world.faults.sweeps:
            return
        reason, sender = "changed my mind", self._sender()
        if self._chance.random() < 0.5:
            await self._asking_about(
                Kind.CANCEL,
                execution_id,
                lambda gate: in_time(gate.commands.cancel(execution_id, sender, reason)),
                lambda snapshot: str(snapshot["status"]),
            )
        else:
            await self._asking_about(
                Kind.CANCEL,
                execution_id,
                lambda gate: in_time(
                    gate.commands.give_from(execution_id, {"type": "CancelExecution", "reason": reason}, sender)
                ),
                lambda answer: str(answer.snapshot_of_request()["status"]),
            )

    async def get(self) -> None:
        """Read the state of some execution from its log."""
        execution_id = self._some_execution()
        if execution_id is not None:
            await self._look_at(execution_id)

    async def look(self) -> None:
        """Look at the snapshot of some execution."""
        execution_id = self._some_execution()
        if execution_id is not None:
            await self._look(execution_id)

    async def resume_a_run(self) -> None:
        """Resume the waiting nodes of a run that a worker of the platform drives, with the core's command."""
        runs = self._world.runs
        if not runs:
            return
        run_id = runs[int(self._chance.random() * len(runs))]
        state = await self._look_at(run_id)
        waiting = [node for node in _live(state) if node.status is NodeStatus.WAITING]
        for node in waiting:
            fields = {"type": "ResumeNode", "nodeId": node.node_id, "input": 1}
            given = await self._give(run_id, fields, self._new_key())
            if given is not None and given.is_taken:
                self._world.resumed.add((run_id, node.node_id))

    async def drive(self) -> None:
        """Give a command to some execution, chosen by its state at the last look."""
        execution_id = self._some_execution()
        if execution_id is None:
            return
        state = self._seen.get(execution_id)
        if state is None or self._chance.random() < 0.8:
            state = await self._look_at(execution_id)
        choices = self._choices(state) if state is not None else []
        if not choices:
            return
        fields = choices[int(self._chance.random() * len(choices))]
        key = self._new_key() if self._chance.random() < 0.7 else None
        for _ in range(3):
            is_known = await self._give(execution_id, fields, key) is not None
            if key is None or self._chance.random() < (0.8 if is_known else 0.3):
                return  # without a key it could take effect twice: look again first

    async def finish(self, execution_id: str) -> None:
        """Give the next command to each live node of an execution."""
        state = await self._look_at(execution_id)
        if state is None or state.is_terminal or state.is_cancel_requested:
            return
        if state.started_at is None:
            await self._give(execution_id, {"type": "StartExecution"}, self._new_key())
        for node in _live(state):
            await self._give(execution_id, self._next_step(node), self._new_key())

    async def archive(self, execution_id: str) -> None:
        """Archive an execution."""
        await self._give(execution_id, {"type": ARCHIVE}, self._new_key())

    # --- Commands ----------------------------------------------------------------------------------------------------

    def _next_step(self, node: NodeState) -> JsonObject:
        """Return the command that brings a node nearer to its end, also if another worker owns it."""
        about: JsonObject = {"nodeId": node.node_id}
        if node.status is NodeStatus.WAITING:
            return {**about, "type": "ResumeNode"}
        if node.is_at_work and node.worker_id == self.name:
            return {**about, "type": "SucceedNode", "attempt": node.attempt}
        return {**about, "type": "StartNode", "workerId": self.name, "attempt": node.attempt + 1}

    def _choices(self, state: ExecutionState) -> list[JsonObject]:
        """Return valid commands, and some invalid ones."""
        if state.is_terminal:
            return [{"type": ARCHIVE}]
        if state.started_at is None:
            return [{"type": "StartExecution"}]
        return [{"type": "StartExecution"}, *(fields for node in _live(state) for fields in self._node_choices(node))]

    def _node_choices(self, node: NodeState) -> list[JsonObject]:
        about: JsonObject = {"nodeId": node.node_id}
        mine: JsonObject = {**about, "attempt": node.attempt}
        start: JsonObject = {**about, "type": "StartNode", "workerId": self.name}
        if node.status is NodeStatus.WAITING:
            request = {**mine, "type": "RequestResumeNode", "resumeKey": node.wait_key}
            return [request, *[{**mine, "type": "ResumeNode", "resumeKey": node.wait_key}] * 3]
        if not node.is_at_work:  # ready, or between two attempts
            return [*[{**start, "attempt": node.attempt + 1}] * 4, {**about, "type": "MarkNodeReady"}]
        if node.worker_id != self.name:
            return [start, {**start, "attempt": node.attempt + 1}]  # takes over from a worker that may be gone
        return [
            *[{**mine, "type": "SucceedNode", "output": {"by": self.name}}] * 5,
            {**mine, "type": "ReportNodeProgress", "progress": 50},
            {**mine, "type": "FailNode", "error": {"code": "NO", "message": "no good"}},
            {**mine, "type": "FailNode", "error": {"code": "NO", "message": "no good"}, "retryable": False},
            {**mine, "type": "PutNodeWaiting", "waitKey": "k"},
            {**mine, "type": "PutNodeWaiting", "waitKey": "k", "deadline": self._deadline(), "default": 1},
        ]

    def _deadline(self) -> float:
        return self._world.workers[0].clock.now().timestamp() + DEADLINE_SEC

    async def _give(self, execution_id: str, fields: JsonObject, key: str | None) -> Given | None:
        """Give a command; return None if its outcome is unknown."""
        name = f"{fields['type']} {fields.get('nodeId', '')} to {execution_id} ({key})"
        given = Given(execution_id, fields, key)
        self._outside.given.append(given)
        if fields["type"] == ARCHIVE:
            self._outside.archiving.add(execution_id)
        try:
            answer = await self._ask(
                name, lambda gate: in_time(gate.commands.give_from(execution_id, fields, self._sender(key)))
            )
        except (NoAnswerError, UnavailableError):
            return None
        except (CommandRejected, IdempotencyKeyError) as error:
            given.refusal = str(error)
            return given
        except RunNotFoundError as error:
            self._world.violation("no acknowledged run is lost", f"{name}: {error}")
            return given
        self._note(given, answer)
        return given

    def _note(self, given: Given, answer: CommandResult) -> None:
        given.event_ids = [event.event_id for event in answer.events]
        given.is_taken = True
        if given.fields["type"] == ARCHIVE:
            self._outside.archiving.discard(given.execution_id)
        self._outside.note_version(given.execution_id, answer.version)

    # --- Looking -----------------------------------------------------------------------------------------------------

    async def _look_at(self, execution_id: str) -> ExecutionState | None:
        """Return the state of an execution from its log; None if no gateway answers."""
        at_least = self._outside.versions.get(execution_id, 0)
        found: list[ExecutionState] = []

        def status_of(state: ExecutionState) -> str:
            found.append(state)
            return run_status(state).value

        async def looking(gate: Any) -> ExecutionState:
            run: OpenRun = await gate.run_log.open(execution_id)
            return run.execution.state

        await self._asking_about(Kind.GET, execution_id, looking, status_of)
        if not found:
            return None
        [state] = found
        if state.version < at_least:
            details = f"{execution_id}: version {state.version} after an answer had {at_least}"
            self._world.violation("what was answered is in the log", details)
        self._seen[execution_id] = state
        self._outside.note_version(execution_id, state.version)
        return state

    def _sender(self, key: str | None = None) -> Sender:
        return Sender(actor=Actor(ActorKind.EXTERNAL, self.name), key=key)

    def _new_key(self) -> str:
        self._count += 1
        return f"{self.name} {self._count}"

    def _some_execution(self) -> str | None:
        known = [each for each in self._outside.executions if each not in self._outside.left]
        return known[int(self._chance.random() * len(known))] if known else None


def _live(state: ExecutionState | None) -> list[NodeState]:
    """Return the live nodes, in a stable order."""
    return [] if state is None else sorted(state.live_nodes(), key=lambda node: node.node_id)
