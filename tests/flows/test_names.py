"""Names in expressions, inputs and prompts that the flow does not have."""

from typing import Any

import pytest
from pyoco import Flow  # type: ignore[import-untyped]  # pyoco ships no type information
from pyoco.dsl.syntax import switch  # type: ignore[import-untyped]

from pyoco_server import wait
from pyoco_server.flows.errors import FlowError, FlowSyntaxError
from pyoco_server.flows.from_pyoco import read_flow
from pyoco_server.flows.yaml.checks import check_submitted
from pyoco_server.flows.yaml.document import read_flow_yaml
from tests.app.runtime.pyoco_side import step

TASKS = """\
tasks:
  load: { callable: "m:f", outputs: [results.rows.kept, params.limit, scratch.x] }
  ask: { wait: { prompt: "%s" } }
"""


def submitted(graph: str, prompt: str = "ok?", defaults: str = "{ items: [1], mode: fast }") -> None:
    text = f"flow:\n  graph: |\n    {graph}\n  defaults: {defaults}\n{TASKS % prompt}"
    model = read_flow_yaml(text, name="flow")
    check_submitted(model, params=model.defaults)


@pytest.mark.parametrize(
    "graph",
    [
        "load >> foreach(over={{ results.load }}, item=row, index=i){ ask }",
        "load >> foreach(over={{ results.rows.kept }}){ ask }",
        "foreach(over=items, item=row){ switch(on={{ $ctx.row.kind }}){ a: load; default: ask } }",
        "foreach(over=items, item=row){ foreach(over={{ row.parts }}, item=part){ load } }",
        "until(cond={{ $ctx.loop.index > 3 and $ctx.params.limit > 1 }}){ load }",
        "until(cond={{ $ctx.set_by_a_task }}){ load }",
        "repeat(count=later){ load }",
        "switch(on={{ scratch.x }}){ a: load; default: ask }",
        "switch(on={{ env.HOME == 'x' }}){ a: load; default: ask }".replace("env.HOME == 'x'", "params.mode"),
    ],
)
def test_names_that_the_flow_has_or_may_set_are_accepted(graph: str) -> None:
    submitted(graph)


@pytest.mark.parametrize(
    ("graph", "problem", "remedy"),
    [
        ("load >> foreach(over={{ results.laod }}){ ask }", "the flow has no result 'laod'", "did you mean 'load'?"),
        ("load >> foreach(over={{ results.elsewhere }}){ ask }", "the flow has no result 'elsewhere'", "write one of"),
        ("load >> foreach(over=itms){ ask }", "the flow has no parameter 'itms'", "did you mean 'items'?"),
        ("load >> foreach(over={{ result.load }}){ ask }", "the flow has no name 'result'", "did you mean 'results'?"),
        (
            "foreach(over=items, item=record){ switch(on={{ $ctx.recrod.kind }}){ a: load; default: ask } }",
            "the flow has no name 'recrod'",
            "did you mean 'record'?",
        ),
        (
            "until(cond={{ $ctx.loop.indx > 3 }}){ load }",
            "the flow has no field of a loop 'indx'",
            "did you mean 'index'?",
        ),
        ("switch(on=modes){ a: load; default: ask }", "the flow has no parameter 'modes'", "did you mean 'mode'?"),
    ],
)
def test_a_flow_yaml_with_a_name_it_does_not_have_is_refused(graph: str, problem: str, remedy: str) -> None:
    with pytest.raises(FlowSyntaxError) as caught:
        submitted(graph)
    assert problem in caught.value.message
    assert remedy in caught.value.remedy
    assert caught.value.line > 1, "it says where"


@pytest.mark.parametrize(
    ("prompt", "remedy"),
    [
        ("Pay {{ results.laod.total }}?", "did you mean 'load'?"),
        ("Pay {{ reslts.load.total }}?", "did you mean 'results'?"),
        ("Pay {{ $ctx.params.mde }}?", "did you mean 'mode'?"),
    ],
)
def test_templates_in_prompts_are_checked_too(prompt: str, remedy: str) -> None:
    with pytest.raises(FlowSyntaxError, match=r"prompt\.text of the wait 'ask'") as caught:
        submitted("load >> ask", prompt)
    assert remedy in caught.value.remedy
    submitted("load >> ask", "Dear {{ name }}, {{ results.load.total }} of {{ params.mode }}")


def returning(name: str, **fields: Any) -> Any:
    return step(lambda: 1, name, **fields)


@pytest.mark.parametrize(
    "flow",
    [
        lambda: Flow("f") >> returning("fetch") >> returning("use", inputs={"x": "$node.fecth.output"}),
        lambda: Flow("f") >> returning("fetch") >> returning("use")["$ctx.results.fetched as row"],
        lambda: Flow("f") >> returning("fetch") >> switch("$ctx.resuls.fetch")["a" >> returning("use")],
        lambda: Flow("f") >> returning("fetch") >> returning("use") % "$ctx.loop.itm > 1",
        lambda: Flow("f") >> returning("fetch") >> wait("ask", prompt="{{ results.fetc }}?"),
    ],
)
def test_a_python_flow_with_a_misspelt_name_is_refused_when_it_is_read(flow: Any) -> None:
    with pytest.raises(
        FlowError,
        match=r"flow 'f': .*(has no|does not have).*did you mean '(fetch|results|item)'\?",
    ):
        read_flow(flow())


def sets_more(ctx: Any) -> None:
    ctx.set_result("fetched", [1])
    ctx.set_var("row2", 2)


@pytest.mark.parametrize(
    "flow",
    [
        lambda: Flow("f") >> step(sets_more, "fetch") >> returning("use")["$ctx.results.fetched as row"],
        lambda: Flow("f") >> (step(sets_more, "a") >> returning("b") % "$ctx.row2 > 1")["$ctx.params.rows as row"],
        lambda: Flow("f") >> returning("use", inputs={"x": "$node.elsewhere.output"}),
        lambda: Flow("f") >> returning("use", inputs={"x": "$ctx.params.use2"}),
        lambda: Flow("f") >> returning("fetch", outputs=["results.fetched"]) >> returning("b")["$ctx.results.fetched"],
    ],
)
def test_a_python_flow_may_set_names_while_it_runs(flow: Any) -> None:
    read_flow(flow())
