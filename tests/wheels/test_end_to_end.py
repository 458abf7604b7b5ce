"""From an upload to a run: a gateway, NATS, and workers in processes of their own."""

import contextlib
import hashlib
import os
import random
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from pyoco_server.gateway.services import Services
from tests.cli.serving import free_port, serving
from tests.gateway.stand import Stand, ended, sent, submit, until
from tests.waiting import PATIENCE_SEC
from tests.wheels.building import archive, contents, make_wheel, upload, wheel_name

CODE = """\
import os
import time

from pyoco import task
from pyoco.core.models import Flow


@task
def answer(ctx):
    gate = ctx.params.get("gate")
    while gate and not os.path.exists(gate):
        time.sleep(0.01)
    from {package}.values import ANSWER  # as late as can be
    return ANSWER


flow = Flow(name={flow!r})
flow >> answer
"""


def a_flow(package: str, version: str) -> bytes:
    """A wheel whose flow answers with its version."""
    files = {
        f"{package}/__init__.py": "",
        f"{package}/values.py": f"ANSWER = {version!r}\n",
        f"{package}/flows.py": CODE.format(package=package, flow=package),
    }
    return make_wheel(package, version, files)


@contextlib.contextmanager
def a_worker(stand: Stand, home: Path, name: str, package: str, *more: str) -> Iterator[subprocess.Popen[bytes]]:
    """A ``pyoco-worker`` that has no flows but those of the wheels."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PYOCO_")}
    command = [sys.executable, "-m", "pyoco_server.cli.worker", "--nats-url", stand.settings.nats.urls[0]]
    command += ["--worker-id", name, "--flows", package, "--wheel-sync", "--wheel-sync-interval-sec", "0.1"]
    with (home / f"{name}.log").open("ab") as log:
        process = subprocess.Popen(  # noqa: S603 our own command
            [*command, "--wheel-sync-dir", str(home / "wheels"), *more],
            cwd=home,
            env={**kept, "PYOCO_LOAD_DOTENV": "0"},
            stdout=log,
            stderr=log,
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(PATIENCE_SEC)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def synced(client: httpx.Client, name: str, holds: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    """Return the wheel status of a worker as soon as ``holds`` is true of it."""
    deadline = time.monotonic() + PATIENCE_SEC
    status: dict[str, Any] = {}
    while time.monotonic() < deadline:
        found = sent(client, "GET", "/workers", params={"scope": "all", "include_hidden": "true"}).json()
        status = next((worker.get("wheel_sync", {}) for worker in found if worker["worker_id"] == name), {})
        if status and holds(status):
            return status
        time.sleep(0.02)
    raise AssertionError(f"{name} never reached that: {status}")


def has(*wheels: str, **fields: object) -> Callable[[dict[str, Any]], bool]:
    """Are these wheels installed, and have these fields these values? All of one record: the next may differ."""

    def holds(status: dict[str, Any]) -> bool:
        installed = [wheel["name"] for wheel in status["installed_wheels"]]
        return installed == list(wheels) and fields.items() <= status.items()

    return holds


def refuses(wheel: str) -> Callable[[dict[str, Any]], bool]:
    """Could this wheel not be used? A registry that could not be read in time is an error, too, but not this one."""
    return lambda status: status["last_result"] == "error" and status["last_error"]["wheel_name"] == wheel


def answer_of(client: httpx.Client, run_id: str) -> object:
    snapshot = ended(client, run_id)
    assert snapshot["status"] == "COMPLETED", snapshot
    return client.get(f"/executions/{run_id}").json()["nodes"]["answer"]["output"]["value"]


@pytest.mark.spec("004 REQ-0025", "004 REQ-0026", "004 ERR-PYOCO-0024", "004 §付録F")
def test_runs_follow_the_wheels(stand: Stand, client: httpx.Client, package: str, tmp_path: Path) -> None:
    cpu, gpu = f"{package}-cpu", f"{package}-gpu"
    workers = [
        a_worker(stand, tmp_path, cpu, package, "--tags", cpu, "--concurrency", "1"),  # a free slot may have a pull out
        a_worker(stand, tmp_path, gpu, package, "--tags", gpu),
    ]
    with contextlib.ExitStack() as stack:
        process, _ = [stack.enter_context(worker) for worker in workers]
        assert upload(client, wheel_name(package, "1"), a_flow(package, "1"), tags=cpu).status_code == 200
        synced(client, cpu, has(wheel_name(package, "1")))
        assert answer_of(client, submit(client, package, tag=cpu)) == "1"

        # Uploaded during a run: that run ends with the code it began with, the next one has the new code.
        gate = tmp_path / "gate"
        during = submit(client, package, tag=cpu, params={"gate": str(gate)})
        until(client, during, lambda snapshot: snapshot["status"] == "RUNNING")
        assert upload(client, wheel_name(package, "2"), a_flow(package, "2"), tags=cpu).status_code == 200
        first, second = [wheel_name(package, "1")], [wheel_name(package, "2")]
        synced(client, cpu, has(*first, selected_wheels=second, pending_wheels=second, last_result="idle"))
        queued = submit(client, package, tag=cpu)
        gate.touch()
        assert answer_of(client, during) == "1"
        assert answer_of(client, queued) == "2"
        synced(client, cpu, has(*second, updated_wheels=second, pending_wheels=[], last_result="ok"))

        # A wheel that cannot be installed, put there by hand: reported, and the one before stays.
        stand.call(lambda given: _put_broken(given, package, cpu))
        status = synced(client, cpu, refuses(wheel_name(package, "3")))
        assert answer_of(client, submit(client, package, tag=cpu)) == "2"

        # A worker that is killed and started again has what it had, and no more. Its record has no wheels at first.
        process.kill()
        process.wait()
        stack.enter_context(a_worker(stand, tmp_path, cpu, package, "--tags", cpu, "--concurrency", "1"))
        before, has_2 = status["last_synced_at"], has(*second)
        synced(client, cpu, lambda status: has_2(status) and status["last_synced_at"] > before)
        assert answer_of(client, submit(client, package, tag=cpu)) == "2"
        synced(client, cpu, has_2)  # its first record, before the first sync, has no wheels

        for version in ("1", "2", "3"):
            assert client.delete(f"/wheels/{wheel_name(package, version)}").status_code == 200
        synced(client, cpu, has())  # the count of removed wheels is of one sync: see test_sync
        assert ended(client, submit(client, package, tag=cpu))["status"] == "FAILED"

        status = synced(client, gpu, lambda status: status["last_result"] == "ok")
        assert status["last_synced_at"] is None, "a worker of another tag was left alone"
    assert list((tmp_path / "wheels").iterdir()) == []


@pytest.mark.spec("004 REQ-0026")
def test_processes_that_have_imported_the_old_code_do_not_run_the_new(
    stand: Stand, client: httpx.Client, package: str, tmp_path: Path
) -> None:
    with a_worker(stand, tmp_path, package, package, "--tags", package, "--isolation", "process"):
        for version in ("1", "2"):
            data = a_flow(package, version)
            assert upload(client, wheel_name(package, version), data, tags=package).status_code == 200
            synced(client, package, has(wheel_name(package, version)))
            assert answer_of(client, submit(client, package, tag=package)) == version


async def _put_broken(given: Services, package: str, tag: str) -> None:
    from nats.js.api import ObjectMeta  # noqa: PLC0415 only this test bypasses the gateway

    connection: Any = given.store
    bucket = await connection.js.object_store("pyoco_wheels")
    await bucket.put(wheel_name(package, "3"), b"no wheel at all", meta=ObjectMeta(headers={"x-pyoco-wheel-tags": tag}))


@pytest.mark.spec("004 §付録D")
def test_a_worker_that_does_not_follow_says_so(
    stand: Stand, client: httpx.Client, package: str, tmp_path: Path
) -> None:
    (tmp_path / f"{package}.py").write_text("")
    with a_worker(stand, tmp_path, package, f"{package}.py", "--tags", package, "--no-wheel-sync"):
        status = synced(client, package, lambda status: status["last_result"] == "disabled")
    assert status["enabled"] is False
    assert set(status) >= {
        "enabled",
        "last_result",
        "last_attempt_at",
        "last_success_at",
        "last_synced_at",
        "selected_count",
        "updated_count",
        "removed_count",
        "skipped_incompatible_count",
        "selected_wheels",
        "updated_wheels",
        "removed_wheels",
        "skipped_incompatible",
        "installed_wheels",
    }


def test_a_worker_that_is_to_stop_does_not_finish_an_installation_first(
    stand: Stand, client: httpx.Client, package: str, tmp_path: Path
) -> None:
    """It is asked to stop while a slot is busy and the others hold still for new wheels."""
    assert upload(client, wheel_name(package, "1"), a_flow(package, "1"), tags=package).status_code == 200
    with a_worker(stand, tmp_path, package, package, "--tags", package, "--concurrency", "2") as process:
        run_id = submit(client, package, tag=package, params={"gate": str(tmp_path / "gate")})
        until(client, run_id, lambda snapshot: snapshot["status"] == "RUNNING")
        assert upload(client, wheel_name(package, "2"), a_flow(package, "2"), tags=package).status_code == 200
        synced(client, package, lambda status: status["selected_wheels"] == [wheel_name(package, "2")])
        process.send_signal(signal.SIGTERM)
        (tmp_path / "gate").touch()
        assert process.wait(PATIENCE_SEC) == 0
    assert answer_of(client, run_id) == "1"


@pytest.mark.spec("004 REQ-0025")
def test_a_large_wheel_passes_through_and_does_not_stay_in_memory(tmp_path: Path, package: str) -> None:
    size, port = 48 * 1024 * 1024, free_port()
    files: dict[str, str | bytes] = {f"{package}/data.bin": random.Random(1).randbytes(size)}
    (tmp_path / "large").write_bytes(archive(contents(package, files=files), compression=zipfile.ZIP_STORED))
    with (
        serving(tmp_path, "up", "--port", str(port), "--nats-client-port", "0", port=port) as served,
        httpx.Client(base_url=served.url) as client,
    ):
        small = make_wheel(f"{package}a", files={f"{package}a/data.bin": random.Random(2).randbytes(4_000_000)})
        assert upload(client, wheel_name(f"{package}a"), small).status_code == 200
        before = most_memory(served.process.pid)
        with (tmp_path / "large").open("rb") as file:
            answer = client.post("/wheels", files={"wheel": (wheel_name(package), file)}, timeout=60)
        assert answer.status_code == 200, answer.text
        digest = hashlib.sha256()
        with client.stream("GET", f"/wheels/{wheel_name(package)}") as got:
            for piece in got.iter_bytes():
                digest.update(piece)
        assert digest.hexdigest() == answer.json()["sha256_hex"]
        assert most_memory(served.process.pid) - before < size / 2


def most_memory(pid: int) -> int:
    """The most memory a process ever had, in bytes."""
    [line] = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1]) * 1024


@pytest.mark.spec("004 REQ-0026", "004 ERR-PYOCO-0024")
def test_a_wheel_that_cannot_be_imported_does_not_take_the_place_of_one_that_can(
    stand: Stand, client: httpx.Client, package: str, tmp_path: Path
) -> None:
    lacking = {
        f"{package}/__init__.py": "",
        f"{package}/values.py": "ANSWER = '2'\n",
        f"{package}/flows.py": f"import {package}_helper\n" + CODE.format(package=package, flow=package),
    }
    first, second, helper = wheel_name(package, "1"), wheel_name(package, "2"), wheel_name(f"{package}_helper", "1")
    with a_worker(stand, tmp_path, package, package, "--tags", package):
        assert upload(client, first, a_flow(package, "1"), tags=package).status_code == 200
        synced(client, package, has(first))
        assert answer_of(client, submit(client, package, tag=package)) == "1"
        assert upload(client, second, make_wheel(package, "2", lacking), tags=package).status_code == 200
        status = synced(client, package, refuses(second))
        assert has(first)(status)
        assert f"No module named '{package}_helper'" in status["last_error"]["reason"]
        assert answer_of(client, submit(client, package, tag=package)) == "1"
        assert upload(client, helper, make_wheel(f"{package}_helper", "1"), tags=package).status_code == 200
        synced(client, package, lambda status: status["last_result"] == "ok" and has(second, helper)(status))
        assert answer_of(client, submit(client, package, tag=package)) == "2"


SLOW_TO_IMPORT = """\
import time

from pyoco import task
from pyoco.core.models import Flow

time.sleep(0.3)  # as a large library would take


@task
def answer(ctx):
    return {answer!r}


flow = Flow(name={flow!r})
flow >> answer
"""


@pytest.mark.spec("004 REQ-0008", "004 REQ-0026")
def test_concurrent_jobs_find_the_flows_of_a_file(
    stand: Stand, client: httpx.Client, package: str, tmp_path: Path
) -> None:
    file = tmp_path / f"{package}_main.py"
    file.write_text(SLOW_TO_IMPORT.format(flow=package, answer="file"))
    waiting = [submit(client, package, tag=package) for _ in range(8)]
    with a_worker(stand, tmp_path, package, str(file), "--tags", package, "--concurrency", "8"):
        assert [answer_of(client, run_id) for run_id in waiting] == ["file"] * 8
        # Again after an upload, when the file is imported again.
        wheel = wheel_name(package, "1")
        assert upload(client, wheel, a_flow(package, "1"), tags=package).status_code == 200
        synced(client, package, has(wheel))
        later = [submit(client, package, tag=package) for _ in range(8)]
        assert [answer_of(client, run_id) for run_id in later] == ["file"] * 8
