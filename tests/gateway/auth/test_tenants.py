"""Two tenants on one platform: what is one's does not exist for the other."""

import asyncio
import contextlib
import dataclasses
import hashlib
import re
import uuid
from collections.abc import AsyncIterator, Sequence
from typing import Any

import httpx
import msgspec
import pytest

from pyoco_server.app.tenancy.tenant_ports import TenantLog, TenantRunCache
from pyoco_server.bootstrap import open_platform
from pyoco_server.core import Actor, ActorKind, Event
from pyoco_server.core.commands import StartExecution, StartNode, SucceedNode
from pyoco_server.gateway.app import create_app
from tests.gateway.auth.routes import GRAPH, HIDDEN, OPEN, ROWS, SHARED, every_route
from tests.gateway.auth.test_every_route import ask, error
from tests.gateway.auth.world import Open, World, issued
from tests.waiting import PATIENCE_SEC, wait_until

MARK = "acme-only"
"""Part of everything that belongs to acme; no other tenant may read it."""


async def _indexed(client: httpx.AsyncClient, count: int) -> list[dict[str, Any]]:
    """The list, once it shows so many runs."""
    found: list[dict[str, Any]] = []

    async def look() -> None:
        nonlocal found
        while len(found) < count:
            found = (await client.get("/runs", params={"limit": 200})).json()

    await asyncio.wait_for(look(), PATIENCE_SEC)
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
    """Return the content of an answer without the id that was asked for."""
    body = re.sub(r'"ts":\s*[\d.]+', "", answer.text.replace(own_id, "ID"))
    return answer.status_code, sorted(set(answer.headers) - {"content-length"}), body


@pytest.mark.spec("004 REQ-0017", "004 ERR-PYOCO-0005")
def test_no_route_shows_a_tenant_the_data_of_another(world: World) -> None:
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
                    if row.tenant is HIDDEN:
                        assert _same_but_for(foreign, run_id) == _same_but_for(nobodys, unknown), where
                        assert foreign.status_code == 404, where
                    elif row.tenant is SHARED and method == "GET":
                        mine = await ask(acme, method, path, row, run_id=run_id, graph_id=MARK)
                        assert mine.status_code == foreign.status_code, where
            after = [(await acme.get(f"/runs/{run_id}/events")).json() for run_id in sorted(ids)]
            assert before == after

    asyncio.run(scenario())


@pytest.mark.spec("004 REQ-0017")
def test_an_output_is_returned_to_its_own_tenant_only(world: World) -> None:
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
    run = await gateway.services.run_log.open(run_id)
    await run.execution.do(StartExecution(execution_id=run_id, actor=actor))
    await run.execution.do(StartNode(execution_id=run_id, actor=actor, node_id="work", worker_id="w"))
    succeed = SucceedNode(execution_id=run_id, actor=actor, node_id="work", output={"stored": stored})
    await run.execution.do(succeed)


@pytest.mark.spec("004 REQ-0017", "004 REQ-0023")
def test_a_run_with_only_a_snapshot_is_cancelled_by_its_own_tenant_only(world: World) -> None:
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
def test_an_execution_belongs_to_the_tenant_that_created_it_whatever_its_input_says(world: World) -> None:
    async def scenario() -> None:
        async with world.open() as gateway:
            keys = [await issued(gateway, tenant) for tenant in ("bees", "acme")]
            async with gateway.client(keys[0]) as bees, gateway.client(keys[1]) as acme:
                assert (await acme.put("/graphs/whose", json=GRAPH)).status_code == 201
                body = {"graphId": "whose", "input": {"run": {"tenant_id": "bees", "api_key_id": "k0"}}}
                claim = {"actor": {"kind": "scheduler", "id": "k0"}}
                answer = (await acme.post("/executions", json=body | claim)).json()
                assert answer["events"][0]["actor"] == {"kind": "scheduler", "id": keys[1].stored.api_key_id}
                mine = answer["executionId"]
                assert (await acme.get(f"/executions/{mine}")).json()["input"] == body["input"]
                assert (await acme.get(f"/runs/{mine}")).json()["tenant_id"] == "acme"
                assert error(await bees.get(f"/executions/{mine}")) == (404, "ERR-PYOCO-0005")
                assert error(await bees.get(f"/runs/{mine}")) == (404, "ERR-PYOCO-0005")

    asyncio.run(scenario())


@pytest.mark.spec("004 REQ-0017")
def test_a_submission_is_stamped_with_its_tenant_and_key(world: World) -> None:
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
def test_lists_counts_and_cursors_contain_only_the_tenants_runs(world: World) -> None:
    async def scenario() -> None:
        async with (
            world.open() as gateway,
            gateway.client(await issued(gateway, "acme")) as acme,
            gateway.client(await issued(gateway, "bees")) as bees,
            gateway.client(await issued(gateway, None)) as operator,
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
            assert {run["run_id"] for run in await _indexed(operator, 10)} == own["acme"] | own["bees"]

    asyncio.run(scenario())


@pytest.mark.spec("004 REQ-0017")
def test_cancelling_many_cancels_only_the_tenants_runs(world: World) -> None:
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


def test_two_tenants_may_register_graphs_of_one_name(world: World) -> None:
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


def test_a_chosen_id_reveals_nothing_about_other_tenants(world: World) -> None:
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


def test_dead_letters_and_workers_show_only_the_tenants_runs(world: World) -> None:
    async def scenario() -> None:
        async with (
            world.open() as gateway,
            gateway.client(await issued(gateway, "acme")) as acme,
            gateway.client(await issued(gateway, "bees")) as bees,
            gateway.client(await issued(gateway, None)) as operator,
        ):
            theirs = await _belongings(gateway, acme)
            await gateway.services.dead_letters.publish("default", {"reason": "invalid_job", "run_id": "a.b"})
            shown = (await acme.get("/dlq")).json()
            assert [letter["entry"]["run_id"] for letter in shown] == [theirs["run_id"]]
            assert (await acme.get(f"/dlq/{shown[0]['sequence']}")).json() == shown[0]
            assert (await bees.get("/dlq")).json() == []
            assert error(await bees.get(f"/dlq/{shown[0]['sequence']}")) == (404, "ERR-PYOCO-0104")
            assert len((await operator.get("/dlq")).json()) == 2
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
def test_watching_a_run_shows_only_the_tenants_own(world: World) -> None:
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
            assert gateway.services.hub.streams.count == 0

    asyncio.run(scenario())


@pytest.mark.spec("004 REQ-0017")
def test_watching_the_list_shows_only_the_tenants_runs(world: World) -> None:
    async def scenario() -> None:
        async with (
            world.open() as gateway,
            gateway.client(await issued(gateway, "acme")) as acme,
            gateway.client(await issued(gateway, "bees")) as bees,
        ):
            theirs, own = asyncio.create_task(watched(bees)), asyncio.create_task(watched(acme))
            await wait_until(lambda: gateway.services.hub.streams.count == 2)
            run_id = (await acme.post("/runs", json={"flow_name": MARK})).json()["run_id"]
            assert run_id in await own
            assert '"PENDING":1' in await own
            assert run_id not in await theirs
            assert "event: runs" not in await theirs
            assert '"PENDING":1' not in await theirs
            searched = await bees.get("/runs", params={"run_id_prefix": run_id})
            assert searched.json() == []

    async def watched(client: httpx.AsyncClient) -> str:
        return (await client.get("/runs/~/watch", params={"timeout_sec": 3, "run_id_prefix": ""})).text

    asyncio.run(scenario())


@pytest.mark.spec("004 REQ-0017")
def test_runs_submitted_without_a_key_belong_to_no_tenant(world: World) -> None:
    async def scenario() -> None:
        async with world.open(world.settings(mode="none")) as gateway, gateway.client() as stranger:
            run_id = (await stranger.post("/runs", json={"flow_name": "f"})).json()["run_id"]
        async with (
            world.open() as gateway,
            gateway.client(await issued(gateway, "acme")) as acme,
            gateway.client(await issued(gateway, None)) as operator,
        ):
            assert (await acme.get(f"/runs/{run_id}")).status_code == 404
            assert (await operator.get(f"/runs/{run_id}")).status_code == 200

    asyncio.run(scenario())


class _RecordedPort:
    """Passes calls on to a port, and records each with its arguments; an id is an id, whichever it is.

    Of a log, also the number of events is recorded that came back.
    """

    def __init__(self, name: str, port: Any, calls: list[tuple[Any, ...]]) -> None:
        self._name = name
        self._port = port
        self._calls = calls

    def __getattr__(self, method: str) -> Any:
        async def call(*args: Any, **kwargs: Any) -> Any:
            result = await getattr(self._port, method)(*args, **kwargs)
            events = len(result[0]) if (self._name, method) == ("log", "read") else None
            self._calls.append((self._name, method, _without_ids(str((args, kwargs))), events))
            return result

        return call


def _without_ids(text: str) -> str:
    return re.sub(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "ID", text)


@contextlib.asynccontextmanager
async def _recorded(gateway: Open) -> AsyncIterator[tuple[Open, list[tuple[Any, ...]]]]:
    """The same gateway again, and the list to which it adds each call of a port that a request causes."""
    calls: list[tuple[Any, ...]] = []
    ports = ("log", "snapshots", "queue", "workers", "dead_letters", "graphs", "outputs")
    recorded: dict[str, Any] = {name: _RecordedPort(name, getattr(gateway.services, name), calls) for name in ports}
    services = dataclasses.replace(gateway.services, **recorded, known_runs=TenantRunCache(), views={})
    app = create_app(lambda: contextlib.nullcontext(services))
    async with app.router.lifespan_context(app):
        yield gateway._replace(app=app, services=services), calls


@pytest.mark.spec("004 REQ-0017")
def test_a_foreign_run_causes_the_same_calls_as_a_run_that_does_not_exist(world: World) -> None:
    """Neither answers nor times can reveal that the run exists: for both, the same is read."""

    async def scenario() -> None:
        async with (
            world.open() as gateway,
            gateway.client(await issued(gateway, "acme")) as acme,
            _recorded(gateway) as (recorded, calls),
            recorded.client(await issued(gateway, "bees")) as bees,
        ):
            run_id = (await acme.post("/runs", json={"flow_name": "f"})).json()["run_id"]
            await acme.put("/graphs/g", json=GRAPH)
            execution_id = (await acme.post("/executions", json={"graphId": "g"})).json()["executionId"]
            for verb in ("start", "nodes/work/start", "nodes/work/progress"):
                assert (await acme.post(f"/executions/{execution_id}/{verb}", json={})).status_code == 202
            about_a_run = [route for route in every_route(recorded.app) if re.search("{(run|execution)_id}", route[1])]
            assert len(about_a_run) > 20
            for method, path in about_a_run:
                for foreign in (run_id, execution_id):
                    unknown = str(uuid.uuid4())
                    found = []
                    for asked in (foreign, unknown):
                        calls.clear()
                        answer = await ask(bees, method, path, ROWS[method, path], run_id=asked)
                        found.append((_same_but_for(answer, asked), [*calls]))
                    assert found[0] == found[1], (method, path)
                    assert found[0][1], (method, path)
                    assert not any(events for *_, events in found[0][1]), (method, path)

    asyncio.run(scenario())


def test_a_recorded_gateway_shows_when_a_foreign_log_is_read(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test above fails if a tenant's log port reads the log of another tenant's run."""

    async def read(log: TenantLog, execution_id: str, *, after: int = 0) -> tuple[Sequence[Event], int]:
        events, position = await log._log.read(execution_id, after=after)
        return (events, position) if events and log._is_ours(events[0]) else ([], 0)

    async def scenario() -> None:
        async with (
            world.open() as gateway,
            gateway.client(await issued(gateway, "acme")) as acme,
            _recorded(gateway) as (recorded, calls),
            recorded.client(await issued(gateway, "bees")) as bees,
        ):
            run_id = (await acme.post("/runs", json={"flow_name": "f"})).json()["run_id"]
            monkeypatch.setattr(TenantLog, "read", read)
            assert (await bees.get(f"/runs/{run_id}/events")).status_code == 404
            assert [events for *_, events in calls] == [1]

    asyncio.run(scenario())
