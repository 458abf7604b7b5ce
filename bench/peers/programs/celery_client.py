"""The client of Celery: applies a chain and waits for the result of its last task."""

import asyncio
import concurrent.futures

from bench.peers.programs.celery_app import three
from bench.peers.programs.client_loop import Client, serve

THREADS = concurrent.futures.ThreadPoolExecutor(16)
"""Celery's client is synchronous: a thread for every run in flight."""


async def run_one() -> None:
    """Apply and wait."""
    await asyncio.get_running_loop().run_in_executor(THREADS, _run)


def _run() -> None:
    three().apply_async().get(timeout=60, interval=0.001)


if __name__ == "__main__":
    asyncio.run(serve(Client(run_one)))
