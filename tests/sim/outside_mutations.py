"""Bugs planted where commands from outside are taken, and where those they concern are told."""

from collections.abc import Iterator
from typing import Any, Final

from pyoco_server.app import command_desk
from pyoco_server.app.command_desk import Answer, Asked, CommandDesk
from pyoco_server.app.execution import Decision, Execution
from pyoco_server.app.ports import UnavailableError
from pyoco_server.app.waking import WakeUps
from pyoco_server.core import Commit, Event, ExecutionState, decode_command
from tests.sim.planting import Mutation, kept_in, replaced

OUTSIDE: Final[dict[str, Mutation]] = {}
_mutation = kept_in(OUTSIDE)


@_mutation
def a_command_answered_before_it_is_durable() -> Iterator[None]:
    """The log did not answer, and whoever gave the command is told what it leads to."""
    original = CommandDesk.give

    async def give(desk: CommandDesk, execution_id: str, asked: Asked) -> Answer:
        run = await desk._desk.open(execution_id)
        try:
            return await original(desk, execution_id, asked)
        except UnavailableError:
            command = decode_command({**asked.fields, "executionId": execution_id})
            made = run.execution.step(run.execution.state, command)
            run.execution._take(made.events, made.state)
            return Answer(execution_id, made.events, run)

    with replaced(CommandDesk, "give", give):
        yield


@_mutation
def a_command_retried_without_rereading_the_log() -> Iterator[None]:
    """Somebody else was quicker; what was worked out from the state before is appended behind theirs."""
    original = Execution.decide

    async def decide(execution: Execution, decision: Decision, **options: Any) -> list[Event]:
        made: list[Commit] = []

        def once(state: ExecutionState) -> Commit:
            if not made:
                made.append(decision(state))
            return made[0]

        is_command = decision.__qualname__.startswith("CommandDesk.give.")
        return await original(execution, once if is_command else decision, **options)

    with replaced(Execution, "decide", decide):
        yield


@_mutation
def the_key_of_a_command_ignored() -> Iterator[None]:
    """The same command again, because nobody had answered, is done again."""
    with replaced(command_desk, "_was_given", lambda _events, _key, _command: False):
        yield


@_mutation
def an_execution_answered_before_it_is_durable() -> Iterator[None]:
    """The log did not answer when an execution was created, and it is said to be there."""
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
    """A wake-up that gets lost is left to the sweep."""
    with replaced(WakeUps, "send", WakeUps.send_once):
        yield
