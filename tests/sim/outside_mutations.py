"""Bugs planted where commands from outside are accepted, and where workers and clients are notified of them."""

from collections.abc import Iterator
from typing import Any, Final

from pyoco_server.app.ports import UnavailableError
from pyoco_server.app.runs import commands as run_commands
from pyoco_server.app.runs.commands import CommandResult, RunCommands, Sender
from pyoco_server.app.runs.job import WakeUpQueue
from pyoco_server.app.runtime.execution import Decision, Execution
from pyoco_server.core import Command, Commit, Event, ExecutionState
from tests.sim.planting import Mutation, kept_in, replaced

OUTSIDE: Final[dict[str, Mutation]] = {}
_mutation = kept_in(OUTSIDE)


@_mutation
def a_command_answered_before_it_is_durable() -> Iterator[None]:
    """The log did not answer, and the client is answered with the effect of its command."""
    original = RunCommands.give

    async def give(commands: RunCommands, command: Command, sender: Sender) -> CommandResult:
        run = await commands._run_log.open(command.execution_id)
        try:
            return await original(commands, command, sender)
        except UnavailableError:
            made = run.execution.step(run.execution.state, command)
            run.execution._take(made.events, made.state)
            return CommandResult(command.execution_id, made.events, run)

    with replaced(RunCommands, "give", give):
        yield


@_mutation
def a_command_retried_without_rereading_the_log() -> Iterator[None]:
    """Another client was first; a decision on the state before is appended behind its commit."""
    original = Execution.decide

    async def decide(execution: Execution, decision: Decision, **options: Any) -> list[Event]:
        made: list[Commit] = []

        def once(state: ExecutionState) -> Commit:
            if not made:
                made.append(decision(state))
            return made[0]

        is_command = decision.__qualname__.startswith("RunCommands.give.")
        return await original(execution, once if is_command else decision, **options)

    with replaced(Execution, "decide", decide):
        yield


@_mutation
def the_key_of_a_command_ignored() -> Iterator[None]:
    """A command that is repeated because there was no answer is done again."""
    with replaced(run_commands, "_was_handled", lambda _events, _key, _command: False):
        yield


@_mutation
def an_execution_answered_before_it_is_durable() -> Iterator[None]:
    """The log did not answer when an execution was created, and the client is answered that it exists."""
    original = Execution.do

    async def do(execution: Execution, command: Any, **options: Any) -> list[Event]:
        try:
            return await original(execution, command, **options)
        except UnavailableError:
            if command.type.value != "CreateExecution":
                raise
            events = execution.step(execution.state, command).events
            execution.begin_at(events, 1)
            return events

    with replaced(Execution, "do", do):
        yield


@_mutation
def a_wake_up_is_tried_once() -> Iterator[None]:
    """A wake-up that gets lost is left to the reconciler."""
    with replaced(WakeUpQueue, "send", WakeUpQueue.send_once):
        yield
