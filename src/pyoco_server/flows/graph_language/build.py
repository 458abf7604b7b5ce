"""Builds the steps of a flow from the syntax tree of its graph, and checks what the grammar cannot."""

from collections.abc import Callable, Collection

from pyoco_server.flows.errors import FlowSyntaxError
from pyoco_server.flows.graph_language.arguments import case_value, expression, repeat_count, whole_number
from pyoco_server.flows.graph_language.ast import (
    Argument,
    Block,
    CaseTerm,
    GroupTerm,
    LoopTerm,
    Pipeline,
    PipeTerm,
    SwitchTerm,
    TaskTerm,
    Term,
    Word,
    task_terms,
)
from pyoco_server.flows.model import (
    Case,
    Collect,
    ForEach,
    Parallel,
    Repeat,
    Step,
    Steps,
    Switch,
    TaskSpec,
    TaskStep,
    Until,
)
from pyoco_server.flows.positions import SourcePosition, instead_of, shown

SpecOf = Callable[[str, str], TaskSpec]
"""Returns the task of a name, for the node of a name."""

ARGUMENTS = {
    Block.SWITCH: ("on",),
    Block.REPEAT: ("count", "collect"),
    Block.FOREACH: ("over", "item", "index", "collect", "parallel"),
    Block.UNTIL: ("cond", "max_iter", "collect"),
}
_DEFAULT_VALUE = "__default__"  # a case of this value is pyoco's other way to write 'default'


def build_steps(graph: Pipeline, spec_of: SpecOf, env: Collection[str] | None = None) -> Steps:
    """Return the steps of a graph whose pipes are expanded, or raise :class:`FlowSyntaxError`.

    ``env`` are the environment variables that expressions may name; None means any.
    """
    return _Steps(spec_of, env).pipeline(graph)


class _Arguments:
    """The arguments of a block; unknown and repeated ones are refused."""

    def __init__(self, block: Block, arguments: tuple[Argument, ...]) -> None:
        self._given: dict[str, Word] = {}
        known = ARGUMENTS[block]
        for argument in arguments:
            name, mark = argument.name.text, argument.name.mark
            if name not in known:
                raise FlowSyntaxError(*mark, f"{block} has no argument {shown(name)}", instead_of(name, known))
            if name in self._given:
                raise FlowSyntaxError(*mark, f"{block} is given '{name}' twice", "keep one")
            self._given[name] = argument.value

    def __getitem__(self, name: str) -> Word:
        return self._given[name]

    def get(self, name: str) -> Word | None:
        return self._given.get(name)

    def collect(self, default: Collect) -> Collect:
        word = self.get("collect")
        if word is None or not word.text:
            return default
        if word.text not in [*Collect]:
            raise FlowSyntaxError(
                *word.mark, f"'collect' cannot be {shown(word.text)}", instead_of(word.text, [*Collect])
            )
        return Collect(word.text)

    def identifier(self, name: str) -> str | None:
        word = self.get(name)
        if word is None:
            return None
        if not word.text.isidentifier():
            raise FlowSyntaxError(*word.mark, f"'{name}' must be a name, not {shown(word.text)}", "write a name")
        return word.text

    def number(self, name: str) -> int | None:
        word = self.get(name)
        return None if word is None else whole_number(word, least=1)


class _Steps:
    def __init__(self, spec_of: SpecOf, env: Collection[str] | None) -> None:
        self._spec_of = spec_of
        self._env = env
        self._given_names: dict[str, bool] = {}
        """Node names so far; True for those the graph itself gave (``node:task``)."""

    def pipeline(self, pipeline: Pipeline) -> Steps:
        return tuple(step for term in pipeline for step in self._term(term))

    def _term(self, term: Term) -> Steps:
        match term:
            case TaskTerm():
                return (self._task(term),)
            case LoopTerm():
                return (self._loop(term),)
            case SwitchTerm():
                return (self._switch(term),)
            case GroupTerm():
                return self._group(term)
            case PipeTerm():  # last of a closed set
                raise TypeError("pipes must be expanded before steps are built")

    def _task(self, term: TaskTerm) -> TaskStep:
        """A task may appear several times under its own name; a name given in the graph (``node:task``) only once."""
        name, mark = term.name.text, term.name.mark
        given = term.node is not None
        if name in self._given_names and (given or self._given_names[name]):
            raise FlowSyntaxError(*mark, f"two nodes have the name {shown(name)}", "give one of them another name")
        self._given_names[name] = given
        return TaskStep(self._spec_of(term.task.text, name))

    def _loop(self, term: LoopTerm) -> Step:
        arguments = _Arguments(term.block, term.arguments)
        body = self.pipeline(term.body)
        match term.block:
            case Block.REPEAT:
                return Repeat(repeat_count(arguments["count"], env=self._env), body, arguments.collect(Collect.LIST))
            case Block.FOREACH:
                return ForEach(
                    over=expression(arguments["over"], default_to_params=True, env=self._env),
                    body=body,
                    item=arguments.identifier("item"),
                    index=arguments.identifier("index"),
                    parallel=arguments.number("parallel") or 1,
                    collect=arguments.collect(Collect.LIST),
                )
            case _:
                return Until(
                    condition=expression(arguments["cond"], default_to_params=False, env=self._env),
                    body=body,
                    max_iter=arguments.number("max_iter"),
                    collect=arguments.collect(Collect.LAST),
                )

    def _switch(self, term: SwitchTerm) -> Switch:
        on = expression(_Arguments(Block.SWITCH, term.arguments)["on"], default_to_params=True, env=self._env)
        if not term.cases:
            raise FlowSyntaxError(*term.mark, "a switch without cases", "write at least one: { value: task }")
        cases: list[Case] = []
        default: Steps | None = None
        seen: set[tuple[type, str | int | bool]] = set()
        for case in term.cases:
            value = _DEFAULT_VALUE if case.is_default else case_value(case.key)
            if (type(value), value) in seen:
                raise _repeated_case(case)
            seen.add((type(value), value))
            body = self.pipeline(case.body)
            if value == _DEFAULT_VALUE:
                default = body
            else:
                cases.append(Case(value, body))
        return Switch(on, tuple(cases), default)

    def _group(self, term: GroupTerm) -> Steps:
        """Return a parallel step; parentheses around a single branch have no meaning."""
        _check_names_apart(term)
        branches = tuple(self.pipeline(branch) for branch in term.branches)
        return branches[0] if len(branches) == 1 else (Parallel(branches),)


def _repeated_case(case: CaseTerm) -> FlowSyntaxError:
    return FlowSyntaxError(*case.key.mark, f"the switch has the case {shown(case.key.text)} twice", "keep one")


def _check_names_apart(group: GroupTerm) -> None:
    """Refuse a name in two branches: they run at the same time, and both would write the same result."""
    earlier: set[str] = set()
    for branch in group.branches:
        names: dict[str, SourcePosition] = {term.name.text: term.name.mark for term in task_terms(branch)}
        for name, mark in names.items():
            if name in earlier:
                raise FlowSyntaxError(
                    *mark,
                    f"the task {shown(name)} is in two branches of a group",
                    f"give each a name of its own, like {name[:60]}_2:{name[:60]}",
                )
        earlier.update(names)
