"""What the whole platform counts by is not shown to tenants: it would tell how busy the others are."""

import asyncio
import itertools
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyoco_server.app.auth_veils import MOST, Veil
from tests.auth.routes import GRAPH
from tests.auth.world import Open, World, issued

NUMBERS = st.integers(0, MOST - 1)


@given(number=NUMBERS, pepper=st.binary(max_size=8), tenant=st.text(max_size=5))
def test_a_hidden_number_is_found_again(number: int, pepper: bytes, tenant: str) -> None:
    veil = Veil(pepper, tenant)
    shown = veil.hide(number)
    assert 0 <= shown < MOST
    assert veil.uncover(shown) == number


@pytest.mark.parametrize("number", [-1, MOST, 2**63 - 1])
def test_what_was_never_shown_stands_for_nothing(number: int) -> None:
    assert Veil(b"p", "acme").uncover(number) is None


def test_neighbours_are_far_apart_and_tenants_differ() -> None:
    shown = [[Veil(pepper, tenant).hide(number) for number in range(1, 500)] for pepper, tenant in _HOLDERS]
    for numbers in shown:
        rising = sum(after > before for before, after in itertools.pairwise(numbers))
        assert 150 < rising < 350, "neither their order nor their distance is left"
    assert len({number for numbers in shown for number in numbers}) == sum(map(len, shown))


_HOLDERS = [(b"pepper", "acme"), (b"pepper", "bees"), (b"other", "acme")]


async def _everything_told(client: httpx.AsyncClient) -> tuple[str, list[Any]]:
    """All answers that tell of a run, through its whole life."""
    run_id = (await client.post("/runs", json={"flow_name": "f"})).json()["run_id"]
    queries: list[tuple[str, dict[str, Any]]] = [
        (f"/runs/{run_id}", {}),
        (f"/runs/{run_id}", {"include": "full"}),
        (f"/runs/{run_id}/tasks", {}),
        (f"/runs/{run_id}/events", {}),
        (f"/runs/{run_id}/state", {}),
        (f"/executions/{run_id}", {}),
        (f"/runs/{run_id}/watch", {"timeout_sec": 1}),
        (f"/runs/{run_id}/watch", {"timeout_sec": 1, "include": "records"}),
    ]
    told = [await client.get(path, params=query) for path, query in queries]
    async with asyncio.timeout(10):
        while not (await client.get("/runs")).json():
            pass
    told += [
        await client.get(f"/runs?{query}")
        for query in ("", "include=full", "updated_after=0", "updated_after=0&include=all")
    ]
    told.append(await client.post(f"/runs/{run_id}/cancel", json={}))
    told.append(await client.post(f"/runs/{run_id}/archive", json={}))
    await client.put("/graphs/g", json=GRAPH)
    made = await client.post("/executions", json={"graphId": "g"})
    told += [made, await client.post(f"/executions/{made.json()['executionId']}/start", json={})]
    assert all(answer.status_code in {200, 202} for answer in told), [answer.text for answer in told]
    return run_id, told


@pytest.mark.spec("004 REQ-0017")
def test_no_answer_tells_where_in_everybodys_log_a_run_stands(world: World) -> None:
    async def scenario() -> None:
        async with world.open() as gateway, gateway.client(await issued(gateway, "acme")) as acme:
            run_id, told = await _everything_told(acme)
            stored = await gateway.services.snapshots.read(run_id)
            assert stored is not None
            assert b'"log_position"' in stored.body, "the platform itself goes by it"
            for answer in told:
                assert "log_position" not in answer.text, answer.url
            assert '"version"' in told[0].text, "what a run's own changes are counted by is told"

    asyncio.run(scenario())


async def _bury(gateway: Open, client: httpx.AsyncClient, count: int) -> list[str]:
    body = {"runs": [{"flow_name": "f"}] * count}
    made = (await client.post("/runs/batch", json=body)).json()["results"]
    for result in made:
        await gateway.services.dead_letters.publish("default", {"reason": "x", "run_id": result["run_id"]})
    return [result["run_id"] for result in made]


@pytest.mark.spec("004 REQ-0017")
def test_dead_letters_are_counted_and_numbered_for_each_tenant(world: World) -> None:
    async def scenario() -> None:
        async with (
            world.open() as gateway,
            gateway.client(await issued(gateway, "acme")) as acme,
            gateway.client(await issued(gateway, "bees")) as bees,
            gateway.client(await issued(gateway, None)) as everybody,
        ):
            theirs = await _bury(gateway, acme, 7)
            ours = await _bury(gateway, bees, 2)
            shown = (await bees.get("/dlq")).json()
            assert [letter["entry"]["run_id"] for letter in shown] == ours[::-1]
            assert not {letter["sequence"] for letter in shown} & set(range(1, 20))
            for letter in shown:
                assert (await bees.get(f"/dlq/{letter['sequence']}")).json() == letter
                assert (await acme.get(f"/dlq/{letter['sequence']}")).status_code == 404
            for number in range(1, 10):
                assert (await bees.get(f"/dlq/{number}")).status_code == 404
            for client, count in ((acme, len(theirs)), (bees, len(ours)), (everybody, len(theirs) + len(ours))):
                told = (await client.get("/metrics")).text.splitlines()
                assert [float(line.split()[1]) for line in told if line.startswith("pyoco_dlq_messages_total ")] == [
                    count
                ]
            assert [letter["sequence"] for letter in (await everybody.get("/dlq")).json()] == [*range(9, 0, -1)]

    asyncio.run(scenario())
