"""What can go wrong between a value and its JSON; see ``values.codec``."""

from typing import Final

from pyoco_server.errors import InvalidInputError, PyocoServerError
from pyoco_server.texts import shortened

USER_CODE_ERRORS: Final = (Exception, SystemExit, KeyboardInterrupt, GeneratorExit)
"""What code of users may raise while a value of theirs is read, stored or shown; none of it may end the worker."""


def text_of(error: BaseException) -> str:
    """Return the text of an error, shortened; code of users writes it, and may raise instead."""
    try:
        return shortened(str(error))
    except USER_CODE_ERRORS:  # an error that cannot be shown is still an error
        return f"a {type(error).__name__} that cannot be shown"


class NotTaggableError(PyocoServerError):
    """No tag covers a value; ``at`` says which part of it."""

    def __init__(self, value: object, at: str, reason: str) -> None:
        super().__init__(f"a {type(value).__qualname__} (at {at}) cannot be written as tagged JSON: {reason}")
        self.at = at
        self.reason = reason
        self.type_name = type(value).__qualname__


class ValueCodecError(InvalidInputError, ValueError):
    """Tagged JSON that cannot be read; ``at`` says where, ``problem`` what is wrong with it."""

    def __init__(self, problem: str, at: str) -> None:
        super().__init__(f"{problem} (at {at})")
        self.problem = problem
        self.at = at

    def __reduce__(self) -> tuple[type["ValueCodecError"], tuple[str, str]]:  # type: ignore[explicit-override]
        return ValueCodecError, (self.problem, self.at)


class ClassNamedError(ValueCodecError):
    """Tagged JSON names a class where only values of built-in types are read."""

    def __reduce__(self) -> tuple[type["ValueCodecError"], tuple[str, str]]:  # type: ignore[explicit-override]
        return ClassNamedError, (self.problem, self.at)


class ResultLostError(PyocoServerError):
    """A task needs a value that no longer exists, or that cannot be loaded here; its node fails as ``RESULT_LOST``.

    ``what`` names the value, ``task`` and ``node_id`` its task (None for a decision of a block), ``reason`` says why.
    """

    def __init__(self, what: str, reason: str, *, task: str | None = None, node_id: str | None = None) -> None:
        remedy = (
            f"Let '{task}' return something that can be stored, or declare it repeatable with "
            f"options({task}, recompute=True) (flow.yaml: recompute: true)."
            if task is not None
            else "Let the expression yield something that can be stored."
        )
        super().__init__(f"{what} is lost: {reason.rstrip('.')}. {remedy}")
        self.what = what
        self.reason = reason
        self.task = task
        self.node_id = node_id

    def __reduce__(self) -> tuple[object, ...]:  # type: ignore[explicit-override]
        return _lost, (self.what, self.reason, self.task, self.node_id)


def lost_behind(error: BaseException) -> ResultLostError | None:
    """Return the lost result that led to an error, or None: what evaluates expressions wraps the errors it meets."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ResultLostError):
        cause = cause.__cause__
    return cause


def _lost(what: str, reason: str, task: str | None, node_id: str | None) -> ResultLostError:
    return ResultLostError(what, reason, task=task, node_id=node_id)
