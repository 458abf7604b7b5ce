"""A client of the gateway that submits, reads and watches runs."""

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any

from bench.peers.programs.client_loop import many
from bench.peers.programs.http import Http, NotNowError

PATIENCE_SEC = 120.0
SUBMIT_SEC = 600.0
"""For many submissions together."""
ENDED = ("COMPLETED", "FAILED", "CANCELLED")

Snapshot = dict[str, Any]


class Watch:
    """One connection that receives the snapshots of a run."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, port: int, run_id: str) -> "Watch":
        """Begin to watch a run."""
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**24)
        writer.write(f"GET /runs/{run_id}/watch HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        return cls(reader, writer)

    async def event(self) -> bytes:
        """Return the next snapshot as bytes, which is the cheapest way to see that it came."""
        await self._reader.readuntil(b"event: snapshot\ndata: ")
        return await self._reader.readuntil(b"\n")

    async def until(self, holds: Callable[[Snapshot], bool]) -> float:
        """Return when a snapshot came that fulfils the condition."""
        async with asyncio.timeout(PATIENCE_SEC):
            while True:
                line = await self.event()
                came_at = time.perf_counter()
                if holds(json.loads(line)["snapshot"]):
                    return came_at

    def close(self) -> None:
        """Close the connection."""
        self._writer.transport.abort()


class Asker:
    """Uses one gateway."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.http = Http(port)

    async def submit(self, flow_name: str) -> str:
        """Submit a run; return its id."""
        return str((await self.http.ask("POST", "/runs", {"flow_name": flow_name}))["run_id"])

    async def submit_many(self, flow_name: str, count: int, at_a_time: int) -> list[str]:
        """Submit many runs; return their ids in the order of the answers."""
        run_ids: list[str] = []

        async def one() -> None:
            run_ids.append(await self.submit(flow_name))

        await many(one, count, at_a_time, time.perf_counter() + SUBMIT_SEC)
        if len(run_ids) < count:
            raise TimeoutError(f"only {len(run_ids)} of {count} runs were submitted in {SUBMIT_SEC:.0f} s")
        return run_ids

    async def snapshot(self, run_id: str) -> Snapshot:
        """Return the snapshot of a run."""
        found: Snapshot = await self.http.ask("GET", f"/runs/{run_id}")
        return found

    async def until(self, run_id: str, holds: Callable[[Snapshot], bool], *, pause_sec: float) -> None:
        """Poll with a pause, because every request costs the gateway something."""
        ends_at, stands = time.perf_counter() + PATIENCE_SEC, "unknown"
        while True:
            try:
                snapshot = await self.snapshot(run_id)
            except NotNowError as error:  # a server that is at its limits is measured, too
                stands = str(error)
            else:
                if holds(snapshot):
                    return
                stands = snapshot["status"]
            if time.perf_counter() > ends_at:
                raise TimeoutError(f"after {PATIENCE_SEC:.0f} s the run is still {stands}")
            await asyncio.sleep(pause_sec)

    async def workers(self) -> list[dict[str, Any]]:
        """Return the connected workers."""
        found: list[dict[str, Any]] = await self.http.ask("GET", "/workers")
        return found

    async def known(self) -> int:
        """Return how many runs the gateway's index has, from its metrics."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        lines = (await reader.read()).decode().splitlines()
        writer.close()
        return int(sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith("pyoco_runs_total{")))


def has_ended(snapshot: Snapshot) -> bool:
    """Return whether the run has ended."""
    return snapshot["status"] in ENDED


def completed(snapshot: Snapshot) -> bool:
    """Return whether the run has completed; RuntimeError if it ended in another way."""
    if has_ended(snapshot) and snapshot["status"] != "COMPLETED":
        raise RuntimeError(f"a run ended as {snapshot['status']}: {snapshot.get('error')}")
    return bool(snapshot["status"] == "COMPLETED")


def runs_a_task(snapshot: Snapshot) -> bool:
    """Return whether a task of the run is running."""
    return "RUNNING" in snapshot["tasks"].values() and not snapshot.get("waiting")


def waits(snapshot: Snapshot) -> bool:
    """Return whether the run waits for input."""
    return bool(snapshot.get("waiting"))
