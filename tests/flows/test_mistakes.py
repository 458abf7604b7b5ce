"""Mistakes in a flow.yaml: each is reported quickly, with its place and what to write instead."""

import time
from pathlib import Path

import pytest

from pyoco_server.flows.binding import bind
from pyoco_server.flows.errors import FlowError, FlowSyntaxError
from pyoco_server.flows.model import FlowModel, Program, TaskSpec, TaskStep
from pyoco_server.flows.yaml.document import read_flow_yaml

PATIENCE = 8.0
"""Seconds of processor time; several times what the slowest takes, since coverage slows it down."""

FLOW = "flow:\n  graph: a >> b\n"
TASKS = "tasks:\n  a: { callable: 'shop:a' }\n  b: { callable: 'shop:b' }\n"


def graph(text: str) -> str:
    return f"flow:\n  graph: |\n    {text}\n"


def option(text: str) -> str:
    return f"{FLOW}tasks:\n  a: {{ {text} }}\n"


@pytest.fixture(autouse=True)
def _shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shop.py").write_text("def a(): ...\ndef b(): ...\ndef send_mail(): ...\nnumber = 3\n")
    monkeypatch.syspath_prepend(tmp_path)


MISTAKES = {
    "a key not indented": ("flow:\ngraph: a >> b\n", 2, 1, "put it inside 'flow:'"),
    "a key indented less": ("flow:\n    graph: a >> b\n  defaults: {}\n", 3, 3, "indent this line as its neighbours"),
    "a block not indented": ("flow:\n  graph: |\n  a >> b\ntasks: {}\n", 4, 1, "indent the lines of a text after '|'"),
    "a colon missing": ("flow\n  graph: a >> b\n", 2, 8, "does the key above lack its colon?"),
    "a colon missing further in": ("flow:\n  graph a >> b\n", 2, 3, "{ graph: … }"),
    "no blank after a colon": (f"{FLOW}tasks:\n  a:\n    callable:shop:a\n", 5, 5, "write a blank after the colon"),
    "no blank after a colon in braces": (option("callable:shop:a"), 4, 8, "write a blank after the colon: callable: …"),
    "an unknown option": (option("retry: 3"), 4, 8, "did you mean 'retries'?"),
    "an unknown section": (f"{FLOW}task: {{}}\n", 3, 1, "did you mean 'tasks'?"),
    "a task misspelt in the graph": ("flow:\n  graph: a >> bb\n" + TASKS, 2, 15, "did you mean 'b'?"),
    "a task misspelt in the tasks": (TASKS.replace("b:", "bb:", 1) + FLOW, 5, 15, "did you mean 'bb'?"),
    "a task misspelt in a use": ("flow: { graph: c }\n" + TASKS + "  c: { use: aa }\n", 5, 13, "did you mean 'a'?"),
    "a function misspelt": (option("callable: 'shop:sendmail'"), 4, 18, "did you mean 'send_mail'?"),
    "a function that is none": (option("callable: 'shop:number'"), 4, 18, "name a function of shop"),
    "a module that is not there": (option("callable: 'shops:a'"), 4, 18, "installed or beside the flow"),
    "a callable with a dot": (option("callable: shop.a"), 4, 18, "write module.path:function"),
    "retries in words": (option("retries: three"), 4, 17, "write a number from 0 to 1000000000, without quotes"),
    "retries in quotes": (option("retries: '3'"), 4, 17, "without quotes"),
    "half a retry": (option("retries: 1.5"), 4, 17, "write 2"),
    "pipes in a circle": ("flow: { graph: pipe(p) }\npipes: { p: pipe(q), q: pipe(p) }\n", 2, 30, "remove this"),
    "tasks in a circle": (f"{FLOW}tasks: {{ a: {{ use: b }}, b: {{ use: a }} }}\n", 3, 25, "name another task"),
    "a tab": ("flow:\n\tgraph: a >> b\n", 2, 1, "indent with blanks, not with tabs"),
    "a tab further in": (f"{FLOW}tasks:\n  a:\n\t  retries: 1\n", 5, 1, "indent with blanks, not with tabs"),
    "a sign YAML keeps for itself": ("flow:\n  graph: @a\n", 2, 10, "put the text in quotes"),
    "a key twice": (f"{FLOW}tasks:\n  a: {{}}\n  a: {{}}\n", 5, 3, "keep one"),
    "a blank that is none": ("flow:\n\u00a0 graph: a >> b\n", 2, 1, "type it again with the space bar"),
    "nothing": ("", 1, 1, "write 'flow:' with 'graph:' inside"),
    "a list": ("- a\n- b\n", 1, 1, "{ flow: … }"),
    "a list for a graph": ("flow:\n  graph:\n    - a\n", 3, 5, "write a >> b"),
    "a case in a plain text": ("flow:\n  graph: switch(on=x){ x: a }\n", 2, 25, "write '|' and the text on lines of"),
    "a template in a plain text": ("flow:\n  graph: {{ a }}\n", 2, 11, "put {{ }} in quotes"),
    "a quote not closed": ('flow:\n  graph: "a >> b\ntasks:\n  a: { use: "b" }\n', 4, 14, "close quotes"),
    "an arrow": (graph("a -> b"), 3, 7, "write '>>' between steps"),
    "a single sign": (graph("a > b"), 3, 7, "write '>>' between steps"),
    "a name with a dash": (graph("my-task"), 3, 7, "names have letters, digits and '_' only"),
    "printed quotes": (graph("switch(on=x){ “a”: a }"), 3, 19, "write ' or \""),
    "a group without parentheses": (graph("a & b"), 3, 7, "( a & b )"),
    "a brace not closed": (graph("repeat(count=3){ a"), 3, 23, "'}'"),
    "a case without a colon": (graph("switch(on=x){ a }"), 3, 21, "expected ':'"),
    "a comma between cases": (graph("switch(on=x){ 1: a, 2: b }"), 3, 23, "';'"),
    "a count without its name": (graph("repeat(3){ a }"), 3, 12, "repeat(count=3)"),
    "a condition without its name": (graph("until({{ results.a }}){ a }"), 3, 11, "write name=value"),
    "an expression without its sign": (graph("until(cond={{ results.a > 1 }}){ a }"), 3, 16, "{{ $ctx.results.a > 1"),
    "one equals sign": (graph("until(cond={{ results.a = 1 }}){ a }"), 3, 16, "{{ $ctx.params.n > 3 }}"),
    "a reference misspelt": (option("inputs: { x: $nod.a.output }"), 4, 21, "write $node.<name>.output"),
    "a reference without output": (option("inputs: { x: $node.a }"), 4, 21, "write $node.<name>.output"),
    "a reference into Python": (option("inputs: { x: $node.a.output.__class__ }"), 4, 21, "name data only"),
    "a variable not exposed": (option("inputs: { x: $env.HOME }"), 4, 21, "runtime: { expose_env: [HOME] }"),
    "a variable not exposed in a loop": (graph("repeat(count={{ env.N }}){ a }"), 3, 18, "expose_env: [N]"),
    "a variable not exposed in a choice": (graph("switch(on='$env.N == 1'){ true: a }"), 3, 15, "expose_env: [N]"),
    "another version": (f"version: 2\n{FLOW}", 1, 10, "write version: 1"),
    "a date": ("flow: { graph: a, defaults: { day: 2024-01-01 } }\n", 1, 36, "put it in quotes"),
    "5 MB": ("# " + "x" * 5_000_000 + "\n" + FLOW, 1, 1, "make it smaller"),
    "10,000 parentheses": (graph("(" * 10_000 + "a" + ")" * 10_000), 3, 69, "make the graph flatter"),
    "10,000 brackets": ("flow: " + "[" * 10_000 + "]" * 10_000, 1, 38, "make the value flatter"),
    "100,000 steps": (graph(" >> ".join(f"t{number}" for number in range(100_000))), 1, 1, "make it smaller"),
    "10,000 steps": (graph(" >> ".join(f"t{number}" for number in range(10_000))), 3, 35759, "use fewer, or a loop"),
    "100,000 tasks": (FLOW + "tasks:\n" + "".join(f"  t{n}: {{}}\n" for n in range(100_000)), 1, 1, "make it smaller"),
    "10,000 tasks": (FLOW + "tasks:\n" + "".join(f"  t{n}: {{}}\n" for n in range(10_000)), 5000, 10, "of its own"),
    "4,000 unknown steps": (
        graph(" >> ".join(f"step{number}" for number in range(4_000))) + "tasks:\n"
        + "".join(f"  task{n}: {{}}\n" for n in range(4_000)), 3, 5, "give it a callable",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("text", "line", "column", "remedy"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_reported_with_its_place_and_what_to_write_instead(
    text: str, line: int, column: int, remedy: str
) -> None:
    started = time.process_time()
    with pytest.raises(FlowSyntaxError) as caught:
        bind(read_flow_yaml(text, name="slip"))
    assert time.process_time() - started < PATIENCE
    assert remedy in caught.value.remedy
    assert caught.value.line == line
    if "not YAML" not in caught.value.message:  # of that, PyYAML's two parsers point at slightly different places
        assert caught.value.column == column
    assert len(str(caught.value)) < 400


def test_valid_files_that_look_like_mistakes_are_accepted() -> None:
    text = "\ufeff" + FLOW.replace("b", "b >> a") + TASKS + "runtime: { expose_env: [HOME] }\n"
    text = text.replace("'shop:a'", "'shop:a', inputs: { x: $env.HOME, y: '{{ x }}', z: a $5 note }")
    assert [*bind(read_flow_yaml(text.replace("\n", "\r\n"), name="fine"))] == ["a", "b"]


def test_a_flow_that_was_not_read_from_a_file_has_no_places() -> None:
    model = FlowModel(name="made", body=Program((TaskStep(TaskSpec(name="unknown")),)))
    with pytest.raises(FlowError, match="task 'unknown': there is no task named 'unknown' here; give it a callable"):
        bind(model)
