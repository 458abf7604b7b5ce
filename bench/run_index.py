"""What a page of runs costs in the read index, however many runs there are: ``python -m bench.run_index [SIZE …]``."""

import asyncio
import contextlib
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from pyoco_server.adapters.sqlite_index import SqliteRunIndex
from pyoco_server.adapters.system import uuid_maker
from pyoco_server.app.ports import Cursor, RunQuery, SnapshotChange

SIZES: Final = (1_000, 100_000, 1_000_000)
BATCH: Final = 500
ROUNDS: Final = 200
BEGAN_AT: Final = 1_700_000_000.0
EVERY_SEC: Final = 0.5
ENDED: Final = ("COMPLETED",) * 90 + ("FAILED",) * 7 + ("CANCELLED",) * 3
LIVE: Final = ("PENDING", "RUNNING", "RUNNING", "RUNNING")


def changes(size: int) -> Iterator[SnapshotChange]:
    """So many runs of 10 tenants, 10 flows and 3 tags: few enough that the smallest index can fill its pages too."""
    source = random.Random(1)
    new_id = uuid_maker(source)
    for number in range(size):
        submitted_at = BEGAN_AT + number * EVERY_SEC
        flow = source.randrange(10)
        snapshot: dict[str, Any] = {
            "flow_name": f"flow{flow}",
            "status": source.choice(LIVE if number >= size - 100 else ENDED),
            "params": {"rows": number},
            "tasks": {f"task{task}": "SUCCEEDED" for task in range(5)},
            "heartbeat_at": submitted_at + 3,
            "updated_at": submitted_at + source.expovariate(0.1),
            "tag": source.choice(["cpu", "gpu", "default"]),
            "submitted_at": submitted_at,
            "tenant_id": f"tenant{source.randrange(10)}",
            "workflow_yaml_sha256": f"{flow:064x}",
            "waiting": [],
            "log_position": number,
        }
        yield SnapshotChange(new_id(), msgspec.json.encode(snapshot), number + 1)


def questions(size: int, some_id: str) -> dict[str, RunQuery]:
    """What is asked, by name."""
    middle = BEGAN_AT + size * EVERY_SEC / 2
    return {
        "newest": RunQuery(),
        "from the middle on": RunQuery(before=Cursor(middle, "")),
        "tenant": RunQuery(tenant_id="tenant3"),
        "status": RunQuery(status="FAILED"),
        "flow": RunQuery(flow="flow3"),
        "tag": RunQuery(tag="gpu"),
        "held": RunQuery(held=True),
        "workflow": RunQuery(workflow_yaml_sha256=f"{3:064x}"),
        "tenant, status": RunQuery(tenant_id="tenant3", status="COMPLETED"),
        "flow, status, tag": RunQuery(flow="flow3", status="COMPLETED", tag="gpu"),
        "nothing fits": RunQuery(tenant_id="tenant3", flow="flow3", workflow_yaml_sha256=f"{4:064x}"),
        "updated in the last minute": RunQuery(updated_after=BEGAN_AT + size * EVERY_SEC - 60),
        "updated since the middle": RunQuery(updated_after=middle),
        "under way at the middle": RunQuery(updated_after=middle, before=Cursor(middle, "")),
        "submitted since the middle": RunQuery(submitted_after=middle),
        "submitted since, oldest first": RunQuery(submitted_after=middle, oldest_first=True),
        "8 characters of an id": RunQuery(run_id_prefix=some_id[:8]),
        "1 character of an id": RunQuery(run_id_prefix=some_id[:1]),
    }


async def fill(index: SqliteRunIndex, size: int) -> tuple[float, str]:
    """Milliseconds a change, and the id of some run."""
    took, batch, some_id = 0.0, list[SnapshotChange](), ""
    for change in changes(size):
        batch.append(change)
        some_id = some_id or change.run_id
        if len(batch) == BATCH or change.sequence == size:
            began = time.perf_counter()
            await index.apply(batch, change.sequence)
            took += time.perf_counter() - began
            batch.clear()
    return took / size * 1e3, some_id


async def measure(sizes: Sequence[int], directory: Path) -> None:
    """Print the table. All sizes take turns, so that what else the machine does is the same for all."""
    print("milliseconds a page of at most 50 (how many runs were on it), and the ratio to the smallest index")
    print(f"{'':32}" + "".join(f"{size:>26,}" for size in sizes))
    async with contextlib.AsyncExitStack() as stack:
        indexes = [await stack.enter_async_context(SqliteRunIndex(directory / f"{size}.db")) for size in sizes]
        filled = [await fill(index, size) for index, size in zip(indexes, sizes, strict=True)]
        asked = [questions(size, some_id) for size, (_, some_id) in zip(sizes, filled, strict=True)]
        for name in asked[0]:
            show(name, await time_pages([(index, given[name]) for index, given in zip(indexes, asked, strict=True)]))
        show("(a change, while filling)", [(took, 1) for took, _ in filled])


async def time_pages(asked: Sequence[tuple[SqliteRunIndex, RunQuery]]) -> list[tuple[float, int]]:
    """For each: the median of many, in milliseconds, and how many runs were on the page."""
    times, found = [list[float]() for _ in asked], [0 for _ in asked]
    for _ in range(ROUNDS):
        for place, (index, query) in enumerate(asked):
            began = time.perf_counter()
            found[place] = len(await index.page(query))
            times[place].append(time.perf_counter() - began)
    return [(statistics.median(taken) * 1e3, runs) for taken, runs in zip(times, found, strict=True)]


def show(name: str, cells: Sequence[tuple[float, int]]) -> None:
    """One line of the table."""
    smallest = cells[0][0]
    print(f"{name:32}" + "".join(f"{ms:>12.3f} ({runs:>2}) {ms / smallest:>7.2f}x" for ms, runs in cells))


def main() -> None:
    """Make the indexes and measure them."""
    sizes = [int(size) for size in sys.argv[1:]] or [*SIZES]
    with tempfile.TemporaryDirectory() as scratch:
        asyncio.run(measure(sizes, Path(scratch)))


if __name__ == "__main__":
    main()
