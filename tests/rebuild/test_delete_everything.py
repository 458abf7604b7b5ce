"""Everything that is derived from the log is deleted from a stopped platform: the next start brings every run back."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyoco_server.app.ports import RunQuery
from pyoco_server.app.runs.commands import Sender
from pyoco_server.app.runs.queries import snapshot_of
from pyoco_server.app.runs.run_log import RunNotFoundError
from pyoco_server.app.runs.submit import Submission
from pyoco_server.app.snapshots.codec import readable
from pyoco_server.bootstrap.gateway import open_gateway
from pyoco_server.bootstrap.platform import open_platform
from pyoco_server.gateway.services import Services
from pyoco_server.settings import Settings
from tests.adapters.real_nats import NatsServer
from tests.gateway.stand import a_worker, eventually, settings_for
from tests.rebuild.stored import TENANT, append_logs, by_status, delete_everything_derived, kinds
from tests.worker.world import USER

RUNS = 120
KEYS = 5


@pytest.fixture
def nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    with NatsServer(tmp_path_factory.mktemp("nats")) as server:
        yield server


async def listed(services: Services) -> dict[str, str]:
    """Return all runs of all pages of the list, with their statuses."""
    query, found = RunQuery(limit=50), dict[str, str]()
    while page := await services.index.page(query):
        assert not found.keys() & {run.cursor.run_id for run in page}
        found |= {run.cursor.run_id: str(run.summary["status"]) for run in page}
        query = RunQuery(limit=50, before=page[-1].cursor)
    return found


async def status_of(services: Services, run_id: str) -> str | None:
    try:
        return str(readable(await snapshot_of(services.snapshots, services.run_log, run_id))["status"])
    except RunNotFoundError:
        return None


def test_every_run_is_back_and_continues_when_only_the_log_is_left(nats: NatsServer, tmp_path: Path) -> None:
    asyncio.run(_delete_everything(settings_for(nats.url, tmp_path / "data")))


async def _delete_everything(settings: Settings) -> None:
    made = await kinds()
    keyed = Submission(flow_name="hello", tag="no-worker")
    async with open_gateway(settings) as services:
        under_key = [await services.once.submit(keyed, USER, key=f"key-{number}") for number in range(KEYS)]
    async with open_platform(settings, name="the stopped platform") as platform:
        ids = await append_logs(platform, made, RUNS)
        await delete_everything_derived(platform)
    for file in settings.storage.data_dir.glob("index-*"):
        file.unlink()

    async with open_gateway(settings) as services:
        for name, kind in made.items():  # before anything is restored, or while it is
            assert await status_of(services, ids[name][0]) == kind.shown, name
        again = [await services.once.submit(keyed, USER, key=f"key-{number}") for number in range(KEYS)]
        assert [run["run_id"] for run in again] == [run["run_id"] for run in under_key]

        shown = by_status(made, ids, ended=False) + Counter({"PENDING": KEYS})
        ends = by_status(made, ids, ended=True) + Counter({"PENDING": KEYS})
        everywhere = {run_id for name in made if made[name].shown for run_id in ids[name]}
        everywhere |= {str(run["run_id"]) for run in under_key}

        async def all_are_listed() -> bool:
            return (await listed(services)).keys() == everywhere

        await eventually(all_are_listed)
        assert sum((await services.index.counts()).values()) == sum(shown.values())
        acme = services.confined_to(TENANT)
        of_tenant = {run_id for name in made if "tenant" in name for run_id in ids[name]}
        assert (await listed(acme)).keys() == of_tenant
        [archived] = [name for name in made if name.startswith("archived")]
        stored = await snapshot_of(acme.snapshots, acme.run_log, ids[archived][0])
        assert readable(stored)["archived_at"] is not None

        async with a_worker(settings, "default"):

            async def all_have_ended() -> bool:
                return Counter(await services.index.counts()) == ends

            await eventually(all_have_ended, 60)
            [approval] = [name for name in made if "approval" in name]
            await services.commands.resume(ids[approval][0], "ask", {"ok": True}, Sender(actor=USER))

            async def is_completed() -> bool:
                return await status_of(services, ids[approval][0]) == "COMPLETED"

            await eventually(is_completed)
        found = await listed(services)
        for name, kind in made.items():
            assert {found.get(run_id) for run_id in ids[name][1:]} == {kind.ends}, name
