"""The root of every error this package raises on purpose, and the exception that interrupts a task."""

from typing import ClassVar


class PyocoServerError(Exception):
    """An error somebody outside can act on.

    ``err_id`` and ``msg_id`` are the platform's stable identifiers; a class that stands for bad input carries
    them so that whoever reports the error (HTTP, log, command line) need not know which one it is.
    """

    err_id: ClassVar[str | None] = None
    msg_id: ClassVar[str | None] = None


class InvalidInputError(PyocoServerError):
    """What came in cannot be understood; nothing was changed by it."""

    err_id: ClassVar[str | None] = "ERR-PYOCO-0002"
    msg_id: ClassVar[str | None] = "MSG-PYOCO-0002"


class TaskInterrupted(BaseException):
    """Raised in a plain function that runs in a thread, when its run is cancelled or its time is over.

    It arrives at the next bytecode outside of ``ctx.shield()``. It is no ``Exception``, so that ``except Exception``
    does not catch it: release what you hold in ``finally`` or ``with``, and let it pass.
    """
