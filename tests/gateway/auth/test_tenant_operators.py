"""A tenant's key with the scopes `operate` and `wheels` changes and sees nothing of other tenants."""

import asyncio

import httpx
import pytest

from tests.gateway.auth.world import World, issued
from tests.waiting import wait_until
from tests.wheels.building import make_wheel, wheel_name


async def _hidden(client: httpx.AsyncClient) -> tuple[bool, list[str]]:
    """Whether w1 is hidden, and which workers the list has by default."""
    [worker] = (await client.get("/workers", params={"include_hidden": "true", "scope": "all"})).json()
    assert "hidden_for" not in worker
    return worker["hidden"], [worker["worker_id"] for worker in (await client.get("/workers?scope=all")).json()]


@pytest.mark.spec("004 REQ-0022")
def test_a_tenant_hides_a_worker_in_its_own_list_only(world: World) -> None:
    async def scenario() -> None:
        async with (
            world.open() as gateway,
            gateway.client(await issued(gateway, "acme")) as acme,
            gateway.client(await issued(gateway, "bees")) as bees,
            gateway.client(await issued(gateway, None)) as operator,
        ):
            await gateway.services.workers.update("w1", lambda _: {"worker_id": "w1", "hidden": False})
            before = await gateway.services.workers.get("w1")
            assert before is not None
            assert (await bees.patch("/workers/w1", json={"hidden": True})).json()["hidden"] is True
            assert await _hidden(bees) == (True, [])
            assert await _hidden(acme) == await _hidden(operator) == (False, ["w1"])
            after = await gateway.services.workers.get("w1")
            assert after is not None
            assert {name: after[name] for name in before} == before, "nothing else of the record changes"
            await operator.patch("/workers/w1", json={"hidden": True})
            assert await _hidden(acme) == await _hidden(operator) == (True, [])
            await acme.patch("/workers/w1", json={"hidden": False})
            assert await _hidden(acme) == (False, ["w1"])
            assert await _hidden(operator) == (True, [])
            assert (await bees.patch("/workers/w2", json={"hidden": True})).status_code == 404

    asyncio.run(scenario())


@pytest.mark.spec("004 REQ-0025")
def test_the_history_of_wheels_names_no_keys_and_addresses_of_other_tenants(world: World) -> None:
    async def scenario() -> None:
        async with (
            world.open() as gateway,
            gateway.client(await issued(gateway, "acme")) as acme,
            gateway.client(await issued(gateway, "bees")) as bees,
            gateway.client(await issued(gateway, None)) as operator,
        ):
            sent = {"wheel": (wheel_name(), make_wheel(), "application/octet-stream")}
            assert (await acme.post("/wheels", files=sent)).status_code == 200
            assert (await bees.delete(f"/wheels/{wheel_name()}")).status_code == 200
            shown = {
                name: (await client.get("/wheels/history")).json()
                for name, client in (("acme", acme), ("bees", bees), ("operator", operator))
            }
            deleted, uploaded = shown["operator"]
            assert (uploaded["actor"]["tenant_id"], deleted["actor"]["tenant_id"]) == ("acme", "bees")
            assert uploaded["source"]["user_agent"]
            for event in (deleted, uploaded):
                unnamed = {"actor": dict.fromkeys(event["actor"]), "source": dict.fromkeys(event["source"])}
                for tenant in ("acme", "bees"):
                    own = event["actor"]["tenant_id"] == tenant
                    assert (event if own else {**event, **unnamed}) in shown[tenant]

    asyncio.run(scenario())


def test_the_figure_of_watchers_counts_the_tenants_own(world: World) -> None:
    async def scenario() -> None:
        async with (
            world.listening() as gateway,
            gateway.client(await issued(gateway, "acme")) as acme,
            gateway.client(await issued(gateway, "bees")) as bees,
            gateway.client(await issued(gateway, None)) as operator,
        ):
            run_id = (await acme.post("/runs", json={"flow_name": "f"})).json()["run_id"]
            async with acme.stream("GET", f"/runs/{run_id}/watch"), acme.stream("GET", "/runs/~/watch"):
                await wait_until(lambda: gateway.services.hub.streams.count == 2)
                for client, count in ((acme, 2), (bees, 0), (operator, 2)):
                    assert f"\npyoco_watchers {count}\n" in (await client.get("/metrics")).text

    asyncio.run(scenario())
