"""Somebody who uses the gateway: submits, looks, watches."""

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
    """One connection that is told how a run stands."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, port: int, run_id: str) -> "Watch":
        """Begin to watch a run."""
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**24)
        writer.write(f"GET /runs/{run_id}/watch HTTP/1.1\r\nHost: gateway\r\n\r\n".encode())
        return cls(reader, writer)

    async def event(self) -> bytes:
        """The next snapshot as it came: what takes the least work to tell that it did."""
        await self._reader.readuntil(b"event: snapshot\ndata: ")
        return await self._reader.readuntil(b"\n")

    async def until(self, holds: Callable[[Snapshot], bool]) -> float:
        """When a snapshot came of which it holds."""
        async with asyncio.timeout(PATIENCE_SEC):
            while True:
                line = await self.event()
                came_at = time.perf_counter()
                if holds(json.loads(line)["snapshot"]):
                    return came_at

    def close(self) -> None:
        """Leave."""
        self._writer.transport.abort()


class Asker:
    """Uses one gateway."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.http = Http(port)

    async def submit(self, flow_name: str) -> str:
        """The new run's id."""
        return str((await self.http.ask("POST", "/runs", {"flow_name": flow_name}))["run_id"])

    async def submit_many(self, flow_name: str, count: int, at_a_time: int) -> list[str]:
        """The ids of so many new runs, in the order of the answers."""
        run_ids: list[str] = []

        async def one() -> None:
            run_ids.append(await self.submit(flow_name))

        await many(one, count, at_a_time, time.perf_counter() + SUBMIT_SEC)
        if len(run_ids) < count:
            raise TimeoutError(f"only {len(run_ids)} of {count} runs were submitted in {SUBMIT_SEC:.0f} s")
        return run_ids

    async def snapshot(self, run_id: str) -> Snapshot:
        """How a run stands."""
        found: Snapshot = await self.http.ask("GET", f"/runs/{run_id}")
        return found

    async def until(self, run_id: str, holds: Callable[[Snapshot], bool], *, pause_sec: float) -> None:
        """Look again and again, with a pause, because every look costs the gateway something."""
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
        """Those that are there."""
        found: list[dict[str, Any]] = await self.http.ask("GET", "/workers")
        return found

    async def known(self) -> int:
        """How many runs the gateway's index knows of, as its metrics tell."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(b"GET /metrics HTTP/1.1\r\nHost: gateway\r\nConnection: close\r\n\r\n")
        lines = (await reader.read()).decode().splitlines()
        writer.close()
        return int(sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith("pyoco_runs_total{")))


def has_ended(snapshot: Snapshot) -> bool:
    """Is it over, in whatever way?"""
    return snapshot["status"] in ENDED


def completed(snapshot: Snapshot) -> bool:
    """Is it over, and well? RuntimeError: it is over, and not well."""
    if has_ended(snapshot) and snapshot["status"] != "COMPLETED":
        raise RuntimeError(f"a run ended as {snapshot['status']}: {snapshot.get('error')}")
    return bool(snapshot["status"] == "COMPLETED")


def runs_a_task(snapshot: Snapshot) -> bool:
    """Is a task of it at work?"""
    return "RUNNING" in snapshot["tasks"].values() and not snapshot.get("waiting")


def waits(snapshot: Snapshot) -> bool:
    """Does it wait for somebody?"""
    return bool(snapshot.get("waiting"))
