"""What one tenant may use of the platform, over HTTP and at the limits of the counting."""

import asyncio
from collections.abc import Sequence
from typing import Any

import httpx
import pytest

from pyoco_server.app.ports import TenantUsage, UnavailableError
from pyoco_server.app.runs.submit import QuotaReachedError
from pyoco_server.app.tenancy.quotas import FRESH_SEC, STALE_SEC, QuotaLimits, TenantQuota
from pyoco_server.settings import Settings
from pyoco_server.settings.model import Limits
from pyoco_server.testing import VirtualClock
from tests.gateway.auth.routes import GRAPH, YAML
from tests.gateway.auth.test_every_route import error
from tests.gateway.auth.world import World, issued
from tests.gateway.stand import eventually

NO_WORKER = "without-a-worker"
RUN = {"flow_name": "f", "tag": NO_WORKER}


def with_limits(world: World, **limits: int) -> Settings:
    return world.settings().model_copy(update={"limits": Limits(**limits)})


def accepted(answers: Sequence[httpx.Response]) -> list[str]:
    return [answer.json()["run_id"] for answer in answers if answer.status_code == 200]


def refusals(answers: Sequence[httpx.Response]) -> set[tuple[int, str | None]]:
    return {error(answer) for answer in answers if answer.status_code != 200}


async def is_answered(client: httpx.AsyncClient, run: dict[str, Any], status: int) -> bool:
    return (await client.post("/runs", json=run)).status_code == status


def test_a_tenant_has_no_more_live_runs_than_it_may(world: World) -> None:
    async def scenario() -> None:
        async with (
            world.open(with_limits(world, tenant_max_live_runs=3)) as gateway,
            gateway.client(await issued(gateway, "acme")) as acme,
            gateway.client(await issued(gateway, "globex")) as globex,
            gateway.client(await issued(gateway, None)) as operator,
        ):
            once = {"Idempotency-Key": "first"}
            first = (await acme.post("/runs", json=RUN, headers=once)).json()
            answers = await asyncio.gather(*(acme.post("/runs", json=RUN) for _ in range(12)))
            assert len(accepted(answers)) == 2
            assert refusals(answers) == {(429, "ERR-PYOCO-0114")}
            assert all(answer.headers["retry-after"] for answer in answers if answer.status_code == 429)
            assert (await acme.post("/runs", json=RUN, headers=once)).json() == first
            form = {"flow_name": "f", "tag": NO_WORKER}
            by_yaml = await acme.post("/runs/yaml", data=form, files={"workflow": ("flow.yaml", YAML.encode())})
            assert error(by_yaml) == (429, "ERR-PYOCO-0114")
            batch = (await acme.post("/runs/batch", json={"runs": [RUN]})).json()["results"]
            assert batch[0]["error"]["err_id"] == "ERR-PYOCO-0114"
            await acme.put("/graphs/g", json=GRAPH)
            assert error(await acme.post("/executions", json={"graphId": "g"})) == (429, "ERR-PYOCO-0114")
            assert len((await acme.get("/runs")).json()) == 3
            assert (await globex.post("/runs", json=RUN)).status_code == 200
            assert len(accepted([await operator.post("/runs", json=RUN) for _ in range(5)])) == 5
            shown = (await acme.get("/metrics")).text
            assert 'pyoco_quota_refusals_total{quota="live_runs"} 14' in shown
            assert 'pyoco_quota_used_ratio{quota="live_runs"} 1' in shown
            assert 'pyoco_quota_refusals_total{quota="live_runs"} 0' in (await globex.get("/metrics")).text
            assert 'pyoco_quota_refusals_total{quota="live_runs"} 14' in (await operator.get("/metrics")).text
            assert (await acme.post(f"/runs/{first['run_id']}/cancel")).status_code == 200
            await eventually(lambda: is_answered(acme, RUN, 200))

    asyncio.run(scenario())


def test_two_gateways_count_the_same_runs(world: World) -> None:
    async def scenario() -> None:
        settings = with_limits(world, tenant_max_live_runs=4)
        other = settings.model_copy(update={"http": settings.http.model_copy(update={"port": 8001})})
        async with world.open(settings) as one, world.open(other) as two:
            key = await issued(one, "shared")
            async with one.client(key) as here, two.client(key) as there:
                assert len(accepted([await here.post("/runs", json=RUN) for _ in range(4)])) == 4
                assert error(await here.post("/runs", json=RUN)) == (429, "ERR-PYOCO-0114")
                assert error(await there.post("/runs", json=RUN)) == (429, "ERR-PYOCO-0114")

    asyncio.run(scenario())


def test_a_tenant_submits_no_more_in_a_minute_than_it_may(world: World) -> None:
    async def scenario() -> None:
        async with (
            world.open(with_limits(world, tenant_max_submissions_per_min=5)) as gateway,
            gateway.client(await issued(gateway, "quick")) as quick,
        ):
            answers = await asyncio.gather(*(quick.post("/runs", json=RUN) for _ in range(9)))
            assert len(accepted(answers)) == 5
            assert refusals(answers) == {(429, "ERR-PYOCO-0115")}
            for run_id in accepted(answers):
                await quick.post(f"/runs/{run_id}/cancel")
            assert error(await quick.post("/runs", json=RUN)) == (429, "ERR-PYOCO-0115")

    asyncio.run(scenario())


def test_a_tenant_stores_no_more_than_it_may(world: World) -> None:
    async def scenario() -> None:
        async with (
            world.open(with_limits(world, tenant_max_stored_bytes=20_000)) as gateway,
            gateway.client(await issued(gateway, "heavy")) as heavy,
        ):
            small, large = {"params": {"x": "y" * 100}}, {"params": {"x": "y" * 20_000}}
            assert (await heavy.post("/runs", json=RUN | small)).status_code == 200
            assert (await heavy.post("/runs", json=RUN | large)).status_code == 200
            await eventually(lambda: is_answered(heavy, RUN | small, 413))
            refused = await heavy.post("/runs", json=RUN | small)
            assert error(refused) == (413, "ERR-PYOCO-0116")
            assert "and may take 20000" in refused.json()["detail"]

    asyncio.run(scenario())


# --- Counting --------------------------------------------------------------------------------------------------------


class Counted:
    """A quota over a usage that the test sets."""

    def __init__(self, **limits: int) -> None:
        self.clock = VirtualClock()
        self.usage: TenantUsage | None = TenantUsage(0, 0, 0)
        self.reads = 0
        self.quota = TenantQuota(QuotaLimits(**limits), self.read, self.clock)

    async def read(self) -> TenantUsage:
        self.reads += 1
        if self.usage is None:
            raise UnavailableError("no index")
        return self.usage

    async def submit(self, fails: bool = False) -> bool:
        try:
            async with self.quota.submission():
                if fails:
                    raise ValueError("not accepted")
        except QuotaReachedError:
            return False
        return True


def test_a_submission_that_fails_takes_no_place() -> None:
    async def scenario() -> None:
        at = Counted(live_runs=2)
        for _ in range(5):
            with pytest.raises(ValueError, match="not accepted"):
                await at.submit(fails=True)
        assert [await at.submit() for _ in range(4)] == [True, True, False, False]

    asyncio.run(scenario())


def test_refused_requests_do_not_read_the_index_each() -> None:
    async def scenario() -> None:
        at = Counted(live_runs=2)
        at.usage = TenantUsage(2, 0, 0)
        assert [await at.submit() for _ in range(1_000)] == [False] * 1_000
        assert at.reads == 1
        assert at.quota.refused["live_runs"] == 1_000

    asyncio.run(scenario())


def test_what_other_gateways_accepted_counts_as_soon_as_it_is_read() -> None:
    async def scenario() -> None:
        at = Counted(live_runs=10)
        assert await at.submit()
        at.usage = TenantUsage(10, 0, 0)  # nine are of another gateway
        assert await at.submit()  # what was read is not a second old
        at.clock.advance(STALE_SEC)
        assert not await at.submit()
        at.usage = TenantUsage(3, 0, 0)
        at.clock.advance(FRESH_SEC)
        assert await at.submit()

    asyncio.run(scenario())


def test_submissions_under_way_have_a_place_already() -> None:
    async def scenario() -> None:
        at, go_on = Counted(live_runs=3), asyncio.Event()

        async def slow() -> Any:
            try:
                async with at.quota.submission():
                    await go_on.wait()
            except QuotaReachedError:
                return "refused"
            return "accepted"

        waiting = [asyncio.create_task(slow()) for _ in range(6)]
        done, _ = await asyncio.wait(waiting, timeout=5, return_when=asyncio.FIRST_COMPLETED)
        while len(done) < 3:
            more, _ = await asyncio.wait(set(waiting) - done, timeout=5, return_when=asyncio.FIRST_COMPLETED)
            done |= more
        go_on.set()
        assert sorted(await asyncio.gather(*waiting)) == ["accepted"] * 3 + ["refused"] * 3

    asyncio.run(scenario())


def test_an_index_that_cannot_be_read_loses_no_count() -> None:
    async def scenario() -> None:
        at = Counted(live_runs=2)
        assert await at.submit()
        assert await at.submit()
        at.clock.advance(STALE_SEC)
        at.usage = None
        with pytest.raises(UnavailableError):
            await at.submit()
        at.usage = TenantUsage(2, 2, 0)
        assert not await at.submit()

    asyncio.run(scenario())
