"""What a graph says, term by term, before anybody asks whether it makes sense.

The terms keep everything that was written, each with its place in the file; what they mean is decided in
``graph_steps``.
"""

from collections.abc import Iterator
from enum import StrEnum, unique
from typing import TypeAlias

import msgspec

from pyoco_server.flows.positions import Mark


@unique
class Block(StrEnum):
    """The words that open a block when a parenthesis follows; anywhere else they are ordinary names."""

    PIPE = "pipe"
    SWITCH = "switch"
    REPEAT = "repeat"
    FOREACH = "foreach"
    UNTIL = "until"


class Word(msgspec.Struct, frozen=True):
    """A name, number, text or template (then with its braces), and where it stands."""

    text: str
    mark: Mark


class Argument(msgspec.Struct, frozen=True):
    """``name=value`` in the parentheses of a block."""

    name: Word
    value: Word


class TaskTerm(msgspec.Struct, frozen=True):
    """``task`` or ``node:task``."""

    task: Word
    node: Word | None = None

    @property
    def name(self) -> Word:
        """The name the node goes by."""
        return self.node or self.task


class PipeTerm(msgspec.Struct, frozen=True):
    """``pipe(name)``."""

    name: Word


class CaseTerm(msgspec.Struct, frozen=True):
    """``key: pipeline`` inside a switch; ``is_default`` for the bare word ``default``."""

    key: Word
    is_default: bool
    body: "Pipeline"


class SwitchTerm(msgspec.Struct, frozen=True):
    """``switch(on=…){ … }``."""

    mark: Mark
    arguments: tuple[Argument, ...]
    cases: tuple[CaseTerm, ...]


class LoopTerm(msgspec.Struct, frozen=True):
    """``repeat(…){ … }``, ``foreach(…){ … }`` or ``until(…){ … }``."""

    block: Block
    mark: Mark
    arguments: tuple[Argument, ...]
    body: "Pipeline"


class GroupTerm(msgspec.Struct, frozen=True):
    """``( pipeline & pipeline … )``."""

    mark: Mark
    branches: "tuple[Pipeline, ...]"


Term: TypeAlias = TaskTerm | PipeTerm | SwitchTerm | LoopTerm | GroupTerm
Pipeline: TypeAlias = tuple[Term, ...]
"""Terms one after the other; never empty."""


def last_argument(arguments: tuple[Argument, ...], name: str) -> Word | None:
    """The value of an argument; the last one counts if it was given several times."""
    return next((argument.value for argument in reversed(arguments) if argument.name.text == name), None)


def task_terms(pipeline: Pipeline) -> Iterator[TaskTerm]:
    """All tasks in a pipeline, however deep inside (pipes are not followed)."""
    for term in pipeline:
        match term:
            case TaskTerm():
                yield term
            case LoopTerm():
                yield from task_terms(term.body)
            case SwitchTerm():
                for case in term.cases:
                    yield from task_terms(case.body)
            case GroupTerm():
                for branch in term.branches:
                    yield from task_terms(branch)
            case PipeTerm():  # last of a closed set
                pass
