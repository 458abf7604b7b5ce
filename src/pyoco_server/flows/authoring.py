"""Functions for flow authors, besides pyoco's: steps that wait, and options that pyoco's tasks do not have."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from pyoco.core.models import Task  # type: ignore[import-untyped]  # pyoco ships no type information
from pyoco.dsl.syntax import TaskWrapper  # type: ignore[import-untyped]

from pyoco_server.core import DecodeError
from pyoco_server.core.json_codec import parse_object
from pyoco_server.flows.errors import AnswerError, FlowError
from pyoco_server.flows.forms import check_answer
from pyoco_server.flows.model import TASK_OPTIONS, Backoff, Interrupt, Isolation, WaitSpec, check_at_most_once
from pyoco_server.flows.options import seconds, text
from pyoco_server.flows.prompts import LARGEST_PROMPT, check_prompt, has_templates

_NOTHING: Final = object()
LONGEST_WAIT_SEC: Final = 10 * 366 * 24 * 3600


def wait(
    name: str,
    *,
    prompt: Mapping[str, Any] | str | None = None,
    key: str | None = None,
    deadline_sec: float | None = None,
    default: Any = _NOTHING,  # noqa: ANN401 the result of a wait is any value
) -> TaskWrapper:
    """Make a step that waits for a person or a program to resume it; the input of the resume is its result.

    ``Flow() >> draft >> wait("approval", prompt={"question": "ok?"}) >> publish``. When ``deadline_sec`` passes, the
    result is ``default``; without a default the step fails.

    A ``schema`` in the prompt is what an answer must match: another answer is refused, and the wait continues.
    Templates in the prompt, such as ``{{ results.draft }}``, are rendered when the wait starts.
    """
    if not text(f"wait({name!r}): the name", name).isidentifier():
        raise FlowError(f"wait({name!r}): the name must be an identifier, such as 'approval'")
    if deadline_sec is not None:
        deadline_sec = seconds(f"wait({name!r}): deadline_sec", deadline_sec, most=LONGEST_WAIT_SEC)
    if key is not None:
        text(f"wait({name!r}): key", key)
    if prompt is not None and not isinstance(prompt, str | Mapping):
        raise FlowError(f"wait({name!r}): prompt cannot be {prompt!r:.80}: give a text or a mapping")
    if default is not _NOTHING and deadline_sec is None:
        raise FlowError(f"wait({name!r}): a default needs a deadline_sec to be taken at")
    try:
        parse_object({"prompt": prompt, "default": None if default is _NOTHING else default})
    except DecodeError as error:
        raise FlowError(f"wait({name!r}): prompt and default must be JSON: {error}") from error
    if len(msgspec.json.encode(None if default is _NOTHING else default)) > LARGEST_PROMPT:
        raise FlowError(
            f"wait({name!r}): default: it has more than {LARGEST_PROMPT} bytes; return it from a task instead"
        )
    asked = {"text": prompt} if isinstance(prompt, str) else dict(prompt or {})
    _check_prompt(name, asked, default)
    waiting = Task(func=_never_called, name=name)
    waiting.wait = WaitSpec(
        key=key or name,
        prompt=asked,
        deadline_sec=deadline_sec,
        has_default=default is not _NOTHING,
        default=None if default is _NOTHING else default,
    )
    return TaskWrapper(waiting)


def _check_prompt(name: str, prompt: Mapping[str, Any], default: Any) -> None:  # noqa: ANN401 any JSON value
    try:
        check_prompt(prompt)
        if default is not _NOTHING and not has_templates(prompt):
            check_answer(name, prompt, default)
    except AnswerError as error:
        raise FlowError(f"wait({name!r}): the default does not fit the prompt's form: {error.summary}") from error
    except FlowError as error:
        raise FlowError(f"wait({name!r}): {error}") from error


def options(  # noqa: PLR0913 one parameter an option
    step: TaskWrapper,
    *,
    retries: int | None = None,
    backoff: Backoff | float | None = None,
    timeout_sec: float | None = None,
    fail_policy: str | None = None,
    isolation: Isolation | str | None = None,
    interrupt: Interrupt | str | None = None,
    max_crashes: int | None = None,
    at_most_once: bool | None = None,
    recompute: bool | None = None,
) -> TaskWrapper:
    """Set options of a task and return it; options that are not given do not change.

    They belong to the task: every flow that uses it has them. For other options in one flow, make another task.

    ``interrupt="flag"``: a cancel or timeout only sets ``ctx.is_cancelled``; no exception is raised in the function.
    ``max_crashes``: the task fails when this many workers have died while they ran it (3 unless set).
    ``at_most_once=True``: a task that was started is never called again; if its worker is gone before the result is
    recorded, the task fails. It cannot have retries.
    ``recompute=True``: the task may be called again, as another attempt in the log, when a task needs its result and
    the result is lost: it could not be stored, and the process that had it has ended.
    """
    if not isinstance(step, TaskWrapper):
        raise FlowError(f"options() cannot be set on {step!r:.80}: give a task, which is a function with @task")
    asked = {
        "retries": retries,
        "backoff": backoff,
        "timeout_sec": timeout_sec,
        "fail_policy": fail_policy,
        "isolation": isolation,
        "interrupt": interrupt,
        "max_crashes": max_crashes,
        "at_most_once": at_most_once,
        "recompute": recompute,
    }
    # All are checked before any is set.
    given = {name: TASK_OPTIONS[name].checked(name, value) for name, value in asked.items() if value is not None}
    all_set = {**vars(step.task), **given}
    check_at_most_once(
        step.task.name,
        retries=all_set.get("retries", 0),
        recompute=all_set.get("recompute", False),
        at_most_once=all_set.get("at_most_once", False),
    )
    for name, value in given.items():
        setattr(step.task, name, value)
    return step


def _never_called() -> None:
    raise AssertionError("a wait has no function to call")
