"""Options given in Python: texts are converted, and invalid values are refused where they are given."""

import importlib
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyoco import Flow, task  # type: ignore[import-untyped]  # pyoco ships no type information

import pyoco_server
from pyoco_server import Backoff, BackoffKind, FlowError, Isolation, options, wait
from pyoco_server.app.runtime.attempt import pause
from pyoco_server.flows.from_pyoco import read_flow
from pyoco_server.flows.model import TaskSpec, tasks_of

ROOT = Path(__file__).parents[2]
ANY: Any = None


def a_task(**given: Any) -> TaskSpec:
    """A task with these options, as a flow has it."""

    @task  # type: ignore[untyped-decorator]  # pyoco ships no type information
    def step() -> None:
        """Do nothing."""

    [found] = tasks_of(read_flow(Flow() >> options(step, **given))[0])
    return found


def test_a_backoff_grows_whether_its_kind_is_a_text_or_not() -> None:
    for kind in ("exponential", BackoffKind.EXPONENTIAL):
        backoff = Backoff(kind=kind, delay_sec=1)  # type: ignore[arg-type]  # as people write it
        assert backoff == Backoff(kind=BackoffKind.EXPONENTIAL, delay_sec=1.0)
        assert [pause(backoff, failures, random.Random(0)) for failures in (1, 2, 3)] == [1.0, 2.0, 4.0]
    assert a_task(backoff=Backoff(kind="exponential")).backoff.kind is BackoffKind.EXPONENTIAL  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"kind": "linear"}, "backoff kind cannot be 'linear': give one of 'fixed', 'exponential'"),
        ({"kind": "EXPONENTIAL"}, "backoff kind"),
        ({"kind": None}, "backoff kind"),
        ({"kind": 2}, "backoff kind"),
        ({"delay_sec": -1}, "backoff delay_sec cannot be -1: give a number from 0 to"),
        ({"delay_sec": "1"}, "backoff delay_sec cannot be '1'"),
        ({"delay_sec": float("nan")}, "backoff delay_sec"),
        ({"delay_sec": float("inf")}, "backoff delay_sec"),
        ({"delay_sec": True}, "backoff delay_sec"),
        ({"factor": 0.5}, "backoff factor"),
        ({"cap_sec": None}, "backoff cap_sec"),
        ({"jitter": 1.1}, "backoff jitter cannot be 1.1: give a number from 0 to 1"),
    ],
)
def test_an_invalid_backoff_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(FlowError, match=f"^{re.escape(said)}"):
        Backoff(**given)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"retries": -1}, "retries cannot be -1: give a whole number, 0 or more"),
        ({"retries": 1.5}, "retries"),
        ({"retries": "3"}, "retries"),
        ({"retries": True}, "retries"),
        ({"backoff": "exponential"}, "backoff cannot be 'exponential': give a number from 0 to"),
        ({"backoff": -0.5}, "backoff"),
        ({"timeout_sec": 0}, "timeout_sec cannot be 0: give more than 0 seconds, or leave it out"),
        ({"timeout_sec": "10"}, "timeout_sec"),
        ({"timeout_sec": float("nan")}, "timeout_sec"),
        ({"fail_policy": "fail"}, "fail_policy cannot be 'fail': give one of 'stop', 'isolate', 'retry'"),
        ({"isolation": "container"}, "isolation cannot be 'container': give one of 'auto', 'thread', 'process'"),
        ({"isolation": 1}, "isolation"),
    ],
)
def test_an_invalid_option_is_refused_and_nothing_is_set(given: dict[str, Any], said: str) -> None:
    @task  # type: ignore[untyped-decorator]  # pyoco ships no type information
    def step() -> None:
        """Do nothing."""

    before = dict(vars(step.task))
    with pytest.raises(FlowError, match=f"^{re.escape(said)}"):
        options(step, **{"retries": 7, **given})
    assert vars(step.task) == before


def test_options_are_accepted_as_texts_and_numbers() -> None:
    found = a_task(retries=2, backoff=600, timeout_sec=3, fail_policy="isolate", isolation="process")
    assert (found.retries, found.timeout_sec, found.isolation) == (2, 3.0, Isolation.PROCESS)
    assert found.backoff == Backoff(delay_sec=600.0, cap_sec=600.0)
    assert found.on_failure.value == "isolate"


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: wait(ANY), "wait(None)"),
        (lambda: wait("a b"), "wait('a b'): the name must be an identifier"),
        (lambda: wait("a", deadline_sec=0), "wait('a'): deadline_sec cannot be 0"),
        (lambda: wait("a", deadline_sec="60"), "wait('a'): deadline_sec cannot be '60'"),  # type: ignore[arg-type]
        (lambda: wait("a", deadline_sec=1e9), "wait('a'): deadline_sec cannot be 1000000000.0"),
        (lambda: wait("a", key=""), "wait('a'): key cannot be ''"),
        (lambda: wait("a", key=3), "wait('a'): key cannot be 3"),  # type: ignore[arg-type]
        (lambda: wait("a", prompt=["x"]), "wait('a'): prompt cannot be ['x']"),  # type: ignore[arg-type]
        (lambda: wait("a", default=1), "wait('a'): a default needs a deadline_sec"),
        (lambda: options(print, retries=1), "options() cannot be set on <built-in function print>"),
    ],
)
def test_an_invalid_wait_is_refused(make: Callable[[], object], said: str) -> None:
    with pytest.raises(FlowError, match=f"^{re.escape(said)}"):
        make()


def test_all_that_documents_and_examples_use_comes_from_the_package_itself() -> None:
    public = {"pyoco_server", "pyoco_server.testing", "pyoco_server.core"}
    imports = re.compile(r"^(?:>>> )?from (pyoco_server[\w.]*) import (.+)$", re.MULTILINE)
    files = [
        ROOT / "README.md",
        ROOT / "README_ja.md",
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "examples").rglob("*.py"),
    ]
    found = [match for file in files if "adr" not in file.parts for match in imports.findall(file.read_text())]
    assert len(found) > 20
    for module, names in found:
        assert module in public, module
        for name in names.strip(" (").split(","):
            if name.strip():
                assert getattr(importlib.import_module(module), name.split(" as ")[0].strip())
    for name in pyoco_server.__all__:
        assert getattr(pyoco_server, name)
