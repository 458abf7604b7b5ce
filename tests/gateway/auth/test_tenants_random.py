"""Two tenants act at random on one platform; neither ever sees a trace of the other."""

import asyncio
import itertools
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.adapters.real_nats import NatsServer
from tests.gateway.auth.routes import GRAPH
from tests.gateway.auth.world import Open, World, issued
from tests.waiting import PATIENCE_SEC

_numbers = itertools.count(1)
ADDING = ("submit", "submit once", "batch", "create")
READING = ("list", "page", "count")
MEDDLING = ("look", "watch", "cancel", "cancel all", "foreign cursor", "foreign graph", "dead letters")
ACTIONS = (*ADDING, *READING, *MEDDLING)
STEPS = st.lists(st.tuples(st.integers(0, 1), st.sampled_from(ACTIONS), st.integers(0, 7)), min_size=5, max_size=25)


class Party:
    """A tenant, what it knows to be its own, and every answer it received."""

    def __init__(self, name: str, client: httpx.AsyncClient) -> None:
        self.name = name
        self.client = client
        self.own: list[str] = []
        self.cursors: list[str] = []
        self.letters: list[int] = []
        self.answers: list[str] = []

    async def ask(self, method: str, path: str, **more: Any) -> httpx.Response:
        answer = await self.client.request(method, path, **more)
        assert answer.status_code < 500, answer.text
        assert "log_position" not in answer.text
        self.answers.append(answer.text)
        return answer


@asynccontextmanager
async def parties(gateway: Open) -> AsyncIterator[list[Party]]:
    number = next(_numbers)
    names = [f"left{number}", f"right{number}"]
    async with (
        gateway.client(await issued(gateway, names[0])) as left,
        gateway.client(await issued(gateway, names[1])) as right,
    ):
        both = [Party(names[0], left), Party(names[1], right)]
        for party in both:
            await party.ask("PUT", "/graphs/g", json=GRAPH)
        yield both


async def add(party: Party, action: str, pick: int) -> None:
    """Make runs of one's own."""
    match action:
        case "submit":
            answers = [await party.ask("POST", "/runs", json={"flow_name": party.name})]
        case "submit once":
            headers = {"Idempotency-Key": f"order-{pick}"}
            answers = [await party.ask("POST", "/runs", json={"flow_name": party.name}, headers=headers)]
        case "create":
            answer = await party.ask("POST", "/executions", json={"graphId": "g"})
            party.own.append(answer.json()["executionId"])
            return
        case _:
            body = {"runs": [{"flow_name": party.name}] * 2}
            results = (await party.ask("POST", "/runs/batch", json=body)).json()["results"]
            party.own += [result["run_id"] for result in results]
            return
    party.own += [answer.json()["run_id"] for answer in answers]


async def read(party: Party, action: str, pick: int) -> None:
    """Ask about all of one's runs."""
    if action == "list":
        found = (await party.ask("GET", "/runs", params={"limit": 200, "include": "full"})).json()
        assert {run["run_id"] for run in found} <= set(party.own)
    elif action == "page":
        query: dict[str, Any] = {"updated_after": 0, "limit": 1 + pick % 3}
        while query:
            page = (await party.ask("GET", "/runs", params=query)).json()
            assert {run["run_id"] for run in page["items"]} <= set(party.own)
            party.cursors += [page["next_cursor"]] if page["next_cursor"] else []
            query = {"cursor": page["next_cursor"], "limit": 2} if page["next_cursor"] else {}
    else:
        metrics = (await party.ask("GET", "/metrics")).text
        counts = [float(line.split()[-1]) for line in metrics.splitlines() if line.startswith("pyoco_runs_total{")]
        assert sum(counts) <= len(set(party.own))


async def meddle(gateway: Open, party: Party, other: Party, action: str, pick: int) -> None:
    """Ask about things of both: half of what is asked about is foreign."""
    if action == "foreign cursor":
        for cursor in other.cursors[-2:]:
            assert (await party.ask("GET", "/runs", params={"cursor": cursor})).status_code == 422
    elif action == "foreign graph":
        for name in (other.name, f"{other.name}.g"):  # asked for without noting the answer, which repeats the name
            assert (await party.client.get(f"/graphs/{name}")).status_code == 404
            assert (await party.client.post("/executions", json={"graphId": name})).status_code == 422
    elif action == "dead letters":
        await look_at_letters(gateway, party, other)
    else:
        await meddle_with_runs(party, other, action, pick)


async def look_at_letters(gateway: Open, party: Party, other: Party) -> None:
    """Fail a run of the tenant; the ids of its dead letters reveal nothing about other tenants."""
    if party.own:
        entry = {"reason": "x", "run_id": party.own[-1], "error": party.name}
        await gateway.services.dead_letters.publish("default", entry)
    found = (await party.ask("GET", "/dlq")).json()
    assert {letter["entry"]["run_id"] for letter in found} <= set(party.own)
    party.letters += [letter["sequence"] for letter in found]
    for number in other.letters[-2:]:
        assert (await party.ask("GET", f"/dlq/{number}")).status_code == 404


async def meddle_with_runs(party: Party, other: Party, action: str, pick: int) -> None:
    """Ask about runs of both."""
    known = [*other.own, *party.own, str(uuid.uuid4())]
    target = known[pick % len(known)]
    is_own = target in party.own
    if action == "look":
        for part in ("", "/tasks", "/events", "/state"):
            assert ((await party.ask("GET", f"/runs/{target}{part}")).status_code == 200) == is_own, part
    elif action == "watch" and not is_own:
        assert (await party.ask("GET", f"/runs/{target}/watch", params={"timeout_sec": 1})).status_code == 404
    elif action == "cancel":
        for path in (f"/runs/{target}/cancel", f"/executions/{target}/cancel"):
            assert ((await party.ask("POST", path, json={})).status_code == 404) == (not is_own)
    elif action == "cancel all":
        found = (await party.ask("POST", "/runs/cancel", json={"run_ids": known[:20]})).json()["results"]
        assert all((result.get("status") is not None) == (result["run_id"] in party.own) for result in found)
        await party.ask("POST", "/runs/cancel", json={"status": "PENDING"})


async def counts_are_exact(party: Party) -> None:
    """As soon as the index knows all of them: neither one more, nor one less."""

    async def count() -> float:
        metrics = (await party.ask("GET", "/metrics")).text
        return sum(float(line.split()[-1]) for line in metrics.splitlines() if line.startswith("pyoco_runs_total{"))

    async with asyncio.timeout(PATIENCE_SEC):
        while await count() < len(set(party.own)):
            pass
    assert await count() == len(set(party.own))


@pytest.fixture(scope="module")
def looping(auth_nats: NatsServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[asyncio.Runner, Open]]:
    """One gateway for all examples: each has tenants of its own."""
    world = World(auth_nats.url, "random", tmp_path_factory.mktemp("random"))
    with asyncio.Runner() as runner:
        opening = world.open()
        gateway = runner.run(opening.__aenter__())
        yield runner, gateway
        runner.run(opening.__aexit__(None, None, None))


@pytest.mark.spec("004 REQ-0017")
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=STEPS)
def test_neither_sees_a_trace_of_the_other(
    looping: tuple[asyncio.Runner, Open], steps: list[tuple[int, str, int]]
) -> None:
    runner, gateway = looping

    async def walk() -> None:
        async with parties(gateway) as both:
            for who, action, pick in steps:
                if action in ADDING:
                    await add(both[who], action, pick)
                elif action in READING:
                    await read(both[who], action, pick)
                else:
                    await meddle(gateway, both[who], both[1 - who], action, pick)
            assert not set(both[0].own) & set(both[1].own), "one idempotency key, two tenants, two runs"
            for party in both:
                await counts_are_exact(party)
            for party, other in (both, reversed(both)):
                asked_for = set(other.own)
                for text in party.answers:
                    assert other.name not in text
                for text in party.answers:
                    if '"error"' not in text and '"results"' not in text:  # these repeat the id that was asked for
                        assert not any(run_id in text for run_id in asked_for)

    runner.run(walk())
