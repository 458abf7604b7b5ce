"""Take the picture of a terminal that README.md shows: ``python -m tools.terminal_capture``.

The flow of README.md runs on a real server on a free port; the picture shows the default port.
"""

import io
import os
import pty
import re
import shlex
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import httpx
from rich.console import Console
from rich.text import Text

ROOT: Final = Path(__file__).resolve().parents[1]
PICTURE: Final = ROOT / "docs" / "images" / "terminal.svg"
WIDTH: Final = 100
PATIENCE_SEC: Final = 30.0
_FLOW: Final = re.compile(r"```python\n(# flows\.py\n.*?)```", re.DOTALL)
_ID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22}")


def main() -> int:
    """Run the flow, and write the picture."""
    flow = _FLOW.search((ROOT / "README.md").read_text(encoding="utf-8"))
    if flow is None:
        print("README.md has no flows.py any more", file=sys.stderr)
        return 1
    picture = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    with tempfile.TemporaryDirectory() as folder, socket.socket() as free:
        Path(folder, "flows.py").write_text(flow[1], encoding="utf-8")
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
        free.close()
        with _serving(folder, port) as output:
            _show(picture, "pyoco-server dev flows.py &", output.replace(port, "8000"))
            _run_it(picture, folder, port)
    PICTURE.write_text(picture.export_svg(title="pyoco-server", unique_id="terminal"), encoding="utf-8")
    print(f"written: {PICTURE.relative_to(ROOT)}")
    return 0


def _run_it(picture: Console, folder: str, port: str) -> None:
    def do(line: str, run_id: str = "") -> str:
        printed = _printed(line.replace("$RUN", run_id), folder, port)
        _show(picture, line, printed)
        return printed

    found = _ID.search(do("pyoco-client submit --flow-name report --param month=2026-02"))
    if found is None:
        raise RuntimeError("the run was not accepted")
    run_id = found[0]
    _show(picture, f"RUN={run_id}", "")
    _until(lambda: bool(_snapshot(port, run_id).get("waiting")))
    do("pyoco-client get $RUN", run_id)
    _printed(f"pyoco-client resume {run_id} approval --input " + """'{"by": "ann"}'""", folder, port)
    _show(picture, """pyoco-client resume $RUN approval --input '{"by": "ann"}' > /dev/null""", "")
    _until(lambda: _snapshot(port, run_id)["status"] == "COMPLETED")
    do("pyoco-client get $RUN --records", run_id)


def _show(picture: Console, command: str, printed: str) -> None:
    picture.print(Text.assemble(("$ ", "bold green"), (command, "bold")))
    for line in printed.splitlines():
        picture.print(Text.from_ansi(line.rstrip()))


def _environment(port: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYOCO_")}
    own = {"PYOCO_HTTP_PORT": port, "PYOCO_SERVER_URL": f"http://127.0.0.1:{port}", "COLUMNS": str(WIDTH)}
    path = os.pathsep.join([sysconfig.get_path("scripts"), os.environ["PATH"]])
    return {**kept, **own, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8", "PATH": path}


@contextmanager
def _serving(folder: str, port: str) -> Iterator[str]:
    """Start the server; yields its output."""
    log = Path(folder, "log")
    with log.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "pyoco_server.cli.server", "dev", "flows.py"],
            cwd=folder,
            env=_environment(port),
            stdout=file,
            stderr=file,
        )
        try:
            _until(lambda: "\n  try " in log.read_text(encoding="utf-8") or process.poll() is not None)
            yield log.read_text(encoding="utf-8")
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(PATIENCE_SEC)


def _printed(line: str, folder: str, port: str) -> str:
    """Return the output of a command on a terminal, with its colours."""
    ours, theirs = pty.openpty()
    try:
        subprocess.run(  # noqa: S603 our own command
            shlex.split(line),
            cwd=folder,
            env=_environment(port),
            stdin=subprocess.DEVNULL,
            stdout=theirs,
            stderr=theirs,
            check=True,
            timeout=PATIENCE_SEC,
        )
        os.close(theirs)
        return _all_of(ours).replace("\r\n", "\n")
    finally:
        os.close(ours)


def _all_of(ours: int) -> str:
    found = b""
    try:
        while more := os.read(ours, 65_536):
            found += more
    except OSError:
        pass  # Linux reports a closed other end like this
    return found.decode()


def _snapshot(port: str, run_id: str) -> dict[str, object]:
    found: dict[str, object] = httpx.get(f"http://127.0.0.1:{port}/runs/{run_id}", timeout=5).json()
    return found


def _until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SEC
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError("the condition did not become true")
        time.sleep(0.05)


if __name__ == "__main__":
    sys.exit(main())
