"""Numbers that count the runs of all tenants are not shown to one: they would reveal how busy the others are."""

import asyncio
from typing import Any

import httpx
import pytest

from tests.gateway.auth.routes import GRAPH
from tests.gateway.auth.world import Open, World, issued
from tests.waiting import PATIENCE_SEC


async def _every_answer(client: httpx.AsyncClient) -> tuple[str, list[Any]]:
    """Return the run's id and every answer about it, from its submission to its archive."""
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
    answers = [await client.get(path, params=query) for path, query in queries]
    async with asyncio.timeout(PATIENCE_SEC):
        while not (await client.get("/runs")).json():
            pass
    answers += [
        await client.get(f"/runs?{query}")
        for query in ("", "include=full", "updated_after=0", "updated_after=0&include=all")
    ]
    answers.append(await client.post(f"/runs/{run_id}/cancel", json={}))
    answers.append(await client.post(f"/runs/{run_id}/archive", json={}))
    await client.put("/graphs/g", json=GRAPH)
    made = await client.post("/executions", json={"graphId": "g"})
    answers += [made, await client.post(f"/executions/{made.json()['executionId']}/start", json={})]
    assert all(answer.status_code in {200, 202} for answer in answers), [answer.text for answer in answers]
    return run_id, answers


@pytest.mark.spec("004 REQ-0017")
def test_no_answer_contains_a_position_in_the_log_of_all_runs(world: World) -> None:
    async def scenario() -> None:
        async with world.open() as gateway, gateway.client(await issued(gateway, "acme")) as acme:
            run_id, answers = await _every_answer(acme)
            stored = await gateway.services.snapshots.read(run_id)
            assert stored is not None
            assert b'"log_position"' in stored.body, "the platform itself needs it"
            for answer in answers:
                assert "log_position" not in answer.text, answer.url
            assert '"version"' in answers[0].text, "a run's own version is shown"

    asyncio.run(scenario())


async def _bury(gateway: Open, client: httpx.AsyncClient, count: int) -> list[str]:
    body = {"runs": [{"flow_name": "f"}] * count}
    made = (await client.post("/runs/batch", json=body)).json()["results"]
    for result in made:
        await gateway.services.dead_letters.publish("default", {"reason": "x", "run_id": result["run_id"]})
    return [result["run_id"] for result in made]


@pytest.mark.spec("004 REQ-0017")
def test_a_dead_letter_has_an_id_that_counts_nothing(world: World) -> None:
    async def scenario() -> None:
        async with (
            world.open() as gateway,
            gateway.client(await issued(gateway, "acme")) as acme,
            gateway.client(await issued(gateway, "bees")) as bees,
            gateway.client(await issued(gateway, None)) as operator,
        ):
            theirs = await _bury(gateway, acme, 7)
            ours = await _bury(gateway, bees, 2)
            shown = (await bees.get("/dlq")).json()
            assert [letter["entry"]["run_id"] for letter in shown] == ours[::-1]
            ids = [letter["sequence"] for letter in shown]
            assert len({*ids, *range(1, 20)}) == len(ids) + 19, "neither the same nor the numbers of the stream"
            for letter in shown:
                assert 0 < letter["sequence"] < 2**53, "exact in JavaScript"
                assert (await bees.get(f"/dlq/{letter['sequence']}")).json() == letter
                assert (await acme.get(f"/dlq/{letter['sequence']}")).status_code == 404
            for number in range(1, 10):
                assert (await bees.get(f"/dlq/{number}")).status_code == 404
            for client, count in ((acme, len(theirs)), (bees, len(ours)), (operator, len(theirs) + len(ours))):
                metrics = (await client.get("/metrics")).text.splitlines()
                assert [float(line.split()[1]) for line in metrics if line.startswith("pyoco_dlq_messages_total ")] == [
                    count
                ]
            assert [letter["sequence"] for letter in (await operator.get("/dlq")).json()] == [*range(9, 0, -1)]

    asyncio.run(scenario())


@pytest.mark.spec("004 REQ-0017")
def test_a_dead_letter_keeps_its_id_while_letters_come_and_gateways_change(world: World) -> None:
    async def scenario() -> None:
        async with world.open() as gateway, gateway.client(key := await issued(gateway, "acme")) as acme:
            await _bury(gateway, acme, 2)
            before = (await acme.get("/dlq")).json()
            await _bury(gateway, acme, 1)
            assert (await acme.get("/dlq")).json()[1:] == before
        async with world.open() as gateway, gateway.client(key) as acme:
            for letter in before:
                assert (await acme.get(f"/dlq/{letter['sequence']}")).json() == letter

    asyncio.run(scenario())
