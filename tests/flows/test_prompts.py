"""Templates in prompts: what they become, and which are refused."""

from typing import Any

import pytest

from pyoco_server import wait
from pyoco_server.flows.errors import FlowError, FlowSyntaxError, PromptError
from pyoco_server.flows.prompts import check_prompt, has_templates, rendered
from pyoco_server.flows.yaml.checks import check_submitted
from pyoco_server.flows.yaml.document import read_flow_yaml

CONTEXT = {
    "results": {"sum": {"total": 12.5, "rows": [1, 2]}, "name": "Ada"},
    "params": {"limit": 10},
    "item": {"id": "x1"},
    "loop": None,
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("total {{ results.sum.total }}", "total 12.5"),
        ("{{ results.sum.total }}", 12.5),
        ("{{results.sum.rows}}", [1, 2]),
        ("rows {{ results.sum.rows }}!", "rows [1,2]!"),
        ("{{ results.name }} for {{ item.id }}", "Ada for x1"),
        ("{{ $ctx.results.sum.total > $ctx.params.limit }}", True),
        ("{{ ctx.params.limit }}", 10),
        ("at {{ env.HOUSE }}", "at home"),
        ("Dear {{ customer }}", "Dear {{ customer }}"),
        ("{{ your name }} {{}} { results.name }", "{{ your name }} {{}} { results.name }"),
    ],
)
def test_templates_become_values(text: str, expected: Any) -> None:
    shown = rendered({"question": text, "beside": [text, 7]}, ctx=CONTEXT, env={"HOUSE": "home"})
    assert shown == {"question": expected, "beside": [expected, 7]}


def test_options_may_be_a_result() -> None:
    prompt = {"options": "{{ results.sum.rows }}"}
    assert has_templates(prompt)
    assert rendered(prompt, ctx=CONTEXT, env={}) == {"options": [1, 2]}


@pytest.mark.parametrize(
    ("prompt", "problem"),
    [
        ({"a": ["{{ results.gone }}"]}, r"prompt\.a\.0: \{\{ results\.gone \}\} cannot be shown: .*not found"),
        ({"a": "{{ results.sum }}" * 9_000}, "more than 65536 bytes"),
    ],
)
def test_what_cannot_be_rendered_is_reported(prompt: dict[str, Any], problem: str) -> None:
    with pytest.raises(PromptError, match=problem):
        rendered(prompt, ctx=CONTEXT, env={})


@pytest.mark.parametrize("text", ["{{ results.a b }}", "{{ $ctx.params.n + }}", "{{ $ctx.a ** 999 }}"])
def test_a_template_that_can_never_be_rendered_is_refused_at_once(text: str) -> None:
    with pytest.raises(FlowError, match=r"^prompt\.question: "):
        check_prompt({"question": text})
    with pytest.raises(FlowError, match=r"^wait\('ask'\): prompt\.question: "):
        wait("ask", prompt={"question": text})


def test_a_default_must_fit_the_form() -> None:
    form = {"schema": {"properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}}
    with pytest.raises(
        FlowError, match=r"wait\('ask'\): the default does not fit .* input\.ok: this field is required"
    ):
        wait("ask", prompt=form, deadline_sec=1, default={})
    wait("ask", prompt=form, deadline_sec=1, default={"ok": False})
    with pytest.raises(FlowError, match=r"wait\('ask'\): prompt\.schema\.type is not JSON Schema"):
        wait("ask", prompt={"schema": {"type": "bool"}})


def yaml(prompt: str, more: str = "", env: str = "") -> str:
    return f"flow: {{ graph: ask }}\n{env}tasks:\n  ask: {{ wait: {{ prompt: {prompt}{more} }} }}\n"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (yaml("{ schema: { type: bool } }"), "the wait 'ask': prompt.schema.type is not JSON Schema"),
        (
            yaml("{ schema: { enum: [1] } }", ", deadline_sec: 1, default: 2"),
            "the default of the wait 'ask' does",
        ),
        (yaml("'{{ results.a b }}'"), "the wait 'ask': prompt.text: "),
    ],
)
def test_a_flow_yaml_is_checked_when_it_is_submitted(text: str, problem: str) -> None:
    model = read_flow_yaml(text, name="flow")
    with pytest.raises(FlowSyntaxError) as caught:
        check_submitted(model)
    assert problem in str(caught.value)
    assert caught.value.line == 3


@pytest.mark.parametrize("template", ["{{ env.SECRET }}", "{{ $ctx.params.a + $env.SECRET }}"])
def test_a_flow_yaml_shows_no_variable_that_is_not_exposed(template: str) -> None:
    with pytest.raises(FlowSyntaxError, match="environment variable 'SECRET' is not exposed"):
        read_flow_yaml(yaml(f"{{ question: '{template}' }}"), name="flow")
    read_flow_yaml(yaml(f"{{ question: '{template}' }}", env="runtime: { expose_env: [SECRET] }\n"), name="flow")


@pytest.mark.parametrize("value", [{"\ud800": 1}, 10**5000], ids=["surrogate", "digits"])
@pytest.mark.parametrize("text", ["{{ results.odd }}", "it is {{ results.odd }}"])
def test_a_value_that_cannot_be_written_is_refused_with_its_template(text: str, value: object) -> None:
    with pytest.raises(PromptError, match=r"prompt.question: \{\{ results.odd \}\} cannot be shown"):
        rendered({"question": text}, ctx={"results": {"odd": value}}, env={})
