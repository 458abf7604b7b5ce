"""Forms and templates of waits in the engine: the same check as over HTTP."""

from typing import Any

import pytest
from pyoco import Flow  # type: ignore[import-untyped]  # pyoco ships no type information

from pyoco_server import Engine, wait
from pyoco_server.adapters.memory.event_log import MemoryEventLog
from pyoco_server.flows.errors import AnswerError
from tests.app.runtime.flows import Calls, wait_until


def asking(calls: Calls, **options: Any) -> Flow:
    prompt = {"question": "Pay {{ results.sum.total }}?", "schema": {"enum": ["yes", "no"]}}
    return Flow("pay") >> calls.task("sum", {"total": 12}) >> wait("ask", prompt=prompt, **options) >> calls.task("pay")


def prompt_of(engine: Engine, run_id: str) -> Any:
    wait_until(lambda: "ask" in engine.get(run_id).nodes and engine.get(run_id).nodes["ask"].status == "WAITING")
    return engine.get(run_id).nodes["ask"].prompt


def test_a_wrong_answer_is_refused_and_the_wait_continues(engine: Engine) -> None:
    run_id = engine.start(asking(Calls()))
    assert prompt_of(engine, run_id)["question"] == "Pay 12?"
    version = engine.get(run_id).version
    with pytest.raises(AnswerError, match=r"input: the value is not one of"):
        engine.resume(run_id, "ask", "maybe")
    assert (engine.get(run_id).version, engine.get(run_id).nodes["ask"].status) == (version, "WAITING")
    engine.resume(run_id, "ask", "yes")
    assert engine.wait(run_id).results["ask"] == "yes"


def test_the_prompt_is_what_the_log_says_when_another_process_takes_over() -> None:
    log, calls = MemoryEventLog(), Calls()
    with Engine(log=log) as engine:
        run_id = engine.start(asking(calls))
        prompt = prompt_of(engine, run_id)
    with Engine(log=MemoryEventLog.load(log.dump())) as engine:
        engine.take_up(asking(calls), run_id)
        assert prompt_of(engine, run_id) == prompt
        with pytest.raises(AnswerError):
            engine.resume(run_id, "ask", 1)
        engine.resume(run_id, "ask", "no")
        assert engine.wait(run_id).status == "COMPLETED"
        waits = [event for event in engine.events(run_id) if event.type == "NODE_WAITING"]
    assert len(waits) == 1
    assert calls.names == ["sum", "pay"]


def test_a_wait_that_comes_first_shows_parameters(engine: Engine) -> None:
    flow = Flow("first") >> wait("ask", prompt="{{ params.what }} or {{ nothing known }}?")
    run_id = engine.start(flow, {"what": "tea"})
    assert prompt_of(engine, run_id) == {"text": "tea or {{ nothing known }}?"}
    engine.resume(run_id, "ask", {"any": "thing"})
    assert engine.wait(run_id).status == "COMPLETED"


def test_a_template_without_a_value_fails_the_wait(engine: Engine) -> None:
    ended = engine.run(Flow("f") >> Calls().task("sum", {}) >> wait("ask", prompt="{{ results.sum.total }}"))
    assert ended.status == "FAILED"
    error = ended.state.nodes["ask"].error or {}
    assert error["code"] == "PromptError"
    assert error["message"].startswith("prompt.text: {{ results.sum.total }} cannot be shown: ")
