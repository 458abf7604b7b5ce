"""Two tenants on one platform: what is one's does not exist for the other."""

import asyncio
import hashlib
import re
import statistics
import time
import uuid
from typing import Any

import httpx
import msgspec
import pytest

from pyoco_server.bootstrap import open_platform
from pyoco_server.core import Actor, ActorKind
from pyoco_server.core.commands import StartExecution, StartNode, SucceedNode
from tests.auth.routes import GRAPH, OPEN, ROWS, every_route
from tests.auth.test_every_route import ask, error
from tests.auth.world import Open, World, issued
from tests.waiting import wait_until

MARK = "acme-only"
"""Stands in everything acme has; whoever else reads it has seen too much."""


async def _indexed(client: httpx.AsyncClient, count: int) -> list[dict[str, Any]]:
    """The list, once it shows so many runs."""
    found: list[dict[str, Any]] = []

    async def look() -> None:
        nonlocal found
        while len(found) < count:
            found = (await client.get("/runs", params={"limit": 200})).json()

    await asyncio.wait_for(look(), 5)
    return found


async def _belongings(gateway: Open, acme: httpx.AsyncClient) -> dict[str, str]:
    """A run, an execution, a graph, a dead letter and a worker at work, all of acme's."""
    run = await acme.post(
        "/runs", json={"flow_name": f"{MARK}-flow", "params": {"p": MARK}, "tags": [MARK], "tag": "default"}
    )
    run_id = run.json()["run_id"]
    assert (await acme.put(f"/graphs/{MARK}", json=GRAPH)).status_code == 201
    execution = await acme.post("/executions", json={"graphId": MARK, "input": {"p": MARK}})
    execution_id = execution.json()["executionId"]
    entry = {"timestamp": 1.0, "reason": "execution_error", "error": MARK, "run_id": run_id, "flow_name": MARK}
    await gateway.services.dead_letters.publish("default", entry)
    record = {
        "worker_id": "w1",
        "instance_id": "i",
        "state": "RUNNING",
        "hidden": False,
        "last_seen_at": 1.0,
        "last_heartbeat_at": 1.0,
        "tags": ["default"],
        "current_run_id": run_id,
        "current_run_ids": [run_id],
        "last_run_id": execution_id,
        "last_run_status": "COMPLETED",
    }
    await gateway.services.workers.update("w1", lambda _: record)
    await _indexed(acme, 2)
    return {"run_id": run_id, "execution_id": execution_id}


def _same_but_for(answer: httpx.Response, own_id: str) -> tuple[Any, ...]:
    """All an answer tells, with the id it was asked for blotted out."""
    body = re.sub(r'"ts":\s*[\d.]+', "", answer.text.replace(own_id, "ID"))
    return answer.status_code, sorted(set(answer.headers) - {"content-length"}), body


@pytest.mark.spec("004 REQ-0017", "004 ERR-PYOCO-0005")
def test_no_route_tells_one_tenant_of_anothers_things(world: World) -> None:
    async def scenario() -> None:
        async with (
            world.open() as gateway,
            gateway.client(await issued(gateway, "acme")) as acme,
            gateway.client(await issued(gateway, "bees")) as bees,
        ):
            theirs = await _belongings(gateway, acme)
            ids = set(theirs.values())
            before = [(await acme.get(f"/runs/{run_id}/events")).json() for run_id in sorted(ids)]
            for method, path in every_route(gateway.app):
                row = ROWS[method, path]
                if row.scope is OPEN:
                    continue
                for run_id in ids:
                    unknown = str(uuid.uuid4())
                    foreign = await ask(bees, method, path, row, run_id=run_id, graph_id=MARK)
                    nobodys = await ask(bees, method, path, row, run_id=unknown, graph_id=f"no-{uuid.uuid4()}")
                    where = (method, path)
                    seen = foreign.text.replace(run_id, "") + str(foreign.headers)
                    asked_for_it = path.startswith("/graphs")
                    assert asked_for_it or MARK not in seen, where
                    assert not any(other in seen for other in ids), where
                    if "_id}" in path and "graph_id" not in path and "worker_id" not in path:
                        assert _same_but_for(foreign, run_id) == _same_but_for(nobodys, unknown), where
                        assert error(foreign) == (404, "ERR-PYOCO-0005"), where
            after = [(await acme.get(f"/runs/{run_id}/events")).json() for run_id in sorted(ids)]
            assert before == after

    asyncio.run(scenario())


@pytest.mark.spec("004 REQ-0017")
def test_an_output_is_given_to_its_own_tenant_alone(world: World) -> None:
    data = msgspec.json.encode(["x" * 100] * 50_000)

    async def scenario() -> None:
        async with (
            world.open() as gateway,
            gateway.client(await issued(gateway, "acme")) as acme,
            gateway.client(await issued(gateway, "bees")) as bees,
        ):
            assert (await acme.put("/graphs/g", json=GRAPH)).status_code == 201
            run_id = (await acme.post("/executions", json={"graphId": "g"})).json()["executionId"]
            await _succeeded_with(gateway, run_id, data)
            path = f"/runs/{run_id}/nodes/work/output"
            mine, theirs = await acme.get(path), await bees.get(path)
            assert (mine.status_code, mine.content) == (200, data)
            nobodys = await bees.get(f"/runs/{uuid.uuid4()}/nodes/work/output")
            assert error(theirs) == error(nobodys) == (404, "ERR-PYOCO-0005")
            assert len(theirs.content) == len(nobodys.content)

    asyncio.run(scenario())


async def _succeeded_with(gateway: Open, run_id: str, data: bytes) -> None:
    """Do what a worker does: store a large output, and record that ``work`` returned it."""
    name = f"{run_id}/work/1"
    async with open_platform(gateway.services.settings, name="worker") as platform:
        await platform.outputs.put(name, data)
    stored = {"name": name, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    actor = Actor(ActorKind.SYSTEM)
    run = await gateway.services.desk.open(run_id)
    await run.execution.do(StartExecution(execution_id=run_id, actor=actor))
    await run.execution.do(StartNode(execution_id=run_id, actor=actor, node_id="work", worker_id="w"))
    succeed = SucceedNode(execution_id=run_id, actor=actor, node_id="work", output={"stored": stored})
    await run.execution.do(succeed)


@pytest.mark.spec("004 REQ-0017", "004 REQ-0023")
def test_a_run_that_is_only_a_snapshot_is_cancelled_by_its_own_tenant_alone(world: World) -> None:
    async def scenario() -> None:
        async with world.open() as gateway:
            theirs = {"run_id": "theirs", "flow_name": MARK, "status": "RUNNING", "tenant_id": "acme"}
            await gateway.services.snapshots.write("theirs", msgspec.json.encode(theirs), position=0)
            await gateway.services.snapshots.write("odd", b"not json", position=0)
            keys = [await issued(gateway, tenant) for tenant in ("bees", "acme")]
            async with gateway.client(keys[0]) as bees, gateway.client(keys[1]) as acme:
                for run_id in ("theirs", "odd"):
                    assert error(await bees.post(f"/runs/{run_id}/cancel")) == (404, "ERR-PYOCO-0005")
                    assert error(await bees.get(f"/runs/{run_id}")) == (404, "ERR-PYOCO-0005")
                assert not (await gateway.services.log.read("theirs"))[0]
                answer = await acme.post("/runs/theirs/cancel")
                assert (answer.status_code, answer.json()["status"]) == (200, "CANCELLING")
                assert answer.json()["cancel_requested_by"] == f"api_key:{keys[1].stored.api_key_id}"
                assert (await acme.get("/runs/theirs")).json()["tenant_id"] == "acme"
                assert error(await bees.get("/runs/theirs/events")) == (404, "ERR-PYOCO-0005")

    asyncio.run(scenario())


@pytest.mark.spec("004 REQ-0017")
def test_an_execution_belongs_to_who_created_it_whatever_its_input_says(world: World) -> None:
    async def scenario() -> None:
        async with world.open() as gateway:
            keys = [await issued(gateway, tenant) for tenant in ("bees", "acme")]
            async with gateway.client(keys[0]) as bees, gateway.client(keys[1]) as acme:
                assert (await acme.put("/graphs/whose", json=GRAPH)).status_code == 201
                body = {"graphId": "whose", "input": {"run": {"tenant_id": "bees", "api_key_id": "k0"}}}
                claim = {"actor": {"kind": "scheduler", "id": "k0"}}
                told = (await acme.post("/executions", json=body | claim)).json()
                assert told["events"][0]["actor"] == {"kind": "scheduler", "id": keys[1].stored.api_key_id}
                mine = told["executionId"]
                assert (await acme.get(f"/executions/{mine}")).json()["input"] == body["input"]
                assert (await acme.get(f"/runs/{mine}")).json()["tenant_id"] == "acme"
                assert error(await bees.get(f"/executions/{mine}")) == (404, "ERR-PYOCO-0005")
                assert error(await bees.get(f"/runs/{mine}")) == (404, "ERR-PYOCO-0005")

    asyncio.run(scenario())


@pytest.mark.spec("004 REQ-0017")
def test_what_a_tenant_submits_is_stamped_with_who_did_it(world: World) -> None:
    async def scenario() -> None:
        async with world.open() as gateway:
            key = await issued(gateway, "acme")
            async with gateway.client(key) as acme:
                body = {"flow_name": "f", "tenant_id": "bees", "api_key_id": "k0", "status": "COMPLETED"}
                accepted = await acme.post("/runs", json=body)
                if accepted.status_code == 422:  # what a client may not say is refused, or ignored
                    accepted = await acme.post("/runs", json={"flow_name": "f"})
                run_id = accepted.json()["run_id"]
                stamp = {"tenant_id": "acme", "api_key_id": key.stored.api_key_id}
                snapshot = (await acme.get(f"/runs/{run_id}")).json()
                assert {name: snapshot[name] for name in stamp} == stamp
                assert snapshot["status"] == "PENDING"
                events = (await acme.get(f"/runs/{run_id}/events")).json()["events"]
                assert stamp.items() <= events[0]["payload"]["input"]["run"].items()
                assert events[0]["actor"]["id"] == key.stored.api_key_id
                job = await gateway.services.queue.pull("default", timeout_sec=2)
                assert job is not None
                assert stamp.items() <= msgspec.json.decode(job.body).items()
                await job.ack()

    asyncio.run(scenario())


@pytest.mark.spec("004 REQ-0017")
def test_lists_counts_and_cursors_know_ones_own_runs_only(world: World) -> None:
    async def scenario() -> None:
        async with (
            world.open() as gateway,
            gateway.client(await issued(gateway, "acme")) as acme,
            gateway.client(await issued(gateway, "bees")) as bees,
            gateway.client(await issued(gateway, None)) as everybody,
        ):
            own = {}
            for name, client in (("acme", acme), ("bees", bees)):
                runs = {"runs": [{"flow_name": "same"} for _ in range(5)]}
                results = (await client.post("/runs/batch", json=runs)).json()["results"]
                own[name] = {result["run_id"] for result in results}
            for name, client in (("acme", acme), ("bees", bees)):
                assert {run["run_id"] for run in await _indexed(client, 5)} == own[name]
                for query in ({"include": "full"}, {"flow": "same"}, {"tag": "default"}, {"status": "PENDING"}):
                    found = (await client.get("/runs", params={"limit": "200", **query})).json()
                    assert {run["run_id"] for run in found} == own[name], query
                metrics = (await client.get("/metrics")).text
                assert 'pyoco_runs_total{status="PENDING"} 5' in metrics
            page = (await acme.get("/runs", params={"updated_after": 0, "limit": 2})).json()
            assert error(await bees.get("/runs", params={"cursor": page["next_cursor"]})) == (422, "ERR-PYOCO-0017")
            rest = (await acme.get("/runs", params={"cursor": page["next_cursor"]})).json()
            assert {run["run_id"] for run in page["items"] + rest["items"]} == own["acme"]
            assert {run["run_id"] for run in await _indexed(everybody, 10)} == own["acme"] | own["bees"]

    asyncio.run(scenario())


@pytest.mark.spec("004 REQ-0017")
def test_cancelling_many_cancels_ones_own(world: World) -> None:
    async def scenario() -> None:
        async with (
            world.open() as gateway,
            gateway.client(await issued(gateway, "acme")) as acme,
            gateway.client(await issued(gateway, "bees")) as bees,
        ):
            theirs = (await acme.post("/runs", json={"flow_name": "same"})).json()["run_id"]
            ours = (await bees.post("/runs", json={"flow_name": "same"})).json()["run_id"]
            await _indexed(acme, 1)
            await _indexed(bees, 1)
            unknown = str(uuid.uuid4())
            named = (await bees.post("/runs/cancel", json={"run_ids": [theirs, unknown]})).json()["results"]
            assert str(named[0]).replace(theirs, "ID") == str(named[1]).replace(unknown, "ID")
            fitting = (await bees.post("/runs/cancel", json={"flow": "same"})).json()["results"]
            assert [result["run_id"] for result in fitting] == [ours]
            assert (await acme.get(f"/runs/{theirs}")).json()["status"] == "PENDING"

    asyncio.run(scenario())


@pytest.mark.spec("004 REQ-0017")
def test_one_idempotency_key_stands_for_one_run_of_each_tenant(world: World) -> None:
    async def scenario() -> None:
        async with world.open() as gateway:
            first, second = await issued(gateway, "acme"), await issued(gateway, "acme")
            headers = {"Idempotency-Key": "order-1"}
            made: dict[str, set[str]] = {"runs": set(), "executions": set()}
            for key in (first, second, await issued(gateway, "bees")):
                async with gateway.client(key, **headers) as client:
                    run = await client.post("/runs", json={"flow_name": "f"})
                    assert run.status_code == 200, run.text
                    made["runs"].add(run.json()["run_id"])
                    await client.put("/graphs/g", json=GRAPH)
                    execution = await client.post("/executions", json={"graphId": "g"})
                    made["executions"].add(execution.json()["executionId"])
            assert {name: len(ids) for name, ids in made.items()} == {"runs": 2, "executions": 2}

    asyncio.run(scenario())


def test_graphs_have_names_of_their_tenants_own(world: World) -> None:
    async def scenario() -> None:
        other = {**GRAPH, "nodes": [*GRAPH["nodes"][:1], {"nodeId": "work", "nodeType": "Wait"}, *GRAPH["nodes"][2:]]}
        async with (
            world.open() as gateway,
            gateway.client(await issued(gateway, "acme")) as acme,
            gateway.client(await issued(gateway, "bees")) as bees,
        ):
            assert (await acme.put("/graphs/g", json=GRAPH)).status_code == 201
            assert error(await bees.get("/graphs/g")) == (404, "ERR-PYOCO-0104")
            assert (await bees.post("/executions", json={"graphId": "g"})).status_code == 422
            assert (await bees.post("/executions", json={"graphId": "acme.g"})).status_code == 422
            assert (await bees.put("/graphs/g", json=other)).status_code == 201
            assert (await acme.get("/graphs/g")).json()["nodes"][1]["nodeType"] == "Task"
            assert (await bees.get("/graphs/g")).json()["nodes"][1]["nodeType"] == "Wait"

    asyncio.run(scenario())


def test_an_id_of_ones_own_choice_tells_nothing_about_others(world: World) -> None:
    async def scenario() -> None:
        async with (
            world.open() as gateway,
            gateway.client(await issued(gateway, "acme")) as acme,
            gateway.client(await issued(gateway, "bees")) as bees,
        ):
            for client in (acme, bees):
                await client.put("/graphs/g", json=GRAPH)
            made = await acme.post("/executions", json={"graphId": "g", "executionId": "acme--order-1"})
            assert (made.status_code, made.json()["executionId"]) == (202, "acme--order-1")
            again = await acme.post("/executions", json={"graphId": "g", "executionId": "acme--order-1"})
            assert again.status_code == 409
            free = (await acme.post("/executions", json={"graphId": "g"})).json()["executionId"]
            for chosen in ("acme--order-1", "acme--order-2", free, str(uuid.uuid4()), "order-1", "bees-1"):
                answer = await bees.post("/executions", json={"graphId": "g", "executionId": chosen})
                assert error(answer) == (422, "ERR-PYOCO-0002"), chosen
            ours = await bees.post("/executions", json={"graphId": "g", "executionId": "bees--order-1"})
            assert ours.status_code == 202

    asyncio.run(scenario())


def test_dead_letters_and_workers_show_ones_own_runs_only(world: World) -> None:
    async def scenario() -> None:
        async with (
            world.open() as gateway,
            gateway.client(await issued(gateway, "acme")) as acme,
            gateway.client(await issued(gateway, "bees")) as bees,
            gateway.client(await issued(gateway, None)) as everybody,
        ):
            theirs = await _belongings(gateway, acme)
            await gateway.services.dead_letters.publish("default", {"reason": "invalid_job", "run_id": "a.b"})
            shown = (await acme.get("/dlq")).json()
            assert [letter["entry"]["run_id"] for letter in shown] == [theirs["run_id"]]
            assert (await acme.get(f"/dlq/{shown[0]['sequence']}")).json() == shown[0]
            assert (await bees.get("/dlq")).json() == []
            assert error(await bees.get(f"/dlq/{shown[0]['sequence']}")) == (404, "ERR-PYOCO-0104")
            assert len((await everybody.get("/dlq")).json()) == 2
            [own] = (await acme.get("/workers", params={"scope": "all"})).json()
            [foreign] = (await bees.get("/workers", params={"scope": "all"})).json()
            assert (own["current_run_id"], own["last_run_id"]) == (theirs["run_id"], theirs["execution_id"])
            assert (foreign["current_run_id"], foreign["last_run_id"]) == (None, None)
            assert foreign["last_run_status"] is None
            patched = await bees.patch("/workers/w1", json={"hidden": True})
            assert patched.json()["hidden"] is True
            kept = await gateway.services.workers.get("w1")
            assert kept is not None
            assert kept["current_run_id"] == theirs["run_id"]

    asyncio.run(scenario())


@pytest.mark.spec("004 REQ-0017")
def test_who_watches_sees_their_own_run_and_no_other(world: World) -> None:
    async def scenario() -> None:
        async with (
            world.open() as gateway,
            gateway.client(await issued(gateway, "acme")) as acme,
            gateway.client(await issued(gateway, "bees")) as bees,
        ):
            run_id = (await acme.post("/runs", json={"flow_name": MARK})).json()["run_id"]
            refused = await bees.get(f"/runs/{run_id}/watch", params={"timeout_sec": 1})
            assert error(refused) == (404, "ERR-PYOCO-0005")
            watched = await acme.get(f"/runs/{run_id}/watch", params={"timeout_sec": 1})
            assert MARK in watched.text
            assert gateway.services.hub.count == 0

    asyncio.run(scenario())


@pytest.mark.spec("004 REQ-0017")
def test_who_watches_the_list_is_told_of_their_own_runs_and_no_other(world: World) -> None:
    async def scenario() -> None:
        async with (
            world.open() as gateway,
            gateway.client(await issued(gateway, "acme")) as acme,
            gateway.client(await issued(gateway, "bees")) as bees,
        ):
            theirs, own = asyncio.create_task(told(bees)), asyncio.create_task(told(acme))
            await wait_until(lambda: gateway.services.hub.count == 2)
            run_id = (await acme.post("/runs", json={"flow_name": MARK})).json()["run_id"]
            assert run_id in await own
            assert '"PENDING":1' in await own
            assert run_id not in await theirs
            assert "event: runs" not in await theirs
            assert '"PENDING":1' not in await theirs
            searched = await bees.get("/runs", params={"run_id_prefix": run_id})
            assert searched.json() == []

    async def told(client: httpx.AsyncClient) -> str:
        return (await client.get("/runs/~/watch", params={"timeout_sec": 3, "run_id_prefix": ""})).text

    asyncio.run(scenario())


@pytest.mark.spec("004 REQ-0017")
def test_runs_from_before_there_were_keys_belong_to_no_tenant(world: World) -> None:
    async def scenario() -> None:
        async with world.open(world.settings(mode="none")) as gateway, gateway.client() as anybody:
            run_id = (await anybody.post("/runs", json={"flow_name": "f"})).json()["run_id"]
        async with (
            world.open() as gateway,
            gateway.client(await issued(gateway, "acme")) as acme,
            gateway.client(await issued(gateway, None)) as everybody,
        ):
            assert (await acme.get(f"/runs/{run_id}")).status_code == 404
            assert (await everybody.get(f"/runs/{run_id}")).status_code == 200

    asyncio.run(scenario())


@pytest.mark.spec("004 REQ-0017")
def test_a_foreign_run_takes_as_long_as_none(world: World) -> None:
    """Generous: it is there to notice a whole log being read, not a microsecond."""
    rounds = 60

    async def scenario() -> None:
        async with (
            world.open() as gateway,
            gateway.client(await issued(gateway, "acme")) as acme,
            gateway.client(await issued(gateway, "bees")) as bees,
        ):
            params = {"p": "x" * 100_000}
            big = (await acme.post("/runs", json={"flow_name": "f", "params": params})).json()["run_id"]
            await acme.put("/graphs/g", json=GRAPH)
            long = (await acme.post("/executions", json={"graphId": "g"})).json()["executionId"]
            for step in ("start", "nodes/work/start", *["nodes/work/progress"] * 100):
                body = {"progress": 1} if step.endswith("progress") else {}
                given = await acme.post(f"/executions/{long}/{step}", json=body)
                assert given.status_code == 202, given.text
            for foreign, path in ((big, ""), (big, "/tasks"), (long, "/events"), (long, "/graph")):
                times: dict[str, list[int]] = {"foreign": [], "unknown": []}
                for _ in range(rounds):
                    for kind, run_id in (("foreign", foreign), ("unknown", str(uuid.uuid4()))):
                        began = time.perf_counter_ns()
                        assert (await bees.get(f"/runs/{run_id}{path}")).status_code == 404
                        times[kind].append(time.perf_counter_ns() - began)
                medians = {kind: statistics.median(taken) for kind, taken in times.items()}
                assert medians["foreign"] < 1.6 * medians["unknown"], (path, medians)
                assert medians["unknown"] < 1.6 * medians["foreign"], (path, medians)

    asyncio.run(scenario())
