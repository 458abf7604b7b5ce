"""The syntax tree of a graph: what was written, each term with its place in the file; ``build`` decides its meaning."""

from collections.abc import Iterator
from enum import StrEnum, unique
from typing import TypeAlias

import msgspec

from pyoco_server.flows.positions import SourcePosition


@unique
class Block(StrEnum):
    """The words that open a block if a parenthesis follows; elsewhere they are ordinary names."""

    PIPE = "pipe"
    SWITCH = "switch"
    REPEAT = "repeat"
    FOREACH = "foreach"
    UNTIL = "until"


class Word(msgspec.Struct, frozen=True):
    """A name, number, text or template (with its braces), and its place."""

    text: str
    mark: SourcePosition


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
        """The name of the node."""
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

    mark: SourcePosition
    arguments: tuple[Argument, ...]
    cases: tuple[CaseTerm, ...]


class LoopTerm(msgspec.Struct, frozen=True):
    """``repeat(…){ … }``, ``foreach(…){ … }`` or ``until(…){ … }``."""

    block: Block
    mark: SourcePosition
    arguments: tuple[Argument, ...]
    body: "Pipeline"


class GroupTerm(msgspec.Struct, frozen=True):
    """``( pipeline & pipeline … )``."""

    mark: SourcePosition
    branches: "tuple[Pipeline, ...]"


Term: TypeAlias = TaskTerm | PipeTerm | SwitchTerm | LoopTerm | GroupTerm
Pipeline: TypeAlias = tuple[Term, ...]
"""Terms one after the other; never empty."""


def last_argument(arguments: tuple[Argument, ...], name: str) -> Word | None:
    """Return the value of an argument, or None; the last value if it was given several times."""
    return next((argument.value for argument in reversed(arguments) if argument.name.text == name), None)


def task_terms(pipeline: Pipeline) -> Iterator[TaskTerm]:
    """Return all tasks in a pipeline, at any depth (pipes are not followed)."""
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
