"""A candidate's processes: started with logs and ports of their own, measured together, and all of them ended."""

import contextlib
import ctypes
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.peers import proc

ROOT = Path(__file__).resolve().parents[2]
START_SEC = 90.0
STOP_SEC = 10.0
CLIENT = "client"
NATS = "nats-server"
_PR_SET_CHILD_SUBREAPER = 36


class CandidateError(Exception):
    """A candidate cannot be measured, or not further; the text says why."""


class Stand:
    """Everything one candidate runs."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._started: dict[str, subprocess.Popen[bytes]] = {}

    def start(
        self, role: str, command: Sequence[str], *, env: Mapping[str, str] | None = None, user: str | None = None
    ) -> None:
        """Start a process, whose output goes to a file. It gets a signal if this one is killed."""
        setpriv = shutil.which("setpriv")
        tied = [setpriv, "--pdeathsig", "TERM", "--"] if setpriv is not None else []
        with (self.directory / f"{role}.log").open("ab") as log:
            self._started[role] = subprocess.Popen(  # noqa: S603 our own commands
                [*tied, *command],
                cwd=self.directory,
                env=environment(env or {}),
                stdin=subprocess.PIPE if role == CLIENT else subprocess.DEVNULL,
                stdout=subprocess.PIPE if role == CLIENT else log,
                stderr=log,
                user=user,
                group=user,
                extra_groups=[] if user else None,
            )

    def wait(self, role: str, holds: Callable[[], bool], limit_sec: float = START_SEC) -> None:
        """Wait for something that a process of this role brings about."""
        ends_at = time.monotonic() + limit_sec
        while not holds():
            if self._started[role].poll() is not None:
                raise CandidateError(f"its {role} ended: {self.log_tail(role)}")
            if time.monotonic() > ends_at:
                raise CandidateError(f"its {role} was not ready after {limit_sec:.0f} s: {self.log_tail(role)}")
            time.sleep(0.05)

    def ask(self, question: Mapping[str, Any] | None, limit_sec: float) -> dict[str, Any]:
        """Give the client its next line (None: it was just started) and return its answer."""
        client = self._started[CLIENT]
        if client.stdin is None or client.stdout is None:
            raise RuntimeError("a client has pipes")
        if question is not None:
            with contextlib.suppress(BrokenPipeError):  # it ended: reported below
                client.stdin.write(json.dumps(question).encode() + b"\n")
                client.stdin.flush()
        ends_at, read = time.monotonic() + limit_sec, b""
        while not read.endswith(b"\n"):
            ready, _, _ = select.select([client.stdout], [], [], max(0.0, ends_at - time.monotonic()))
            if not ready:
                raise CandidateError(f"its client did not answer within {limit_sec:.0f} s: {self.log_tail(CLIENT)}")
            if not (piece := os.read(client.stdout.fileno(), 2**16)):
                raise CandidateError(f"its client ended: {self.log_tail(CLIENT)}")
            read += piece
        answer: dict[str, Any] = json.loads(read)
        if "error" in answer:
            raise CandidateError(answer["error"])
        return answer

    def kill(self, role: str) -> None:
        """End a process as a power cut would."""
        self._started[role].kill()
        self._started[role].wait()

    def end(self, role: str, limit_sec: float = STOP_SEC) -> None:
        """End a process as an operator would; it may be started again."""
        self._started[role].terminate()
        try:
            self._started[role].wait(limit_sec)
        except subprocess.TimeoutExpired as error:
            raise CandidateError(f"its {role} did not end within {limit_sec:.0f} s") from error

    def processor_sec(self) -> dict[str, float]:
        """What every role has used so far."""
        return {role: proc.processor_sec(pids) for role, pids in self._by_role().items()}

    def memory_mib(self) -> dict[str, float]:
        """What every role holds."""
        return {role: proc.memory_mib(pids) for role, pids in self._by_role().items()}

    def pids(self) -> set[int]:
        """All processes but the client's."""
        return proc.descendants(one.pid for role, one in self._started.items() if role != CLIENT)

    def _by_role(self) -> dict[str, set[int]]:
        """Return the processes of each role; an embedded NATS server is a role of its own."""
        roles: dict[str, set[int]] = {}
        for role, one in self._started.items():
            for pid in proc.descendants([one.pid]):
                roles.setdefault(NATS if proc.name(pid) == NATS else role, set()).add(pid)
        return roles

    def log_tail(self, role: str) -> str:
        """The end of what it wrote, on one line."""
        lines = (self.directory / f"{role}.log").read_text(errors="replace").split("\n")
        return " | ".join(line.strip() for line in lines if line.strip())[-600:]

    def stop(self) -> None:
        """End everything: the youngest first, gently, then all that is left."""
        for one in reversed(self._started.values()):
            for pipe in (one.stdin, one.stdout):
                if pipe is not None:
                    with contextlib.suppress(BrokenPipeError):
                        pipe.close()
            if one.poll() is None:
                one.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                one.wait(STOP_SEC)
        # Orphans come to us (see adopt_orphans), so what descends from this process now is what did not end.
        for pid in proc.descendants([os.getpid()]) - {os.getpid()}:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for one in self._started.values():
            one.wait()
        with contextlib.suppress(ChildProcessError):
            while True:
                os.waitpid(-1, 0)


def adopt_orphans() -> None:
    """From now on processes whose parents end become children of this one, where they can be found and ended."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def environment(extra: Mapping[str, str]) -> dict[str, str]:
    """Ours, without settings of other programs, and with the programs to be found."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYOCO_", "PYTHON", "PREFECT_"))}
    return {**kept, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", **extra}


def free_ports(count: int) -> list[int]:
    """Ports the system chose, all different."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def listening(port: int) -> Callable[[], bool]:
    """Return a condition: a process accepts connections there."""

    def accepts() -> bool:
        with socket.socket() as sock:
            return sock.connect_ex(("127.0.0.1", port)) == 0

    return accepts


def answering(port: int, path: str) -> Callable[[], bool]:
    """Does an HTTP server answer there, and well?"""

    def answers() -> bool:
        try:
            post_or_get(port, path)
        except OSError:
            return False
        return True

    return answers


def post_or_get(port: int, path: str, body: object = None) -> Any:  # noqa: ANN401 any JSON
    """GET, or POST if there is a body; the JSON that came back, or None."""
    content = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", content, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310 http, to this machine
        read = answer.read()
    with contextlib.suppress(ValueError):
        return json.loads(read)
    return None


@contextlib.contextmanager
def standing(directory: Path) -> Iterator[Stand]:
    """A stand that is taken down, whatever happens."""
    stand = Stand(directory)
    try:
        yield stand
    finally:
        stand.stop()
