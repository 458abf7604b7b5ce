"""The errors of the embedded NATS server; each text says what to do.

NatsServerError
├── ExecutableMissingError    the program is not installed
├── ExecutableUnusableError   it is there, but the system does not run it
├── DirectoryUnusableError    the data directory cannot be made, or not be written to
├── DirectoryInUseError       another server uses that directory
├── PortTakenError            another program listens on the port
├── StoreDamagedError         the server cannot read its store in the directory
├── StartTimeoutError         it runs, but does not answer
├── ServerDiedError           it ended by itself
└── RestartsExhaustedError    it ended again and again
"""

from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar

from pyoco_server.errors import PyocoServerError


class NatsServerError(PyocoServerError):
    """The root of these errors: no NATS server is available."""

    err_id: ClassVar[str | None] = "ERR-PYOCO-0003"
    msg_id: ClassVar[str | None] = "MSG-PYOCO-0003"


class ExecutableMissingError(NatsServerError):
    """A program is neither installed with this package nor on the search path."""

    def __init__(self, name: str, remedy: str) -> None:
        self.name = name
        super().__init__(f"The program '{name}' was not found. {remedy}")


class ExecutableUnusableError(NatsServerError):
    """A program is there, but cannot be run."""

    def __init__(self, path: Path, reason: str) -> None:
        self.path = path
        super().__init__(
            f"The program '{path}' cannot be run: {reason}. "
            "Install it again, for this kind of machine, and check that it may be executed."
        )


class DirectoryUnusableError(NatsServerError):
    """The data directory cannot be used."""

    def __init__(self, path: Path, reason: str) -> None:
        self.path = path
        super().__init__(
            f"The data directory '{path}' cannot be used: {reason}. Choose another one, or make it a directory "
            "that this user may write to, with space left, and on a local disk."
        )


class DirectoryInUseError(NatsServerError):
    """Another server uses the data directory.

    ``supervisor_pid`` is the process that started it, ``server_pid`` the server; None if unknown. ``is_orphan`` says
    that the supervisor is gone and the server has not ended.
    """

    def __init__(self, path: Path, supervisor_pid: int | None, server_pid: int | None, *, is_orphan: bool) -> None:
        self.path = path
        self.supervisor_pid = supervisor_pid
        self.server_pid = server_pid
        self.is_orphan = is_orphan
        supervisor, server = supervisor_pid or "unknown", server_pid or "unknown"
        if is_orphan:
            whose = f"a NATS server (process {server}) left behind by process {supervisor}, which is gone"
            remedy = f"End it ('kill {server}') and try again."
        else:
            whose = f"process {supervisor} and its NATS server (process {server})"
            remedy = "Stop that one first, or choose another directory."
        super().__init__(f"The data directory '{path}' is in use by {whose}. {remedy}")


class PortTakenError(NatsServerError):
    """Another program listens on the port."""

    def __init__(self, host: str, port: int) -> None:
        self.host = host
        self.port = port
        super().__init__(
            f"Port {port} on {host} is taken by another program. "
            "Stop that program, choose another port, or give port 0 for any that is free."
        )


class StoreDamagedError(NatsServerError):
    """JetStream cannot read its store, or would run without some of the streams in it.

    ``streams`` are those that it did not load. Nothing was changed; the server is not running.
    """

    def __init__(self, store: Path, streams: Iterable[str], log_tail: str, *, intact: Iterable[str] = ()) -> None:
        self.store = store
        self.streams = tuple(sorted(streams))
        self.intact = tuple(sorted(intact))
        self.log_tail = log_tail
        what = f"the streams {', '.join(self.streams)} cannot be read" if self.streams else "it cannot be read"
        rest = f" Intact are {', '.join(self.intact)}." if self.intact else ""
        super().__init__(
            f"The JetStream store '{store}' is damaged or out of reach: {what}.{rest} Nothing was changed. "
            f"Copy the store first. Then {self._remedy()}{_quoted(log_tail)}"
        )

    def _remedy(self) -> str:
        if not self.intact:
            return "check the disk and the permissions of the directory, or restore it from a backup."
        folders = ", ".join(f"streams/{name}" for name in self.streams)
        return (
            f"restore {folders} from a backup. Without one, move only these directories away: runs, lists and queue "
            "are rebuilt from the event log (PYOCO_EVENTS) if that is intact."
        )


class StartTimeoutError(NatsServerError):
    """The server was started, but did not become ready in time; it was ended."""

    def __init__(self, timeout_sec: float, missing: str, log_tail: str) -> None:
        self.timeout_sec = timeout_sec
        self.log_tail = log_tail
        super().__init__(
            f"The NATS server was not ready within {timeout_sec:g} s: {missing}. "
            f"If its store is very large, allow it more time.{_quoted(log_tail)}"
        )


class ServerDiedError(NatsServerError):
    """The server ended by itself. ``ending`` says how."""

    def __init__(self, ending: str, log_tail: str) -> None:
        self.ending = ending
        self.log_tail = log_tail
        super().__init__(f"The NATS server {ending}; its log may say why.{_quoted(log_tail)}")


class RestartsExhaustedError(NatsServerError):
    """The server ended repeatedly soon after its start, and is not started again. The last end is the cause."""

    def __init__(self, deaths: int, log_tail: str) -> None:
        self.deaths = deaths
        self.log_tail = log_tail
        super().__init__(
            f"The NATS server ended {deaths} times in a row soon after its start and is not started again. "
            f"Correct what its log reports, then start again.{_quoted(log_tail)}"
        )


def _quoted(log_tail: str) -> str:
    return f"\nIts last words:\n{log_tail}" if log_tail else ""
