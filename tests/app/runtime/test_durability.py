"""A run survives the process that runs it, wherever it dies."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyoco import Flow  # type: ignore[import-untyped]  # pyoco ships no type information
from typing_extensions import override

from pyoco_server import Engine
from pyoco_server.adapters.memory.event_log import MemoryEventLog
from pyoco_server.core import Event, decode_event, fold
from pyoco_server.core.payloads import NodeSucceeded
from tests.app.runtime.flows import Calls, fan_flow, opaque_flow, program_flow

PARAMS = {"n": 1, "items": [1, 2, 3]}
FLOWS: dict[str, Callable[[Calls], Flow]] = {"fan": fan_flow, "program": program_flow, "opaque": opaque_flow}


class PulledPlugError(Exception):
    """Simulates the death of the process: its memory is lost."""


class FragileLog(MemoryEventLog):
    """Accepts ``commits`` commits, and fails at every later one."""

    def __init__(self, commits: int) -> None:
        super().__init__()
        self._left = commits

    @override
    async def append(self, execution_id: str, commit: Sequence[Event], *, after: int, quiet: bool = False) -> int:
        if self._left == 0:
            raise PulledPlugError
        self._left -= 1
        return await super().append(execution_id, commit, after=after, quiet=quiet)


def undisturbed(make: Callable[[Calls], Flow]) -> tuple[dict[str, Any], int]:
    """Return the results of the flow without a fault, and the number of its commits."""
    log = FragileLog(1_000)
    with Engine(log=log) as engine:
        result = engine.run(make(Calls()), PARAMS)
    return dict(result.results), 1_000 - log._left


def succeeded(log: Sequence[Event]) -> set[str]:
    return {event.payload.node_id for event in log if isinstance(event.payload, NodeSucceeded)}


@pytest.mark.parametrize("name", FLOWS)
def test_a_run_continues_after_every_commit(name: str) -> None:
    expected, commits = undisturbed(FLOWS[name])
    for survived in range(1, commits):
        check_crash_after(survived, FLOWS[name], expected)


def check_crash_after(survived: int, make: Callable[[Calls], Flow], expected: dict[str, Any]) -> None:
    fragile, before, after = FragileLog(survived), Calls(), Calls()
    with Engine(log=fragile) as engine, pytest.raises(PulledPlugError):
        engine.run(make(before), PARAMS, run_id="run")
    left = MemoryEventLog.load(fragile.dump())
    done = succeeded([decode_event(line) for line in left._lines.get("run", [])])
    with Engine(log=left) as engine:
        result = engine.wait(engine.take_up(make(after), "run"))
        log = engine.events("run")
    assert result.status == "COMPLETED"
    assert dict(result.results) == expected
    assert fold(log) == result.state
    check_nothing_twice(log, done, after)


def check_nothing_twice(log: Sequence[Event], done: set[str], after: Calls) -> None:
    """No node is recorded as succeeded twice, and none that was is called again, unless its value was lost."""
    ends = [event.payload.node_id for event in log if isinstance(event.payload, NodeSucceeded)]
    assert len(ends) == len(set(ends))
    called_again = [name for name in after.names if name in done and name != "make"]
    assert called_again == []


SCRIPT = """
import os, sys
from pathlib import Path
from pyoco_server import Engine
from pyoco_server.adapters.memory.event_log import MemoryEventLog
from tests.app.runtime.flows import Calls, program_flow

class DiskLog(MemoryEventLog):
    async def append(self, execution_id, commit, *, after, quiet=False):
        position = await super().append(execution_id, commit, after=after, quiet=quiet)
        Path(sys.argv[1]).write_bytes(self.dump())
        if (left := int(sys.argv[2]) - position) <= 0:
            os.kill(os.getpid(), 9)
        return position

if __name__ == "__main__":
    Engine(log=DiskLog()).run(program_flow(Calls()), {"n": 1, "items": [1, 2, 3]}, run_id="run")
"""


@pytest.mark.parametrize("events", [9, 14, 19, 24, 29, 34, 39, 44])
def test_another_process_continues_after_a_kill(tmp_path: Path, events: int) -> None:
    expected, _ = undisturbed(program_flow)
    script, disk = tmp_path / "script.py", tmp_path / "log"
    script.write_text(SCRIPT, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(Path.cwd())}
    ended = subprocess.run([sys.executable, script, disk, str(events)], env=environment, check=False, timeout=60)  # noqa: S603 our own script
    assert ended.returncode == -signal.SIGKILL
    calls, log = Calls(), MemoryEventLog.load(disk.read_bytes())
    done = succeeded([decode_event(line) for line in log._lines["run"]])
    with Engine(log=log) as engine:
        result = engine.wait(engine.take_up(program_flow(calls), "run"))
        check_nothing_twice(engine.events("run"), done, calls)
    assert (result.status, dict(result.results)) == ("COMPLETED", expected)
