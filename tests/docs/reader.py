"""A reader who runs every command of the documentation, word by word, in a folder of its own."""

import contextlib
import os
import subprocess
import sysconfig
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import httpx

from tests.cli.serving import clean_environment, free_port
from tests.docs.pages import Block
from tests.docs.terminal import PATIENCE_SEC, Terminal, pattern_of
from tests.plain_http import NO_TLS

_STAYS: Final = (
    "pyoco-server dev ",
    "pyoco-server up",
    "pyoco-worker ",
    "old/bin/pyoco-server up",
    "old/bin/pyoco-worker ",
)
_SERVER: Final = ("pyoco-server ", "old/bin/pyoco-server ")
_BEFORE: Final = '[ -f "$READER_VARIABLES" ] && . "$READER_VARIABLES"\nset -aeo pipefail\n'
_AFTER: Final = '\nexport -p > "$READER_VARIABLES"\n'


class Reader:
    """Runs one block after the other. Commands are run unchanged; only their environment is the test's:

    - the port of the gateway and the address of NATS, by environment variables (and for curl by its configuration)
    - variables that a block assigns are set in the blocks after it, as in one terminal
    - servers and workers keep running, each in its own terminal; before a server is started again, Ctrl-C stops it
    """

    def __init__(self, folder: Path, **variables: str) -> None:
        self._folder = folder / "my-flows"
        self._desk = folder / "desk"
        self._folder.mkdir()
        self._desk.mkdir()
        self.port = port = free_port()
        self._url = f"http://127.0.0.1:{port}"
        own = clean_environment(
            PATH=os.pathsep.join([sysconfig.get_path("scripts"), os.environ["PATH"]]),
            TERM="dumb",
            LANG="C.UTF-8",
            LC_ALL="C.UTF-8",
            CURL_HOME=str(self._desk),
            READER_VARIABLES=str(self._desk / "variables"),
            PYOCO_HTTP_PORT=str(port),
            PYOCO_SERVER_URL=self._url,
            PYOCO_DURABILITY="sync",  # the default: what a reader sees
            **variables,
        )
        self._environment = {name: value for name, value in own.items() if not name.startswith("PYTEST_")}
        (self._desk / ".curlrc").write_text(f'connect-to = "127.0.0.1:8000:127.0.0.1:{port}"\n')
        self._written: set[str] = set()
        self._staying: list[Terminal] = []
        self._old_worker: str | None = None
        self._count = 0

    def follow(self, page: Sequence[Block]) -> None:
        """Do all of it; AssertionError says where it came out differently."""
        last: Terminal | None = None
        for block in page:
            if block.kind == "console":
                assert last is not None, f"{block.where}: nothing has printed this"
                self._compare(block, last)
            elif block.not_run is not None:
                last = None
            elif block.kind == "bash":
                last = self._do(block)
            else:
                assert block.file is not None, f"{block.where}: a block of {block.kind or 'text'} that names no file"
                self._write(block.file, block.text)

    def leave(self) -> None:
        """Close all terminals."""
        for terminal in reversed(self._staying):
            terminal.interrupt()

    def _write(self, name: str, text: str) -> None:
        """A file that was written before is added to."""
        if name.endswith(".py") and self._staying and self._old_worker is None:
            self._old_worker = self._worker_other_than("")
        with (self._folder / name).open("a" if name in self._written else "w", encoding="utf-8") as file:
            file.write(text)
        self._written.add(name)

    def _do(self, block: Block) -> Terminal:
        if block.text.startswith(_STAYS):
            return self._start(block)
        if "pyoco-client" in block.text or "python " in block.text:
            self._await_new_worker()
        terminal = Terminal(self._script(_BEFORE + block.text + _AFTER), self._folder, self._environment)
        try:
            code = terminal.finish()
        except subprocess.TimeoutExpired:
            terminal.interrupt()
            raise
        assert code == 0, f"{block.where} ended with exit code {code}:\n{block.text}\n{terminal.printed}"
        return terminal

    def _start(self, block: Block) -> Terminal:
        if block.text.startswith(_SERVER):
            for terminal in reversed(self._staying):
                terminal.interrupt()
            self._staying.clear()
            self._old_worker = None
        started = Terminal(self._script(block.text), self._folder, self._environment)
        self._staying.append(started)
        if block.text.startswith(_SERVER):
            started.wait_until(lambda _: self._is_up())
        return started

    def _script(self, text: str) -> Path:
        self._count += 1
        script = self._desk / f"block-{self._count}.sh"
        script.write_text(text, encoding="utf-8")
        return script

    def _compare(self, block: Block, terminal: Terminal) -> None:
        pattern = pattern_of(block.text)
        if terminal in self._staying:
            terminal.wait_until(pattern.match)
        assert pattern.fullmatch(terminal.printed), (
            f"{block.where} shows\n{block.text}\nand this was printed by\n{terminal.command}\n\n{terminal.printed}"
        )

    # --- What a person sees to without thinking: a server takes a moment to start, a worker to have a changed file ---

    def _is_up(self) -> bool:
        with contextlib.suppress(httpx.TransportError):
            return httpx.get(f"{self._url}/health", timeout=5, verify=NO_TLS).status_code == httpx.codes.OK
        return False

    def _worker(self) -> str:
        """Which process is the worker of ``pyoco-server dev``; empty while the first one starts."""
        known = httpx.get(f"{self._url}/workers", timeout=5, verify=NO_TLS).json()
        return next((worker["instance_id"] for worker in known if worker["worker_id"] == "dev"), "")

    def _await_new_worker(self) -> None:
        if self._old_worker is not None:
            self._worker_other_than(self._old_worker)
            self._old_worker = None

    def _worker_other_than(self, old: str) -> str:
        deadline = time.monotonic() + PATIENCE_SEC
        while (found := self._worker()) in {"", old}:
            assert time.monotonic() < deadline, "there is no worker that has the changed file"
            time.sleep(0.05)
        return found
