"""The assumptions of the comparison of the two engines, and the differences that it shows itself.

The flows that are compared are in the files beside this one, by subject: each runs on pyoco's engine and on ours, and
must have the same end, the same results, the same states of tasks and the same error. Where the two are meant to
differ, see ``docs/pyoco-differences.md``, ``test_pyoco_differences.py``, and the end of this file.
"""

import pytest
from pyoco.core.models import Flow  # type: ignore[import-untyped]  # pyoco ships no type information

from pyoco_server import Engine
from pyoco_server.flows.errors import FlowError
from tests.app.runtime.pyoco_side import Built, attributes, returning, run_on_both, run_on_ours, run_on_pyoco, step


def test_a_case_that_reuses_a_flow_is_refused(engine: Engine) -> None:
    """pyoco writes onto the tasks of a flow it runs, so one flow for both would be no comparison."""
    flow = Flow() >> returning("a", 1)
    with pytest.raises(AssertionError, match="both engines got the same tasks"):
        run_on_both(engine, lambda: Built(flow))


def test_flows_that_share_a_task_do_not_see_each_other(engine: Engine) -> None:
    """pyoco writes the edges of both flows onto the shared task; ours reads those of the flow it is given."""
    shared, first, second = step(lambda: "s", "s"), returning("a", 1), returning("b", 2)
    one, other = Flow(name="one") >> first >> shared, Flow(name="other") >> second >> shared
    before = attributes(one), attributes(other)
    assert run_on_ours(engine, Built(one)).results == {"a": 1, "s": "s"}
    assert run_on_ours(engine, Built(other)).results == {"b": 2, "s": "s"}
    assert (attributes(one), attributes(other)) == before
    assert shared.task.dependencies == {first.task, second.task}


def test_two_tasks_of_one_name_in_a_network(engine: Engine) -> None:
    """pyoco calls the first and never the second; no author can want that, so ours refuses the flow."""

    def build() -> Built:
        built = Built(Flow())
        for number in (1, 2):
            built.flow >>= step(lambda number=number: built.notes.append(number), "a")
        return built

    theirs, ours = build(), build()
    assert run_on_pyoco(theirs).status == "COMPLETED"
    assert theirs.notes == [1]
    with pytest.raises(FlowError, match="two different tasks have the name 'a'"):
        engine.run(ours.flow)
    assert ours.notes == []


def test_arguments_by_position_only(engine: Engine) -> None:
    """pyoco gives every argument by keyword; ours gives by position what can be given in no other way."""
    pyoco, _, ours, _ = run_on_both(engine, lambda: Built(Flow() >> step(lambda x, /: x, "a"), {"x": 1}))
    assert pyoco.error is not None
    assert pyoco.error[0] == "TypeError"
    assert ours.results == {"a": 1}
