"""What can go wrong around a call, as opposed to inside it.

IsolationError
├── SlotsClosedError       the call came too late
├── ControlFlowError       the function raised something that would steer the event loop
├── NotPicklableError      something cannot travel between the processes
├── MessageTooLargeError   something is too large to travel
├── RemoteError            stands for an exception that could not travel
└── ProcessDiedError       the child ended before it answered
"""

import asyncio
import signal

from pyoco_server.errors import PyocoServerError
from pyoco_server.texts import shortened


class IsolationError(PyocoServerError):
    """The root of the errors of this folder.

    ``remote_traceback`` is the traceback of the child process as text, where there was one.
    """

    remote_traceback: str | None = None


class SlotsClosedError(IsolationError):
    """The slots were closed: the call was refused, or ended because of it."""


class ControlFlowError(IsolationError):
    """A function raised an exception that controls the event loop, such as ``SystemExit``.

    The original would stop the loop or look like a cancellation. It is in ``original``, and is the cause.
    """

    def __init__(self, original: BaseException) -> None:
        self.original = original
        super().__init__(
            f"The function raised {type(original).__name__}({_plain_text(original)}), "
            "which must not reach the event loop; raise an ordinary exception instead."
        )


class NotPicklableError(IsolationError):
    """Something cannot be sent to the child process or back.

    ``what`` names it ("the function", "argument 'path'", "the result"), ``reason`` says why, ``remedy`` what to do.
    """

    def __init__(self, what: str, reason: str, remedy: str) -> None:
        self.what = what
        self.reason = reason
        self.remedy = remedy
        super().__init__(f"Cannot send {what} between processes: {reason.rstrip('.')}. {remedy}")


class MessageTooLargeError(IsolationError):
    """Something is larger than a message to or from a child process may be."""

    def __init__(self, what: str, size: int, limit: int) -> None:
        self.what = what
        self.size = size
        self.limit = limit
        super().__init__(
            f"Cannot send {what} between processes: {size} bytes, the limit is {limit}. "
            "Write it to a file or a store and pass its name, or raise max_message_bytes."
        )


class RemoteError(IsolationError):
    """Stands for an exception of the function that could not be pickled or loaded again."""

    def __init__(self, type_name: str, message: str) -> None:
        self.type_name = type_name
        self.message = message
        super().__init__(f"{type_name}: {message}")


class ProcessDiedError(IsolationError):
    """The child process ended while a call ran in it.

    ``exit_code`` is set if it exited, ``signal_name`` if a signal ended it.
    """

    def __init__(self, pid: int, return_code: int) -> None:
        self.pid = pid
        self.exit_code = return_code if return_code >= 0 else None
        self.signal_name = _signal_name(-return_code) if return_code < 0 else None
        super().__init__(f"The child process {pid} {self._ending()} before the function returned.")

    def _ending(self) -> str:
        if self.signal_name is None:
            return f"ended with exit code {self.exit_code}"
        hint = " (by hand, or because memory ran out)" if self.signal_name == "SIGKILL" else ""
        return f"was ended by {self.signal_name}{hint}"


class RemoteTraceback(Exception):  # noqa: N818 (never raised: it is the cause of an error, so that Python prints it)
    """Shows the traceback of the child above the error it belongs to."""

    def __init__(self, trace: str) -> None:
        super().__init__(f"\n\n{trace}")


def fit_to_raise(error: BaseException) -> BaseException:
    """The error itself, or a ``ControlFlowError`` in its place if a coroutine must not raise it."""
    if isinstance(error, StopIteration | asyncio.CancelledError | KeyboardInterrupt | SystemExit | GeneratorExit):
        substitute = ControlFlowError(error)
        substitute.__cause__ = error
        return substitute
    return error


def _plain_text(error: BaseException) -> str:
    """Return the text of an error if no code of users writes it."""
    is_plain = type(error).__str__ in {BaseException.__str__, OSError.__str__} and all(
        type(part) in {str, int, float, bool, type(None)} for part in error.args
    )
    return repr(shortened(str(error))) if is_plain else "…"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal has no name
        return f"signal {number}"
