"""Parameters that nothing in a flow takes: reported where that can be known, never refused."""

import asyncio
import logging
import time
from typing import Any

import msgspec
import pytest
from pyoco import Flow, task  # type: ignore[import-untyped]  # pyoco ships no type information

from pyoco_server import Engine, wait
from pyoco_server.app.runtime.unused_params import read_unused, unused_params, warnings_of
from pyoco_server.flows.binding import bind
from pyoco_server.flows.from_pyoco import read_flow
from pyoco_server.flows.yaml.document import read_flow_yaml
from tests.worker.world import USER, World, attempt


@task  # type: ignore[untyped-decorator]  # pyoco ships no type information
def greet(name: str = "you", *, loud: bool = False) -> str:
    return name.upper() if loud else name


@task  # type: ignore[untyped-decorator]  # pyoco ships no type information
def look(ctx: Any, name: str = "you") -> Any:
    return ctx.params.get("whatever", name)


YAML = """
version: 1
flow:
  graph: |
    a >> switch(on={{ mode }}){ fast: b; default: foreach(over={{ $ctx.params.rows }}, item=row){ c }; }
  defaults: { limit: 3 }
tasks:
  a: { callable: "tests.app.runtime.test_unused_params:greet", inputs: { name: $ctx.params.who } }
  b: { callable: "tests.app.runtime.test_unused_params:greet", outputs: [params.kept] }
  c: { callable: "tests.app.runtime.test_unused_params:greet" }
"""


@pytest.mark.parametrize(
    ("given", "unused"),
    [
        ({}, {}),
        ({"name": "Ada", "loud": True}, {}),
        ({"nmae": "Ada"}, {"nmae": "name"}),
        ({"nmae": "Ada", "name": "Bob"}, {"nmae": None}),
        ({"colour": "red"}, {"colour": None}),
    ],
)
def test_where_no_task_takes_ctx_every_parameter_has_a_taker_or_none(
    given: dict[str, Any], unused: dict[str, str | None]
) -> None:
    assert unused_params(*read_flow(Flow("f") >> greet), given) == unused


@pytest.mark.parametrize(
    ("given", "unused"), [({"whatever": 1}, {}), ({"colour": "red"}, {}), ({"nmae": "Ada"}, {"nmae": "name"})]
)
def test_of_a_task_that_takes_ctx_only_misspelled_params_are_reported(
    given: dict[str, Any], unused: dict[str, str | None]
) -> None:
    assert unused_params(*read_flow(Flow("f") >> look), given) == unused


def test_params_in_expressions_inputs_outputs_and_defaults_are_used() -> None:
    model = read_flow_yaml(YAML, name="f")
    taken = {"mode": "fast", "rows": [], "who": "Ada", "kept": 1, "limit": 5, "name": "x", "loud": False}
    assert unused_params(model, bind(model), taken) == {}
    assert unused_params(model, bind(model), {"rwos": [], "limits": 2}) == {"rwos": "rows", "limits": "limit"}


def test_long_generated_names_cost_no_time() -> None:
    """The author of a flow.yaml can choose the names on both sides; a worker must not be kept busy comparing them."""
    model = read_flow_yaml(YAML, name="f")
    signs = [chr(0x4E00 + number * 7919 % 150) for number in range(60_000)]
    long = msgspec.structs.replace(model, defaults={"".join(signs): 1})
    began = time.process_time()
    assert unused_params(long, bind(model), {"".join(reversed(signs)): 1, "rwos": []}) == {"rwos": "rows"}
    assert time.process_time() - began < 1.0


def test_an_unused_param_is_logged_and_nothing_else_changes(caplog: pytest.LogCaptureFixture) -> None:
    with Engine() as engine:
        result = asyncio.run(_run(engine))
    assert result == "you"
    [record] = [record for record in caplog.records if getattr(record, "action", "") == "param_unused"]
    assert record.levelno == logging.WARNING
    assert record.getMessage() == "nothing in the flow takes the parameter 'nmae'; did you mean 'name'?"


async def _run(engine: Engine) -> Any:
    return (await asyncio.to_thread(engine.run, Flow("f") >> greet, {"nmae": "Ada"})).results["greet"]


def test_a_run_reports_unused_params_also_when_another_worker_resumes_it() -> None:
    async def body(world: World) -> None:
        flow = Flow("f") >> greet >> wait("w") >> greet_again
        run_id = await world.submit("f", {"nmae": "Ada"})
        await world.hand({"f": flow}).work()
        assert (await world.stored(run_id))["unused_params"] == {"nmae": "name"}
        await world.resume(run_id, "w", {}, USER)
        await world.hand({"f": flow}, "w2").work()
        stored = await world.stored(run_id)
        assert (stored["status"], stored["unused_params"]) == ("COMPLETED", {"nmae": "name"})
        started = [event for event in await world.events(run_id) if event.payload.extra.get("unusedParams")]
        assert len(started) == 1

    attempt(body)


@task  # type: ignore[untyped-decorator]  # pyoco ships no type information
def greet_again(name: str = "you") -> str:
    return name


@pytest.mark.parametrize("odd", [None, ["a"], {"a": 1}, {f"p{n}": None for n in range(51)}])
def test_invalid_unused_params_are_left_out(odd: object) -> None:
    assert read_unused(odd) is None


def test_each_unused_param_has_a_warning() -> None:
    assert warnings_of({"nmae": "name", "colour": None}) == [
        "nothing in the flow takes the parameter 'nmae'; did you mean 'name'?",
        "nothing in the flow takes the parameter 'colour'",
    ]
