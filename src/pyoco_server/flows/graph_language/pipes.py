"""Replaces the pipes in a graph by their steps."""

from collections.abc import Mapping

import msgspec

from pyoco_server.flows.errors import FlowSyntaxError
from pyoco_server.flows.graph_language.ast import (
    CaseTerm,
    GroupTerm,
    LoopTerm,
    Pipeline,
    PipeTerm,
    SwitchTerm,
    TaskTerm,
    Term,
)
from pyoco_server.flows.graph_language.parser import MAX_NESTING, too_deep
from pyoco_server.flows.positions import SourcePosition, instead_of, shown

MAX_PIPE_DEPTH = 128
MAX_TERMS = 4096


def expand_pipes(graph: Pipeline, pipes: Mapping[str, Pipeline]) -> Pipeline:
    """Replace every ``pipe(name)`` by the terms of the pipe, or raise :class:`FlowSyntaxError`.

    Refused are unknown pipes, pipes that contain themselves, more than 128 pipes inside each other and more than 4096
    terms. The work is bounded by these limits, however the pipes refer to each other: each is expanded once, and its
    size is checked before it is used again.
    """
    return _Expansion(pipes).pipeline(graph, ()).terms


class _Expanded(msgspec.Struct, frozen=True):
    """A pipeline without pipes, and its measures."""

    terms: Pipeline
    size: int
    """How many terms there are, those inside blocks included."""
    nesting: int
    """How many blocks are inside each other."""
    chain: int
    """How many pipes are inside each other."""


class _Measures:
    """Adds up the measures of the parts of one pipeline or block."""

    def __init__(self) -> None:
        self.size = self.nesting = self.chain = 0

    def add(self, part: _Expanded, mark: SourcePosition) -> Pipeline:
        self.size += part.size
        self.nesting = max(self.nesting, part.nesting)
        self.chain = max(self.chain, part.chain)
        if self.size > MAX_TERMS:
            raise FlowSyntaxError(
                *mark, f"the graph has more than {MAX_TERMS} steps when its pipes are expanded", "use fewer, or a loop"
            )
        return part.terms

    def around(self, term: Term, mark: SourcePosition) -> _Expanded:
        """Return the block around parts with these measures."""
        if self.nesting >= MAX_NESTING:
            raise too_deep(mark)
        return _Expanded((term,), self.size + 1, self.nesting + 1, self.chain)


class _Expansion:
    def __init__(self, pipes: Mapping[str, Pipeline]) -> None:
        self._pipes = pipes
        self._done: dict[str, _Expanded] = {}

    def pipeline(self, pipeline: Pipeline, inside: tuple[str, ...]) -> _Expanded:
        """Expand the pipes in a pipeline; ``inside`` are the pipes that contain it."""
        measures = _Measures()
        terms: list[Term] = []
        for term in pipeline:
            terms += measures.add(self._term(term, inside), _mark(term))
        return _Expanded(tuple(terms), measures.size, measures.nesting, measures.chain)

    def _term(self, term: Term, inside: tuple[str, ...]) -> _Expanded:
        match term:
            case TaskTerm():
                return _Expanded((term,), size=1, nesting=0, chain=0)
            case PipeTerm():
                return self._pipe(term, inside)
            case _:
                return self._block(term, inside)

    def _block(self, term: LoopTerm | GroupTerm | SwitchTerm, inside: tuple[str, ...]) -> _Expanded:
        measures = _Measures()
        mark = term.mark
        match term:
            case LoopTerm():
                body = measures.add(self.pipeline(term.body, inside), mark)
                return measures.around(msgspec.structs.replace(term, body=body), mark)
            case GroupTerm():
                branches = tuple(measures.add(self.pipeline(branch, inside), mark) for branch in term.branches)
                return measures.around(GroupTerm(mark, branches), mark)
            case SwitchTerm():  # last of a closed set
                last_default = next((case for case in reversed(term.cases) if case.is_default), None)
                cases = tuple(
                    CaseTerm(case.key, case.is_default, measures.add(self.pipeline(case.body, inside), mark))
                    for case in term.cases
                    if not case.is_default or case is last_default  # as in pyoco, it replaces those before it
                )
                return measures.around(msgspec.structs.replace(term, cases=cases), mark)

    def _pipe(self, term: PipeTerm, inside: tuple[str, ...]) -> _Expanded:
        name, mark = term.name.text, term.name.mark
        if name not in self._pipes:
            define_it = f"define it: pipes: {{ {name[:60]}: … }}"
            raise FlowSyntaxError(*mark, f"there is no pipe {shown(name)}", instead_of(name, [*self._pipes], define_it))
        if name in inside:
            circle = " -> ".join(shown(one) for one in (*inside[inside.index(name) :][:8], name))
            raise FlowSyntaxError(*mark, f"the pipe {shown(name)} contains itself: {circle}", "remove this reference")
        if name not in self._done and len(inside) < MAX_PIPE_DEPTH:
            self._done[name] = self.pipeline(self._pipes[name], (*inside, name))
        expanded = self._done.get(name)
        if expanded is None or len(inside) + 1 + expanded.chain > MAX_PIPE_DEPTH:
            raise FlowSyntaxError(*mark, f"more than {MAX_PIPE_DEPTH} pipes inside each other", "merge some of them")
        return msgspec.structs.replace(expanded, chain=expanded.chain + 1)


def _mark(term: Term) -> SourcePosition:
    match term:
        case TaskTerm() | PipeTerm():
            return term.name.mark
        case _:
            return term.mark
