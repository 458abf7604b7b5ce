"""The graph language, compared with pyoco's own parser and compiler."""

from typing import Any

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from pyoco.core.models import Task  # type: ignore[import-untyped]  # pyoco ships no type information
from pyoco.dsl import graph as theirs  # type: ignore[import-untyped]
from pyoco.dsl import graph_terms as their_terms
from pyoco.dsl import nodes as their_nodes
from pyoco.dsl.expressions import ensure_expression  # type: ignore[import-untyped]

from pyoco_server.flows.errors import FlowSyntaxError
from pyoco_server.flows.graph_language.arguments import case_value, expression, repeat_count
from pyoco_server.flows.graph_language.ast import (
    Block,
    GroupTerm,
    LoopTerm,
    Pipeline,
    PipeTerm,
    SwitchTerm,
    TaskTerm,
    Term,
    Word,
    last_argument,
    task_terms,
)
from pyoco_server.flows.graph_language.build import build_steps
from pyoco_server.flows.graph_language.parser import MAX_NESTING, parse_graph
from pyoco_server.flows.graph_language.pipes import MAX_PIPE_DEPTH, MAX_TERMS, expand_pipes
from pyoco_server.flows.model import ForEach, Parallel, Repeat, Step, Steps, Switch, TaskSpec, TaskStep, Until
from pyoco_server.flows.positions import SourcePosition

# --- The same view of both sides -------------------------------------------------------------------------------------


def _argument(term: LoopTerm | SwitchTerm, name: str) -> str | None:
    word = last_argument(term.arguments, name)
    return word.text if word else None


def view(pipeline: Pipeline) -> list[Any]:
    return [_view_term(term) for term in pipeline]


def _view_term(term: Term) -> Any:
    match term:
        case TaskTerm():
            return ("task", term.task.text, term.node.text if term.node else None)
        case PipeTerm():
            return ("pipe", term.name.text)
        case GroupTerm():
            return ("group", [view(branch) for branch in term.branches])
        case SwitchTerm():
            defaults = [case for case in term.cases if case.is_default]
            cases = [(case.key.text, view(case.body)) for case in term.cases if not case.is_default]
            return ("switch", _argument(term, "on"), cases, view(defaults[-1].body) if defaults else None)
        case LoopTerm():
            names = {
                Block.REPEAT: ("count", "collect"),
                Block.FOREACH: ("over", "item", "index", "collect"),
                Block.UNTIL: ("cond", "max_iter", "collect"),
            }[term.block]
            return (term.block.value, *(_argument(term, name) for name in names), view(term.body))


def their_view(pipeline: Any) -> list[Any]:
    return [_their_term(term) for term in pipeline.terms]


def _their_term(term: Any) -> Any:
    match term:
        case their_terms.TaskTerm():
            return ("task", term.name, term.node_name)
        case their_terms.PipeRefTerm():
            return ("pipe", term.name)
        case their_terms.SwitchTerm():
            cases = [(case.value, their_view(case.branch)) for case in term.cases]
            return ("switch", term.on, cases, their_view(term.default) if term.default else None)
        case their_terms.RepeatTerm():
            return ("repeat", term.count, term.collect, their_view(term.body))
        case their_terms.ForEachTerm():
            return ("foreach", term.over, term.item, term.index, term.collect, their_view(term.body))
        case _:
            return ("until", term.cond, term.max_iter, term.collect, their_view(term.body))


def view_steps(steps: Steps) -> list[Any]:
    return [_view_step(step) for step in steps]


def _view_step(step: Step) -> Any:
    match step:
        case TaskStep():
            return step.task.name
        case Repeat():
            return ("repeat", step.count, step.collect, view_steps(step.body))
        case ForEach():
            return ("foreach", step.over, step.item, step.index, step.collect, view_steps(step.body))
        case Until():
            return ("until", step.condition, step.max_iter, step.collect, view_steps(step.body))
        case Switch():
            cases = [(case.value, view_steps(case.body)) for case in step.cases]
            return ("switch", step.on, cases, view_steps(step.default) if step.default else None)
        case Parallel():
            return ("parallel", [view_steps(branch) for branch in step.branches])


def their_steps(steps: list[Any]) -> list[Any]:
    return [_their_step(step) for step in steps]


def _their_step(step: Any) -> Any:
    match step:
        case their_nodes.TaskNode():
            return step.task.name
        case their_nodes.RepeatNode():
            count = step.count if isinstance(step.count, int) else step.count.source
            return ("repeat", count, step.collect, their_steps(step.body.steps))
        case their_nodes.ForEachNode():
            body = their_steps(step.body.steps)
            return ("foreach", step.source.source, step.alias, step.index_alias, step.collect, body)
        case their_nodes.UntilNode():
            return ("until", step.condition.source, step.max_iter, step.collect, their_steps(step.body.steps))
        case _:
            cases = [(case.value, their_steps(case.target.steps)) for case in step.cases]
            default = next((body for value, body in cases if value == their_nodes.DEFAULT_CASE_VALUE), None)
            others = [case for case in cases if case[0] != their_nodes.DEFAULT_CASE_VALUE]
            return ("switch", step.expression.source, others, default)


def _spec(task: str, node: str) -> TaskSpec:
    return TaskSpec(name=node, use=task)


def steps_of(text: str) -> list[Any]:
    return view_steps(build_steps(parse_graph(text), _spec))


# --- Random graphs ---------------------------------------------------------------------------------------------------

NAMES = ("a", "b", "c2", "_d", "été", "pipe", "switch", "repeat", "foreach", "until", "default")
names = st.sampled_from(NAMES)
values = st.sampled_from(["x", "3", "007", "'q r'", '"{{ p }}"', "{{ params.n }}", "{{$ctx.a > 3}}", "'it\\'s'", "''"])
keys = st.sampled_from(["X", "1", "true", "'t u'", '"default"', "{{ k }}", "default", "pipe", "__default__"])
blanks = st.sampled_from(["", " ", "\n", "\t ", " # note >> { '\n", "\r\n"])
Tokens = list[str]


def _arguments(draw: st.DrawFn, required: str, others: tuple[str, ...]) -> Tokens:
    chosen = draw(st.lists(st.sampled_from((required, *others)), unique=True, max_size=3))
    if required not in chosen and draw(st.integers(0, 9)):
        chosen.append(required)
    parts: Tokens = []
    for name in chosen:
        value = draw(st.sampled_from(["list", "last", "flatten"]) if name == "collect" else values)
        if name in {"max_iter", "item", "index"}:
            value = "5" if name == "max_iter" else "it"
        parts += [",", name, "=", value]
    return ["(", *parts[1:], ")"]


@st.composite
def terms(draw: st.DrawFn, depth: int) -> Tokens:
    kind = draw(st.sampled_from(["task", "named", "pipe", "switch", "repeat", "foreach", "until"][: 7 if depth else 3]))
    match kind:
        case "task":
            return [draw(names)]
        case "named":
            return [draw(names), ":", draw(names)]
        case "pipe":
            return ["pipe", "(", draw(st.sampled_from(["p", "'q'", "r"])), ")"]
        case "switch":
            cases = [_case(draw, depth) for _ in range(draw(st.integers(0, 3)))]
            return ["switch", *_arguments(draw, "on", ()), "{", *(token for case in cases for token in case), "}"]
        case _:
            required = {"repeat": "count", "foreach": "over", "until": "cond"}[kind]
            others = {"repeat": ("collect",), "foreach": ("item", "index", "collect"), "until": ("max_iter", "collect")}
            body = draw(pipelines(depth - 1))
            return [kind, *_arguments(draw, required, others[kind]), "{", *body, "}"]


def _case(draw: st.DrawFn, depth: int) -> Tokens:
    body = draw(pipelines(depth - 1))
    if draw(st.booleans()):
        body = ['"' + " ".join(body).replace("\\", "\\\\").replace('"', '\\"') + '"']
    return [draw(keys), ":", *body, draw(st.sampled_from([";", ";;"]))]


@st.composite
def pipelines(draw: st.DrawFn, depth: int = 2) -> Tokens:
    tokens = draw(terms(depth))
    for _ in range(draw(st.integers(0, 2))):
        tokens += [">>", *draw(terms(depth))]
    return tokens


@st.composite
def texts(draw: st.DrawFn, *, spoil: bool = False) -> str:
    tokens = draw(pipelines())
    if spoil:
        noise = st.sampled_from([">>", "(", ")", "{", "}", ":", ";", ",", "=", "a", "7", "'s'", "{{t}}", "repeat"])
        for _ in range(draw(st.integers(1, 3))):
            at = draw(st.integers(0, len(tokens)))
            tokens[at : at + draw(st.integers(0, 2))] = draw(st.lists(noise, max_size=2))
    blank = draw(st.lists(blanks, min_size=1, max_size=5))
    return "".join(token + blank[index % len(blank)] for index, token in enumerate(tokens))


def _theirs_or_none(text: str) -> list[Any] | None:
    try:
        return their_view(theirs.parse_graph(text))
    except ValueError:
        return None


def _ours_or_none(text: str) -> list[Any] | None:
    try:
        return view(parse_graph(text))
    except FlowSyntaxError:
        return None


@given(texts())
@settings(deadline=None)
def test_what_pyoco_parses_is_parsed_the_same(text: str) -> None:
    assert _ours_or_none(text) == _theirs_or_none(text)


@given(texts(spoil=True))
@settings(max_examples=300, deadline=None)
def test_what_pyoco_refuses_is_refused_unless_it_is_a_group(text: str) -> None:
    ours, their = _ours_or_none(text), _theirs_or_none(text)
    if their is not None or "'group'" not in repr(ours):
        assert ours == their


@given(st.text(alphabet="ab1²½é_ >>(){}:;,='\"\\#\n.", max_size=40))
@settings(max_examples=500, deadline=None)
def test_arbitrary_text_is_parsed_or_refused(text: str) -> None:
    ours, their = _ours_or_none(text), _theirs_or_none(text)
    if their is not None or "'group'" not in repr(ours):
        assert ours == their


@given(texts(), st.dictionaries(st.sampled_from("pqr"), texts()))
@example("a >> switch(on=x){ default: pipe(p); default: a }", {})
@settings(deadline=None)
def test_pipes_expand_as_in_pyoco(text: str, pipes: dict[str, str]) -> None:
    try:
        expected = their_view(theirs.resolve_pipe_refs(theirs.parse_graph(text), pipes))
    except ValueError:
        with pytest.raises(FlowSyntaxError):
            expand_pipes(parse_graph(text), {name: parse_graph(pipe) for name, pipe in pipes.items()})
        return
    parsed = {name: parse_graph(pipe) for name, pipe in pipes.items() if _ours_or_none(pipe) is not None}
    assert view(expand_pipes(parse_graph(text), parsed)) == expected


@given(texts())
@settings(max_examples=300, deadline=None)
def test_what_pyoco_compiles_means_the_same(text: str) -> None:
    tasks = {name: Task(func=print, name=name) for name in NAMES}
    pipes = {"p": "a >> b", "q": "repeat(count=2){ c2 }", "r": "_d"}
    try:
        flow = theirs.build_flow_from_graph(graph=text, tasks=tasks, pipes=pipes)
        problems = theirs.validate_graph_terms(theirs.resolve_pipe_refs(theirs.parse_graph(text), pipes)).errors
    except ValueError:
        flow = problems = None
    try:
        terms = expand_pipes(parse_graph(text), {name: parse_graph(pipe) for name, pipe in pipes.items()})
        ours = view_steps(build_steps(terms, _spec))
    except FlowSyntaxError as error:
        ours, refusal = None, error.message
    else:
        refusal = ""
    # pyoco lets a second default (by either of its names) pass without a word, and its check finds more than its run.
    if not problems and "default" not in refusal:
        assert ours == (None if flow is None else their_steps(flow.build_program().steps))


# --- Words in parentheses --------------------------------------------------------------------------------------------

WORDS = st.one_of(
    st.text(alphabet="abn_.$ctxev{} 13>", max_size=20),
    st.sampled_from(["{{ a }}", "env.HOME", "ctx.a.b", "params", "loop.index", "a.b", "{{}}", "$ctx.a > 1", "$env.X"]),
    st.sampled_from(["$ctx.a +", "_ctx.a", "$ctx.a and $b", "$ctx.f(1)", "a..b", "²", "12", "0", "true", "false"]),
)


@given(WORDS, st.booleans())
@settings(max_examples=500, deadline=None)
def test_expressions_compile_as_in_pyoco(text: str, to_params: bool) -> None:
    assume("__" not in text)  # pyoco lets a path lead through Python's own attributes
    word = Word(text, SourcePosition(3, 7))
    try:
        expected = ensure_expression(theirs._compile_expression(text, default_to_params=to_params)).source
    except ValueError:
        with pytest.raises(FlowSyntaxError, match="line 3, column 7"):
            expression(word, default_to_params=to_params)
    else:
        assert expression(word, default_to_params=to_params) == expected


@given(WORDS)
@settings(deadline=None)
def test_cases_and_counts_compile_as_in_pyoco(text: str) -> None:
    for ours, compiled in ((case_value, theirs._compile_case_value), (repeat_count, theirs._compile_repeat_count)):
        try:
            expected = compiled(text)
        except ValueError:
            with pytest.raises(FlowSyntaxError):
                ours(Word(text, SourcePosition(1, 1)))
        else:
            found = ours(Word(text, SourcePosition(1, 1)))
            assert found == getattr(expected, "source", expected)
            assert type(found) is type(getattr(expected, "source", expected))


@pytest.mark.parametrize("text", ["-" * 1900 + "$ctx.a", "(" * 900 + "$ctx.a" + ")" * 900, "$ctx.a" + "+1" * 5000])
def test_an_expression_bomb_is_refused(text: str) -> None:
    with pytest.raises(FlowSyntaxError):
        expression(Word(text, SourcePosition(1, 1)), default_to_params=True)


@pytest.mark.parametrize("digits", ["9" * 19, "9" * 5000])
def test_numbers_have_a_limit(digits: str) -> None:
    with pytest.raises(FlowSyntaxError, match="whole number"):
        repeat_count(Word(digits, SourcePosition(1, 1)))


# --- Groups, and what pyoco does not have ----------------------------------------------------------------------------


def test_a_group_has_pipelines_as_branches() -> None:
    assert steps_of("s >> ( a & b >> c & n:d ) >> e") == ["s", ("parallel", [["a"], ["b", "c"], ["n"]]), "e"]


def test_groups_go_inside_everything_and_everything_inside_groups() -> None:
    text = "repeat(count=2){ ( a & switch(on=x){ 1: ( b & c ) } ) }"
    inner = ("switch", "$ctx.params.x", [(1, [("parallel", [["b"], ["c"]])])], None)
    assert steps_of(text) == [("repeat", 2, "list", [("parallel", [["a"], [inner]])])]


def test_parentheses_around_one_branch_change_nothing() -> None:
    assert steps_of("( a >> b ) >> ((c))") == ["a", "b", "c"]


def test_a_group_can_hold_pipes() -> None:
    terms = expand_pipes(parse_graph("( pipe(p) & c )"), {"p": parse_graph("a >> b")})
    assert view(terms) == [("group", [[("task", "a", None), ("task", "b", None)], [("task", "c", None)]])]


def test_foreach_can_be_parallel() -> None:
    (step,) = build_steps(parse_graph("foreach(over=xs, parallel=4){ a }"), _spec)
    assert isinstance(step, ForEach)
    assert step.parallel == 4


def test_tasks_are_found_at_every_depth() -> None:
    graph = parse_graph("a >> repeat(count=1){ b } >> switch(on=x){ 1: c } >> ( d & e ) >> pipe(p)")
    assert [term.name.text for term in task_terms(graph)] == ["a", "b", "c", "d", "e"]


def test_steps_are_not_built_of_pipes() -> None:
    with pytest.raises(TypeError):
        steps_of("pipe(p)")


# --- What is refused, where, and with what advice --------------------------------------------------------------------

REFUSED = [
    ("", 1, "empty", "at least one task"),
    ("a >\nb", 3, "single '>'", "'>>'"),
    ("a | b", 3, "'|'", "switch"),
    ("a.b", 2, "'.'", "in quotes"),
    ("½", 1, "'½'", ""),
    ("a >> repeat(count='3){ b }", 19, "no end", "'"),
    ("repeat(count={{ n }){ b }", 14, "template has no end", "}}"),
    (">> a", 1, "cannot come first", "a name"),
    ("a >>", 5, "ends too early", "a name"),
    ("a b", 3, "directly after", "'>>'"),
    ("a & b", 3, "outside parentheses", "( a & b )"),
    ("a >> ( b & )", 12, "')' does not fit", "a name"),
    ("a >> repet(count=1){ b }", 6, "no block 'repet'", "did you mean 'repeat'"),
    ("a >> zzzzzz(x)", 6, "no block", "only pipe, switch"),
    ("n:repeat(count=1){ a }", 3, "block cannot have a name", "node:task"),
    ("n:'a'", 3, "a text in quotes does not fit", "a name"),
    ("repeat(count=1){ }", 18, "'}' does not fit", "a name"),
    ("repeat(times=1){ a }", 1, "needs 'count='", "repeat(count="),
    ("switch(on=''){ x: a }", 1, "needs 'on='", "switch(on="),
    ("switch(on=x){ 1: 'a b' }", 21, "directly after", "'>>'"),
    ("switch(on=x){ }", 1, "without cases", "at least one"),
    ("switch(on=x){ 1: a; 1: b }", 21, "case '1' twice", "keep one"),
    ("switch(on=x){ default: a; default: b }", 27, "'default' twice", "keep one"),
    ("repeat(count=1, colect=list){ a }", 17, "no argument 'colect'", "did you mean 'collect'"),
    ("repeat(count=1, count=2){ a }", 17, "twice", "keep one"),
    ("repeat(count=1, collect=all){ a }", 25, "'collect' cannot be 'all'", "list"),
    ("repeat(count='1 + 1'){ a }", 14, "neither a path nor an expression", "{{"),
    ("foreach(over=x, item='a b'){ a }", 22, "'item' must be a name", "name"),
    ("foreach(over=x, parallel=0){ a }", 26, "too small", "from 1"),
    ("foreach(over=x, parallel=two){ a }", 26, "not a whole number", "from 1"),
    ("until(cond=x, max_iter=0){ a }", 24, "too small", "from 1"),
    ("until(cond='$ctx.x +'){ a }", 12, "not valid", "{{"),
    ("until(cond='{{ }}'){ a }", 12, "empty expression", "{{"),
    ("n:a >> n:b", 8, "two nodes have the name 'n'", "another name"),
    ("a >> a:b", 6, "two nodes", "another name"),
    ("a:b >> a", 8, "two nodes", "another name"),
    ("( a & b >> a )", 12, "two branches", "a_2:a"),
]


@pytest.mark.parametrize(("text", "column", "message", "remedy"), REFUSED, ids=[case[0] for case in REFUSED])
def test_a_refusal_points_at_the_place_and_says_what_to_write(
    text: str, column: int, message: str, remedy: str
) -> None:
    with pytest.raises(FlowSyntaxError) as caught:
        steps_of(text)
    error = caught.value
    assert (error.line, error.column) == (1, column)
    assert message in error.message
    assert remedy in error.remedy
    assert str(error) == f"line 1, column {column}: {error.message}; {error.remedy}"


def test_depth_is_limited_in_one_text_and_across_pipes() -> None:
    opening = "repeat(count=1){ "
    deepest = opening * (MAX_NESTING - 1) + "a" + " }" * (MAX_NESTING - 1)
    assert parse_graph(deepest)
    with pytest.raises(FlowSyntaxError, match="blocks inside each other"):
        parse_graph(opening * 5000 + "a")
    pipes = {"p": parse_graph(deepest)}
    assert expand_pipes(parse_graph(f"{opening} pipe(p) }}"), pipes)
    with pytest.raises(FlowSyntaxError, match="blocks inside each other"):
        expand_pipes(parse_graph(f"{opening}{opening} pipe(p) }} }}"), pipes)


def _chain(length: int) -> dict[str, Pipeline]:
    return {f"p{n}": parse_graph(f"pipe(p{n + 1})" if n + 1 < length else "a") for n in range(length)}


def test_pipes_inside_pipes_are_limited() -> None:
    assert view(expand_pipes(parse_graph("pipe(p0)"), _chain(MAX_PIPE_DEPTH))) == [("task", "a", None)]
    for start in ("pipe(p0)", "pipe(p1) >> pipe(p0)"):  # the second way, all but one are known when p0 is met
        with pytest.raises(FlowSyntaxError, match="128 pipes inside each other"):
            expand_pipes(parse_graph(start), _chain(MAX_PIPE_DEPTH + 1))


def test_expanded_terms_are_limited() -> None:
    pipes = {"p": parse_graph(" >> ".join(["a"] * (MAX_TERMS // 2)))}
    assert len(expand_pipes(parse_graph("pipe(p) >> pipe(p)"), pipes)) == MAX_TERMS
    with pytest.raises(FlowSyntaxError, match="more than 4096 steps"):
        expand_pipes(parse_graph("pipe(p) >> pipe(p) >> b"), pipes)


def test_a_pipe_cannot_contain_itself() -> None:
    pipes = {"p": parse_graph("pipe(q)"), "q": parse_graph("repeat(count=1){ pipe(p) }")}
    with pytest.raises(FlowSyntaxError, match="'p' -> 'q' -> 'p'"):
        expand_pipes(parse_graph("pipe(p)"), pipes)


def test_an_unknown_pipe_is_named_with_the_one_that_was_meant() -> None:
    with pytest.raises(FlowSyntaxError, match="no pipe 'setpu'; did you mean 'setup'"):
        expand_pipes(parse_graph("pipe(setpu)"), {"setup": parse_graph("a")})
    with pytest.raises(FlowSyntaxError, match="define it"):
        expand_pipes(parse_graph("pipe(p)"), {})
