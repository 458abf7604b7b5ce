"""Children of all kinds of parents: scripts, modules, prompts, and parents that die."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.adapters.executor.leaks import is_gone
from tests.waiting import wait_until

WORK = """
import asyncio, os, sys, threading
from dataclasses import dataclass
from pyoco_server.adapters.executor.processes.pool import ProcessSlots

@dataclass
class Thing:
    size: int

def grow(thing, by):
    return Thing(thing.size + by)

def grow_in_a_grandchild(thing, by):
    async def main():
        slots = ProcessSlots(1)
        try:
            return await slots.run(grow, (thing, by))
        finally:
            await slots.close()
    return asyncio.run(main())

async def main():
    slots = ProcessSlots(1)
    try:
        print(await slots.run(grow, (Thing(1),), {"by": 2}))
        print(await slots.run(len, ([Thing(1)],)))
        print(await slots.run(grow_in_a_grandchild, (Thing(3), 1)))
    finally:
        await slots.close()
"""

GUARDED = WORK + '\nif __name__ == "__main__":\n    asyncio.run(main())\n'
UNGUARDED = WORK + "\nasyncio.run(main())\n"

BUILTINS_ONLY = """
import asyncio
from pyoco_server.adapters.executor.processes.pool import ProcessSlots

async def main():
    slots = ProcessSlots(1)
    print(await slots.run(max, (["if __name__ == '__main__'", "a"],)))
    await slots.close()

asyncio.run(main())
"""

DYING = """
import asyncio, os, sys
from pyoco_server.adapters.executor.processes.pool import ProcessSlots
from tests.adapters.executor import jobs

async def main():
    slots = ProcessSlots(3)
    report = lambda pid: print(pid, flush=True)
    for function in (jobs.send_pid_and_spin, jobs.send_pid_and_hold_the_interpreter):
        asyncio.create_task(slots.run(function, on_message=report)).set_name(function.__name__)
    report(await slots.run(os.getpid))
    await asyncio.Event().wait()

asyncio.run(main())
"""


def python(*args: str, program: str = "", cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a Python program with warnings as errors; nothing of this process's own path."""
    return subprocess.run(  # noqa: S603
        [sys.executable, "-W", "error", *args],
        input=program,
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )


def test_a_function_of_a_script_with_a_guard_runs_in_a_child(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(GUARDED)
    done = python("script.py", cwd=tmp_path)
    assert (done.stdout, done.stderr) == ("Thing(size=3)\n1\nThing(size=4)\n", "")


@pytest.mark.parametrize("name", ["app.work", "app"])
def test_a_function_of_a_module_run_by_its_name_runs_in_a_child(tmp_path: Path, name: str) -> None:
    package = tmp_path / "app"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "work.py").write_text(GUARDED)
    (package / "__main__.py").write_text(GUARDED)
    done = python("-m", name, cwd=tmp_path)
    assert (done.stdout, done.stderr) == ("Thing(size=3)\n1\nThing(size=4)\n", "")


def test_a_script_without_a_guard_gets_an_error_that_says_so(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(UNGUARDED)
    done = python("script.py", cwd=tmp_path)
    assert done.stdout == ""
    last = done.stderr.splitlines()[-1]
    assert "NotPicklableError: Cannot send the function" in last
    assert "if __name__ == '__main__'" in last


def test_a_function_typed_at_a_prompt_is_refused_with_a_remedy(tmp_path: Path) -> None:
    for done in (python("-", program=UNGUARDED, cwd=tmp_path), python("-c", UNGUARDED, cwd=tmp_path)):
        assert done.stdout == ""
        last = done.stderr.splitlines()[-1]
        assert "NotPicklableError: Cannot send the function __main__.grow" in last
        assert "top level of a module" in last


def test_a_class_typed_at_a_prompt_is_refused_as_an_argument(tmp_path: Path) -> None:
    done = python(
        "-", program=UNGUARDED.replace("slots.run(grow,", "slots.run(id,").replace(', {"by": 2}', ""), cwd=tmp_path
    )
    assert "NotPicklableError: Cannot send the arguments" in done.stderr.splitlines()[-1]


def test_a_main_module_that_is_not_needed_is_not_imported(tmp_path: Path) -> None:
    """No guard and no file is fine as long as nothing that is sent comes from the main module."""
    (tmp_path / "script.py").write_text(BUILTINS_ONLY)
    expected = ("if __name__ == '__main__'\n", "")
    for done in (
        python("script.py", cwd=tmp_path),
        python("-", program=BUILTINS_ONLY, cwd=tmp_path),
        python("-c", BUILTINS_ONLY, cwd=tmp_path),
    ):
        assert (done.stdout, done.stderr) == expected


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_children_end_with_their_parent_however_it_ends(number: signal.Signals) -> None:
    async def main(parent: subprocess.Popen[str]) -> None:
        assert parent.stdout is not None
        pids = [int(parent.stdout.readline()) for _ in range(3)]
        assert not any(is_gone(pid) for pid in pids)
        parent.send_signal(number)
        parent.wait()
        await wait_until(lambda: all(is_gone(pid) or is_zombie(pid) for pid in pids), timeout=4)

    root = str(Path(__file__).parents[3])
    path = os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])
    with subprocess.Popen(  # noqa: S603
        [sys.executable, "-c", DYING],
        cwd=root,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    ) as parent:
        asyncio.run(main(parent))


def is_zombie(pid: int) -> bool:
    """Return whether the process is dead and not reaped yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True
