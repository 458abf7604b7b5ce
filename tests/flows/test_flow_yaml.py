"""Reading a flow.yaml: the meaning of every key, and the errors for wrong ones."""

import sys
from textwrap import dedent

import msgspec
import pytest

from pyoco_server.errors import InvalidInputError
from pyoco_server.flows.errors import FlowError, FlowSyntaxError
from pyoco_server.flows.model import (
    Backoff,
    BackoffKind,
    FlowModel,
    Isolation,
    OnFailure,
    Origin,
    Program,
    Repeat,
    TaskSpec,
    TaskStep,
    WaitSpec,
)
from pyoco_server.flows.yaml.document import MAX_GRAPH_TEXT, read_flow_yaml
from pyoco_server.flows.yaml.tasks import MAX_INPUTS, MAX_USES


def read(text: str) -> FlowModel:
    return read_flow_yaml(dedent(text), name="main")


def tasks_of(text: str) -> list[TaskSpec]:
    body = read(text).body
    assert isinstance(body, Program)
    assert all(isinstance(step, TaskStep) for step in body.steps)
    return [step.task for step in body.steps if isinstance(step, TaskStep)]


def task(options: str, name: str = "a", node: str = "a") -> TaskSpec:
    (found,) = tasks_of(f"flow: {{ graph: '{node}' }}\ntasks: {{ {name}: {options} }}")
    return found


def refusal(text: str) -> FlowSyntaxError:
    with pytest.raises(FlowSyntaxError) as caught:
        read(text)
    return caught.value


# --- The whole file --------------------------------------------------------------------------------------------------


def test_a_whole_flow() -> None:
    model = read("""
        version: 1
        pipes:
          setup: fetch >> clean
        tasks:
          fetch: { use: demo/fetch, inputs: { url: $ctx.params.url }, outputs: [scratch.raw] }
          clean: { callable: "my.tasks:clean" }
        flow:
          graph: |
            pipe(setup) >> repeat(count=2){ send }
          defaults: { url: "http://x", tries: 3, deep: { list: [1, 2.5, null, true] } }
        runtime:
          expose_env: [HOME, LANG]
    """)
    fetch = TaskSpec(name="fetch", use="demo/fetch", inputs={"url": "$ctx.params.url"}, outputs=("scratch.raw",))
    assert model.origins == {
        "fetch": Origin(6, 17, ("fetch", "clean")),
        "clean": Origin(7, 22, ("fetch", "clean")),
        "send": Origin(10, 37, ("fetch", "clean")),
    }
    assert msgspec.structs.replace(model, origins={}) == FlowModel(
        name="main",
        body=Program(
            (
                TaskStep(fetch),
                TaskStep(TaskSpec(name="clean", callable="my.tasks:clean")),
                Repeat(2, (TaskStep(TaskSpec(name="send")),)),
            )
        ),
        defaults={"url": "http://x", "tries": 3, "deep": {"list": [1, 2.5, None, True]}},
        expose_env=("HOME", "LANG"),
    )


def test_keys_without_a_value_count_as_not_given() -> None:
    text = "flow: {graph: a, defaults: }\nversion:\ntasks:\npipes:\nruntime:\n"
    assert read(text) == read("flow: {graph: a}")
    assert task("{ callable: , use: u, inputs: , outputs: , retries: , backoff: , isolation: }") == task("{ use: u }")


def test_nothing_is_imported() -> None:
    before = set(sys.modules)
    found = task("{ callable: 'this_does_not_exist:f' }")
    assert found.callable == "this_does_not_exist:f"
    assert set(sys.modules) == before


def test_bytes_and_a_byte_order_mark_are_read() -> None:
    assert read_flow_yaml("\ufeffflow: { graph: é }".encode(), name="x").name == "x"


# --- Tasks -----------------------------------------------------------------------------------------------------------


def test_a_task_without_an_entry_in_the_file_is_looked_up_by_name() -> None:
    assert tasks_of("flow: { graph: a >> n:a }") == [TaskSpec(name="a"), TaskSpec(name="n", use="a")]


def test_a_named_node_is_its_task_under_another_name() -> None:
    options = "{ callable: 'm:f', inputs: { x: 1 }, retries: 2 }"
    assert task(options, node="n:a") == TaskSpec(name="n", callable="m:f", inputs={"x": 1}, retries=2)


def test_an_overlay_without_a_function_keeps_the_name_to_look_up() -> None:
    assert task("{ inputs: { x: 1 } }") == TaskSpec(name="a", inputs={"x": 1})
    assert task("{ inputs: { x: 1 } }", node="n:a") == TaskSpec(name="n", use="a", inputs={"x": 1})


def test_using_a_task_of_the_same_file_adds_to_it() -> None:
    text = """
        flow: { graph: b >> d >> e }
        tasks:
          b: { use: a, inputs: { y: 3, z: 4 }, outputs: [scratch.b], retries: 5 }
          a: { callable: "m:f", inputs: { x: 1, y: 2 }, outputs: [scratch.a], timeout_sec: 9 }
          c: { inputs: { x: 1 } }
          d: { use: c }
          e: { use: e }
    """
    assert tasks_of(text) == [
        TaskSpec(
            name="b",
            callable="m:f",
            inputs={"x": 1, "y": 3, "z": 4},
            outputs=("scratch.a", "scratch.b"),
            retries=5,
            timeout_sec=9,
        ),
        TaskSpec(name="d", use="c", inputs={"x": 1}),
        TaskSpec(name="e", use="e"),
    ]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("retries: 3", TaskSpec(name="a", retries=3)),
        ("timeout_sec: 1.5", TaskSpec(name="a", timeout_sec=1.5)),
        ("isolation: process", TaskSpec(name="a", isolation=Isolation.PROCESS)),
        ("fail_policy: stop", TaskSpec(name="a")),
        ("fail_policy: isolate", TaskSpec(name="a", on_failure=OnFailure.ISOLATE)),
        ("fail_policy: retry", TaskSpec(name="a", retries=1)),
        ("fail_policy: retry, retries: 0", TaskSpec(name="a", retries=0)),
        ("backoff: 2", TaskSpec(name="a", backoff=Backoff(delay_sec=2.0))),
        ("backoff: 600", TaskSpec(name="a", backoff=Backoff(delay_sec=600.0, cap_sec=600.0))),
        ("backoff: {}", TaskSpec(name="a")),
        (
            "backoff: { kind: exponential, delay_sec: 1, factor: 3, cap_sec: 60, jitter: 0.5 }",
            TaskSpec(
                name="a",
                backoff=Backoff(kind=BackoffKind.EXPONENTIAL, delay_sec=1, factor=3, cap_sec=60, jitter=0.5),
            ),
        ),
        ("wait: {}", TaskSpec(name="a", wait=WaitSpec(key="a"))),
        ("wait: { key: k, prompt: Go? }", TaskSpec(name="a", wait=WaitSpec(key="k", prompt={"text": "Go?"}))),
        (
            "wait: { prompt: { q: 1 }, deadline_sec: 5, default: null }",
            TaskSpec(name="a", wait=WaitSpec(key="a", prompt={"q": 1}, deadline_sec=5, has_default=True)),
        ),
        (
            "wait: { default: { ok: [true] } }",
            TaskSpec(name="a", wait=WaitSpec(key="a", has_default=True, default={"ok": [True]})),
        ),
    ],
)
def test_task_options(options: str, expected: TaskSpec) -> None:
    assert task(f"{{ {options} }}") == expected


def test_the_key_of_a_wait_is_the_name_of_its_node() -> None:
    text = "flow: { graph: n:a >> b }\ntasks: { a: { wait: {} }, b: { use: a } }"
    assert [found.wait and found.wait.key for found in tasks_of(text)] == ["n", "b"]


# --- Refusals --------------------------------------------------------------------------------------------------------

A_FLOW = "flow: { graph: a }\n"
REFUSED = [
    ("flows: { main: a }", 1, 1, "no key 'flows'", "one flow"),
    (A_FLOW + "discovery: {}", 2, 1, "no key 'discovery'", "callable"),
    (A_FLOW + "task: {}", 2, 1, "no key 'task'", "did you mean 'tasks'"),
    ("graph: a", 1, 1, "no key 'graph'", "inside 'flow:'"),
    (A_FLOW + "zzzz: 1", 2, 1, "no key 'zzzz'", "flow, tasks"),
    ("[a]", 1, 1, "the file must be a mapping, but is a list", "{ flow: … }"),
    ("just text", 1, 1, "but is text", ""),
    ("", 1, 1, "file is empty", "flow"),
    ("version: 1", 1, 1, "has no flow", "graph"),
    ("version: 1\nflow:", 2, 1, "has no flow", "graph"),
    ("flow: a >> b", 1, 7, "'flow' must be a mapping, but is text", "graph"),
    ("flow: { defaults: {} }", 1, 7, "no graph", "a >> b"),
    ("flow: { graph: }", 1, 9, "no graph", "a >> b"),
    ("flow: { graph: [a] }", 1, 16, "must be text, but is a list", "a >> b"),
    ("flow: { graph: 3 }", 1, 16, "must be text, but is a number", ""),
    ("flow: { graph: ' ' }", 1, 16, "is empty", ""),
    ("flow: { graph: a, default: {} }", 1, 19, "no key 'default'", "did you mean 'defaults'"),
    ("flow: { graph: a, defaults: [1] }", 1, 29, "must be a mapping, but is a list", "name: value"),
    ("version: 2\n" + A_FLOW, 1, 10, "version", "version: 1"),
    ("version: true\n" + A_FLOW, 1, 10, "version", "version: 1"),
    (A_FLOW + "runtime: { expose_env: HOME }", 2, 24, "a list of texts, but is text", "["),
    (A_FLOW + "runtime: { expose_env: [1] }", 2, 25, "item 1 must be text", ""),
    (A_FLOW + "runtime: { env: [] }", 2, 12, "no key 'env'", "expose_env"),
    (A_FLOW + "pipes: { p: [a] }", 2, 13, "pipe 'p' must be text", ""),
    (A_FLOW + "pipes: { p: a >> }", 2, 17, "ends too early", "a name"),
    (A_FLOW + "tasks: [a]", 2, 8, "must be a mapping", ""),
    (A_FLOW + "tasks:\n  a:", 3, 5, "task 'a' must be a mapping, but is empty", "a: {}"),
    (A_FLOW + "tasks:\n  a: m:f", 3, 6, "task 'a' must be a mapping, but is text", "callable"),
]
OPTIONS_REFUSED = [
    ("retry: 1", "no key 'retry'", "did you mean 'retries'"),
    ("trigger_policy: ANY", "no key 'trigger_policy'", "graph"),
    ("callable: 'm:f', use: u", "both 'callable' and 'use'", "keep one"),
    ("use: u, wait: {}", "both 'use' and 'wait'", "keep one"),
    ("callable: f", "cannot be 'f'", "module.path:function"),
    ("callable: 'a:b:c'", "cannot be", "module.path:function"),
    ("callable: ''", "is empty", ""),
    ("inputs: [1]", "must be a mapping", ""),
    ("outputs: x", "a list of texts", "["),
    ("retries: -1", "too small", "from 0"),
    ("retries: true", "must be a number, but is true/false", "number"),
    ("retries: '3'", "must be a number, but is text", "number"),
    ("retries: {}", "must be a number, but is a mapping", "number"),
    ("retries: 1.5", "must be a whole number", "write 2"),
    ("retries: 10000000000", "too large", "1000000000"),
    ("timeout_sec: 0", "is zero", "more than 0"),
    ("timeout_sec: .nan", "not a finite number", ""),
    ("timeout_sec: -.inf", "not a finite number", ""),
    ("timeout_sec: [1]", "must be a number, but is a list", ""),
    ("fail_policy: isolated", "cannot be 'isolated'", "did you mean 'isolate'"),
    ("isolation: vm", "cannot be 'vm'", "auto, thread, process"),
    ("isolation: yes", "must be text, but is true/false", "quotes"),
    ("backoff: fast", "must be a number, but is text", ""),
    ("backoff: -1", "too small", ""),
    ("backoff: { factor: 0.5 }", "too small", "from 1"),
    ("backoff: { jitter: 2 }", "too large", "to 1"),
    ("backoff: { kind: linear }", "cannot be 'linear'", "fixed, exponential"),
    ("backoff: { delay: 1 }", "no key 'delay'", "did you mean 'delay_sec'"),
    ("wait: ", "must be a mapping, but is empty", "key"),
    ("wait: { deadline: 3 }", "no key 'deadline'", "did you mean 'deadline_sec'"),
    ("wait: { deadline_sec: 0 }", "is zero", ""),
    ("wait: { key: 3 }", "must be text", "quotes"),
    ("wait: { prompt: [a] }", "must be a mapping, but is a list", ""),
    ("wait: { prompt: 3 }", "must be text", ""),
]


@pytest.mark.parametrize(("text", "line", "column", "message", "remedy"), REFUSED, ids=[case[0] for case in REFUSED])
def test_a_file_is_refused(text: str, line: int, column: int, message: str, remedy: str) -> None:
    error = refusal(text)
    assert (error.line, error.column) == (line, column)
    assert message in error.message
    assert remedy in error.remedy


@pytest.mark.parametrize(("options", "message", "remedy"), OPTIONS_REFUSED, ids=[case[0] for case in OPTIONS_REFUSED])
def test_options_are_refused(options: str, message: str, remedy: str) -> None:
    error = refusal(f"{A_FLOW}tasks:\n  a: {{ {options} }}\n")
    assert error.line == 3
    assert message in error.message
    assert remedy in error.remedy


def test_a_refusal_is_bad_input_with_the_platforms_ids() -> None:
    error = refusal("flows: {}")
    assert isinstance(error, FlowError | InvalidInputError | ValueError)
    assert (error.err_id, error.msg_id) == ("ERR-PYOCO-0002", "MSG-PYOCO-0002")
    assert str(error).startswith("line 1, column 1: the file has no key 'flows'; ")


def test_long_words_are_shortened_in_messages() -> None:
    error = refusal("x" * 5000 + "é" * 300 + ": 1")
    assert len(str(error)) < 300


def test_tasks_cannot_use_each_other_in_a_circle_or_endlessly() -> None:
    assert "uses itself" in refusal(A_FLOW + "tasks: { a: { use: b }, b: { use: a } }").message
    chain = "".join(f"  t{n}: {{ use: t{n + 1} }}\n" for n in range(MAX_USES + 2))
    assert "use each other" in refusal(f"{A_FLOW}tasks:\n{chain}").message


def test_inputs_are_limited_also_in_sum() -> None:
    most = "{ " + ", ".join(f"i{n}: 1" for n in range(MAX_INPUTS)) + " }"
    assert len(task(f"{{ inputs: {most} }}").inputs) == MAX_INPUTS
    assert "inputs" in refusal(f"{A_FLOW}tasks: {{ a: {{ inputs: {most[:-1]}, x: 1 }} }} }}").message
    shared = f"{A_FLOW}tasks: {{ b: {{ inputs: {most} }}, a: {{ use: b, inputs: {{ x: 1 }} }} }}"
    assert "inputs" in refusal(shared).message


def test_graph_and_pipes_are_limited_in_sum() -> None:
    text = "a" * (MAX_GRAPH_TEXT // 2)
    read(f"flow: {{ graph: {text} }}\npipes: {{ p: {text} }}")
    assert "characters together" in refusal(f"flow: {{ graph: {text}b }}\npipes: {{ p: {text} }}").message


# --- Places ----------------------------------------------------------------------------------------------------------

STYLES = {
    "literal": "flow:\n  graph: |\n\n    a >> b\n      >> switch(on='😀é'){ 1: @ c\n",
    "literal, stripped, with a comment": "flow:\n  graph: |-  # the graph\n    a\n    >> @ c",
    "literal, with its indentation given": "flow:\n  graph: |2\n        a\n     >> @ c\n",
    "folded": "flow:\n  graph: >\n    a >> b\n    >> c\n\n    >>   @ d\n",
    "plain": "flow:\n  graph: a >> b >> @ c\n",
    "plain, over several lines": "flow:\n  graph: a >>\n    b\n\n    >> @ c\n",
    "single quotes": "flow:\n  graph: 'switch(on=''x''){ \"it''s\": b } >>\n    @ c'\n",
    "double quotes": 'flow:\n  graph: "switch(on=\\"x\\"){ \\"\\x41\\u00e9\\t\\": b\\n } >>\\\n    \\  @ c"\n',
    "a branch in quotes": "flow:\n  graph: |\n    switch(on=x){\n      1: 'a >> \\b @ c'\n    }\n",
    "windows lines": "flow:\r\n  graph: |\r\n    a >>\r\n    @ c\r\n",
    "inside a pipe": "flow: { graph: a }\npipes:\n  p: |\n    a >>\n     @ c\n",
}


@pytest.mark.parametrize("text", STYLES.values(), ids=STYLES)
def test_an_error_inside_a_graph_points_into_the_file(text: str) -> None:
    with pytest.raises(FlowSyntaxError, match="'@'") as caught:
        read_flow_yaml(text, name="x")
    before = text[: text.index("@")].replace("\r\n", "\n")
    assert caught.value.line == before.count("\n") + 1
    assert caught.value.column == len(before) - before.rfind("\n")


def test_an_error_at_the_end_points_after_the_last_word() -> None:
    assert (refusal("flow:\n  graph: |\n    a >>\n\n\n").line, refusal("flow:\n  graph: |\n    a >>\n").column) == (
        3,
        9,
    )


def test_a_task_may_be_computed_again_if_the_file_says_so() -> None:
    assert task("{ callable: 'm:f', recompute: true }").recompute
    assert not task("{ callable: 'm:f' }").recompute
    problem = str(refusal("flow: { graph: a }\ntasks: { a: { recompute: often } }"))
    assert "'recompute' must be true or false" in problem
