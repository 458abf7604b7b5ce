"""A process that dies while it writes leaves an index that matches the position in it."""

import asyncio
import random
import sqlite3
import subprocess
import sys
from pathlib import Path

from pyoco_server.adapters.sqlite_index import SqliteRunIndex
from pyoco_server.app.ports import Cursor, RunQuery
from tests.adapters.sqlite_index.applying import RUNS
from tests.adapters.sqlite_index.naive import NaiveIndex
from tests.adapters.sqlite_index.snapshots import random_change

KILLS = 6


def apply_until_killed(path: Path, batches: int) -> int:
    """Return what the process last said it had reached; it dies somewhere in the batch that follows."""
    command = [sys.executable, "-m", "tests.adapters.sqlite_index.applying", str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603 our own module
        assert process.stdout is not None
        try:
            return [int(process.stdout.readline()) for _ in range(batches)][-1]
        finally:
            process.kill()


def test_a_process_killed_while_it_writes_leaves_a_consistent_index(tmp_path: Path) -> None:
    source = random.Random(11)
    naive = NaiveIndex()

    async def check(at_least: int) -> None:
        async with SqliteRunIndex(tmp_path / "index.db") as index:
            position = await index.position()
            assert position >= at_least, "what was committed is gone"
            naive.apply([random_change(n, runs=RUNS) for n in range(naive.position + 1, position + 1)], position)
            expected = [(Cursor(run.submitted_at, run.run_id), run.summary) for run in naive.page(RunQuery(limit=RUNS))]
            assert [tuple(run) for run in await index.page(RunQuery(limit=RUNS))] == expected
            for tenant_id in (None, "tenant0", "tenant1", "tenant2"):
                assert await index.counts(tenant_id) == naive.counts(tenant_id)
            assert set(await index.due(1e12, limit=RUNS)) == naive.due(1e12)

    for _ in range(KILLS):
        asyncio.run(check(apply_until_killed(tmp_path / "index.db", source.randrange(1, 25))))
    connection = sqlite3.connect(tmp_path / "index.db")
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    connection.close()
    assert naive.position > 100
