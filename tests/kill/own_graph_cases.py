"""Random flows with random edits, and what is done to the one run of each; the flows as files for real workers."""

import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from pyoco_server.flows.model import Backoff, FlowModel, Network, Program, TaskSpec, tasks_of, with_tasks
from tests.kill import own_graph_tasks
from tests.worker.own_graph_flows import edited, flows, parameters

_EDITS: Final = 2
_FUNCTIONS: Final = ("called", "awaited")
_FILE: Final = """
import pickle
from pathlib import Path
globals().update(pickle.loads(Path(__file__).with_suffix(".pickle").read_bytes()))
"""


class Case(NamedTuple):
    """A flow, its edits, and what is done to the one run of it, by the number of a commit of its log."""

    versions: tuple[FlowModel, ...]
    """The flow, then its edits."""
    params: dict[str, Any]
    lose_at: frozenset[int]
    """The worker that drives the run is lost."""
    cancel_at: int | None


@st.composite
def cases(draw: st.DrawFn) -> Case:
    model = draw(flows())
    edits = tuple(draw(edited(model)) for _ in range(_EDITS))
    lose_at = draw(st.frozensets(st.integers(2, 9), max_size=3))
    cancel_at = draw(st.one_of(st.none(), st.none(), st.integers(2, 10)))
    return Case((model, *edits), draw(parameters()), lose_at, cancel_at)


def drawn(many: int, chosen: int) -> list[Case]:
    """So many cases; the same again for the same number."""
    found: list[Case] = []

    @seed(chosen)
    @settings(
        max_examples=many + 1,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
    )
    @given(cases())
    def collect(case: Case) -> None:
        found.append(case)

    collect()
    return found[1:]  # the first is the simplest there is


def runnable(model: FlowModel, name: str, *, whole: Sequence[FlowModel] = ()) -> FlowModel:
    """The flow under a name of its own and with functions; with the tasks of ``whole`` alone if those are given."""

    def with_function(task: TaskSpec) -> TaskSpec:
        if task.wait is not None:
            return task
        function = _FUNCTIONS[len(task.name + name) % len(_FUNCTIONS)]
        return msgspec.structs.replace(
            task,
            callable=f"{own_graph_tasks.__name__}:{function}",
            inputs={**task.inputs, "task": task.name, "flaky": task.retries > 0},
            backoff=Backoff(delay_sec=0.05),
            max_crashes=1_000,
        )

    if whole:
        tasks = {task.name: task for version in whole for task in tasks_of(version)}
        tasks |= {task.name: task for version in whole for task in tasks_of(version) if task.wait is None}
        return FlowModel(name=name, body=Network(tuple(map(with_function, tasks.values())), dict.fromkeys(tasks, ())))
    body = model.body
    if isinstance(body, Network):
        body = Network(tuple(map(with_function, body.tasks)), body.depends_on)
    else:
        body = Program(tuple(with_tasks(step, with_function) for step in body.steps))
    return FlowModel(name=name, body=body)


def versions(name: str, case: Case) -> list[FlowModel]:
    """All versions of a flow that workers may have, as they read them; the last one has all of the code."""
    made = [runnable(version, name) for version in case.versions]
    made.append(runnable(case.versions[0], name, whole=case.versions))
    return [pickle.loads(pickle.dumps(version)) for version in made]  # noqa: S301 our own


def write_flows(file: Path, code: dict[str, FlowModel]) -> None:
    """Write a Python file in which a worker finds these flows."""
    file.with_suffix(".pickle").write_bytes(pickle.dumps(code))
    file.write_text(_FILE, encoding="utf-8")
