"""A signal ends a command also while it starts."""

import asyncio
import os
import signal
import subprocess
import time
from pathlib import Path

import httpx
import nats
import pytest

from pyoco_server.cli.shared.signals import StopRequests
from tests.adapters.real_nats import NatsServer
from tests.cli.serving import clean_environment, command, free_port, serving
from tests.waiting import PATIENCE_SEC

RUNS = 30_000
"""To take in so many takes seconds."""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_signal_cancels_the_block(number: signal.Signals, code: int) -> None:
    async def body() -> None:
        asked, left = StopRequests(), []
        async with asked.cutting_short():
            try:
                os.kill(os.getpid(), number)
                await asyncio.Event().wait()
            finally:
                os.kill(os.getpid(), number)  # a second signal
                await asyncio.sleep(0)
                left.append("in good order")
        assert (asked.is_set(), asked.exit_code, left) == (True, code, ["in good order"])
        async with asked.cutting_short():  # after a signal, no block starts
            await asyncio.Event().wait()

    asyncio.run(asyncio.wait_for(body(), PATIENCE_SEC))


def test_a_finished_block_is_not_cancelled_and_its_error_is_raised() -> None:
    async def body() -> None:
        asked = StopRequests()
        async with asked.cutting_short():
            await asyncio.sleep(0)
        os.kill(os.getpid(), signal.SIGTERM)
        await asked.wait()
        asked = StopRequests()
        with pytest.raises(TimeoutError, match="NATS"):
            async with asked.cutting_short():
                raise TimeoutError("NATS is slow")

    asyncio.run(asyncio.wait_for(body(), PATIENCE_SEC))


def test_a_gateway_that_takes_in_many_runs_stops_before_it_serves(tmp_path: Path) -> None:
    with NatsServer(tmp_path) as server:
        port = free_port()
        up = ("up", "--port", str(port), "--nats-url", server.url)
        with serving(tmp_path, *up, port=port) as served:
            run_id = httpx.post(f"{served.url}/runs", json={"flow_name": "any"}).json()["run_id"]
            assert served.stop()[0] == 0
        asyncio.run(_copy(server.url, run_id))
        index = next(tmp_path.rglob(f"index-{port}.sqlite"))
        index.unlink()
        output = tmp_path / "output"
        with output.open("wb") as writing:
            process = subprocess.Popen(  # noqa: S603 our own command
                command(*up), cwd=tmp_path, env=clean_environment(), stdout=writing, stderr=subprocess.STDOUT
            )
        try:
            _wait_for_size(index.with_name(f"{index.name}-wal"), 1_000_000)
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0
        finally:
            process.kill()
            process.wait()
        printed = output.read_text(encoding="utf-8")
        assert "Uvicorn running" not in printed
        assert "Traceback" not in printed


async def _copy(url: str, run_id: str) -> None:
    """Store a run's snapshot under very many names."""
    connection = await nats.connect(url)
    stored = await connection.jetstream().get_last_msg("KV_pyoco_runs", f"$KV.pyoco_runs.{run_id}")
    for number in range(RUNS):
        await connection.publish(f"$KV.pyoco_runs.copy-{number}", stored.data or b"")
    await connection.jetstream().publish("$KV.pyoco_runs.last", stored.data or b"", timeout=30)
    await connection.close()


def _wait_for_size(file: Path, size: int) -> None:
    deadline = time.monotonic() + 30
    while not (file.exists() and file.stat().st_size > size):
        assert time.monotonic() < deadline, "it never came to that"
        time.sleep(0.01)
