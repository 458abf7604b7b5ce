"""The root of every error this package raises on purpose, and the exception that interrupts a task."""

from typing import ClassVar


class PyocoServerError(Exception):
    """An error that a user or an operator can act on.

    ``err_id`` and ``msg_id`` are the platform's stable identifiers; an error class for bad input has them, so that the
    code that reports the error (HTTP, log, command line) need not know the class.
    """

    err_id: ClassVar[str | None] = None
    msg_id: ClassVar[str | None] = None


class InvalidInputError(PyocoServerError):
    """The input is not valid; nothing was changed."""

    err_id: ClassVar[str | None] = "ERR-PYOCO-0002"
    msg_id: ClassVar[str | None] = "MSG-PYOCO-0002"


class TaskInterrupted(BaseException):
    """Raised in a plain function that runs in a thread, when its run is cancelled or its timeout has passed.

    It is raised at the next bytecode outside of ``ctx.shield()``. It is no ``Exception``, so that ``except Exception``
    does not catch it: release resources in ``finally`` or ``with``, and do not catch it.
    """
