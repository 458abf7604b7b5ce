"""GET /runs/{id}/nodes/{node}/output, against a real NATS and real workers, and the client that reads it."""

import asyncio
import contextlib
import json
import pickle
import random
from collections.abc import Awaitable, Callable
from decimal import Decimal
from pathlib import Path
from threading import Lock
from typing import Any

import httpx
import pytest
from pyoco import Flow  # type: ignore[import-untyped]  # pyoco ships no type information

from pyoco_server import wait
from pyoco_server.adapters.jetstream.durability.connection import connect
from pyoco_server.adapters.jetstream.primitives.names import Names
from pyoco_server.adapters.jetstream.primitives.object_store import ObjectBucket
from pyoco_server.client import ApiError, AsyncClient, Client
from pyoco_server.errors import InvalidInputError
from pyoco_server.gateway.routers.run_outputs import OUTPUT_KIND
from tests.adapters.real_nats import NatsServer
from tests.app.runtime.flows import Calls
from tests.cli.commands import call
from tests.gateway.stand import check_error, ended, submit, unique, waiting
from tests.gateway.test_values import KEY, worker_of
from tests.values.samples import EXAMPLES

MIB = 1024 * 1024
LARGE = random.Random(1).randbytes(3 * MIB).hex()
DECIMALS = [Decimal(n) / 8 for n in range(20_000)]
LOCK = Lock()


def _boom(_: Any) -> None:
    raise ValueError("no good")


def all_kinds() -> Flow:
    """One task for each way in which an output is kept, a wait, and a task that fails."""
    calls = Calls()
    values = {"small": {"a": [1, None]}, "large": LARGE, "tagged": DECIMALS, "pickled": EXAMPLES, "lost": LOCK}
    flow = Flow("kinds")
    for name, value in values.items():
        flow = flow >> calls.task(name, lambda _, value=value: value)
    return flow >> wait("ask") >> calls.task("boom", _boom)


@pytest.fixture(scope="module")
def kinds_of(nats: NatsServer, tmp_path_factory: pytest.TempPathFactory) -> Callable[[httpx.Client], str]:
    """Make one run and return its id; it waits at ``ask``."""
    made: list[str] = []

    def make(client: httpx.Client) -> str:
        if not made:
            made.append(asyncio.run(_made(client)))
        return made[0]

    async def _made(client: httpx.Client) -> str:
        tag, folder = unique("outputs"), tmp_path_factory.mktemp("worker")
        async with worker_of(nats, folder, tag, all_kinds(), PYOCO_RESULT_KEY=KEY):
            run_id = await asyncio.to_thread(submit, client, "kinds", tag=tag)
            await asyncio.to_thread(waiting, client, run_id)
        return run_id

    return make


@pytest.fixture
def run_id(kinds_of: Callable[[httpx.Client], str], client: httpx.Client) -> str:
    return kinds_of(client)


def output(client: httpx.Client, run_id: str, node: str) -> httpx.Response:
    return client.get(f"/runs/{run_id}/nodes/{node}/output")


def _stored_name(client: httpx.Client, run_id: str, node: str) -> str:
    state = client.get(f"/runs/{run_id}/state").json()
    name: str = state["nodes"][node]["output"]["stored"]["name"]
    return name


# --- What is given out -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("node", ["small", "large"])
def test_json_is_given_out_as_it_is_however_large(client: httpx.Client, run_id: str, node: str) -> None:
    answer = output(client, run_id, node)
    assert answer.status_code == 200
    assert (answer.headers["content-type"], answer.headers[OUTPUT_KIND]) == ("application/json", "json")
    assert answer.json() == {"small": {"a": [1, None]}, "large": LARGE}[node]
    assert int(answer.headers["content-length"]) == len(answer.content)
    assert "content-disposition" not in answer.headers


def test_tagged_json_says_that_it_is(client: httpx.Client, run_id: str) -> None:
    answer = output(client, run_id, "tagged")
    assert (answer.headers["content-type"], answer.headers[OUTPUT_KIND]) == ("application/json", "tagged")
    assert answer.json()[1] == {"$decimal": "0.125"}
    assert len(answer.content) > 64 * 1024


def test_a_pickle_is_a_download_and_is_not_loaded(
    client: httpx.Client, run_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[object] = []
    monkeypatch.setattr(pickle, "loads", loaded.append)
    monkeypatch.setattr(pickle, "load", loaded.append)
    answer = output(client, run_id, "pickled")
    assert (answer.headers["content-type"], answer.headers[OUTPUT_KIND]) == ("application/octet-stream", "pickle")
    assert answer.headers["content-disposition"] == 'attachment; filename="pickled.pickle"'
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.content.startswith(b"\x80\x05")
    assert loaded == []


def test_nodes_of_loops_have_outputs_too(nats: NatsServer, tmp_path: Path, client: httpx.Client) -> None:
    calls = Calls()
    flow = Flow("loops")
    flow >> calls.task("each", lambda ctx: ctx.get_var("item") * "x")["$ctx.params.items as item"]

    async def scenario() -> str:
        tag = unique("outputs")
        async with worker_of(nats, tmp_path, tag, flow):
            run_id = await asyncio.to_thread(submit, client, "loops", tag=tag, params={"items": [10, 20]})
            assert (await asyncio.to_thread(ended, client, run_id))["status"] == "COMPLETED"
        return run_id

    run_id = asyncio.run(scenario())
    nodes = client.get(f"/runs/{run_id}/state").json()["nodes"]
    rounds = sorted(node for node in nodes if node.endswith("/each"))
    assert len(rounds) == 2
    assert all("[" in node for node in rounds)
    with Client(str(client.base_url)) as library:
        assert [library.output(run_id, node).value() for node in rounds] == ["x" * 10, "x" * 20]


# --- What is not -----------------------------------------------------------------------------------------------------


def test_the_output_of_an_unknown_node_is_not_found(client: httpx.Client, run_id: str) -> None:
    for node in ("nothing", "large/output", "x%2Fy[3]"):
        error = check_error(output(client, run_id, node), 404, "ERR-PYOCO-0104")
        assert error["details"]["node_id"]


def test_a_node_that_has_not_succeeded_has_no_output(client: httpx.Client, run_id: str) -> None:
    for node, status in {"ask": "WAITING", "boom": "IDLE"}.items():
        error = check_error(output(client, run_id, node), 409, "ERR-PYOCO-0108")
        assert error["details"] == {"node_id": node, "status": status}
    failed = submit(client, "boom", params={"name": "x"})
    ended(client, failed)
    error = check_error(output(client, failed, "fails"), 409, "ERR-PYOCO-0108")
    assert error["details"] == {"node_id": "fails", "status": "FAILED"}


def test_a_control_node_has_no_output(client: httpx.Client, run_id: str) -> None:
    nodes = client.get(f"/runs/{run_id}/state").json()["nodes"]
    start = next(node_id for node_id, node in nodes.items() if node["nodeType"] == "Start")
    error = check_error(output(client, run_id, start), 409, "ERR-PYOCO-0108")
    assert error["details"] == {"node_id": start, "status": "SUCCEEDED"}


def test_a_lost_output_says_why_and_what_to_do(client: httpx.Client, run_id: str) -> None:
    error = check_error(output(client, run_id, "lost"), 410, "ERR-PYOCO-0109")
    assert error["details"]["output_kind"] == "lost"
    assert error["details"]["reason"].startswith("it cannot be stored: TypeError: cannot pickle")
    assert "PYOCO_RESULT_KEY" in error["action"]
    assert "run_id" not in error["details"]


def test_another_run_cannot_name_the_place_of_an_output(client: httpx.Client, run_id: str) -> None:
    graph_id, name = unique("graph"), _stored_name(client, run_id, "large")
    nodes = [
        {"nodeId": node, "nodeType": kind} for node, kind in (("start", "Start"), ("work", "Task"), ("end", "Success"))
    ]
    edges = [{"from": "start", "to": "work"}, {"from": "work", "to": "end"}]
    assert client.put(f"/graphs/{graph_id}", json={"nodes": nodes, "edges": edges}).status_code == 201
    made = client.post("/executions", json={"graphId": graph_id}).json()["executionId"]
    client.post(f"/executions/{made}/start", json={}).raise_for_status()
    client.post(f"/executions/{made}/nodes/work/start", json={"workerId": "w"}).raise_for_status()
    forged = {"stored": {"name": name, "sha256": "0" * 64, "bytes": 1}}
    refused = client.post(f"/executions/{made}/nodes/work/succeed", json={"output": forged})
    check_error(refused, 422, "ERR-PYOCO-0002")
    client.post(f"/executions/{made}/nodes/work/succeed", json={"output": {"rows": 3}}).raise_for_status()
    error = check_error(output(client, made, "work"), 410, "ERR-PYOCO-0109")
    assert error["details"]["reason"] == "its output was recorded without a 'value'"


async def _in_bucket(nats: NatsServer, name: str, change: Callable[[ObjectBucket, Any], Awaitable[None]]) -> None:
    connection = await connect(nats.url, name="vandal")
    try:
        bucket = ObjectBucket(connection, Names().outputs_bucket, replicated=False)
        info = (await bucket.look(name)).kept
        assert info is not None
        await change(bucket, info)
    finally:
        await connection.close()


async def _remove_chunks(bucket: ObjectBucket, info: Any) -> None:
    await bucket.drop_chunks(info.nuid)


async def _remove(bucket: ObjectBucket, info: Any) -> None:
    await bucket.drop_info(info.name)


async def _replace(bucket: ObjectBucket, info: Any) -> None:
    other = iter([b"x" * info.size, b""])

    async def read(_: int) -> bytes:
        piece: bytes = next(other)
        return piece

    await bucket.put_info(await bucket.put_chunks(info.name, read), after=(await bucket.look(info.name)).sequence)


@pytest.mark.parametrize("damage", [_remove_chunks, _remove, _replace])
def test_a_damaged_object_is_an_error_and_never_half_an_answer(
    nats: NatsServer, tmp_path: Path, client: httpx.Client, damage: Callable[[ObjectBucket, Any], Awaitable[None]]
) -> None:
    flow = Flow("large") >> Calls().task("large", LARGE)

    async def scenario() -> str:
        tag = unique("outputs")
        async with worker_of(nats, tmp_path, tag, flow):
            run_id = await asyncio.to_thread(submit, client, "large", tag=tag)
            await asyncio.to_thread(ended, client, run_id)
        name = await asyncio.to_thread(_stored_name, client, run_id, "large")
        await _in_bucket(nats, name, damage)
        return run_id

    run_id = asyncio.run(scenario())
    error = check_error(output(client, run_id, "large"), 410, "ERR-PYOCO-0109")
    assert error["details"]["reason"].endswith("is missing or damaged")
    target = tmp_path / "large.json"
    with Client(str(client.base_url)) as library, pytest.raises(ApiError) as refused:
        library.save_output(run_id, "large", target)
    assert (refused.value.status, refused.value.err_id) == (410, "ERR-PYOCO-0109")
    assert not [*tmp_path.glob("large.json*")]


# --- The client library and the command line -------------------------------------------------------------------------


def test_both_clients_read_values_and_files(client: httpx.Client, run_id: str, tmp_path: Path) -> None:
    target = tmp_path / "out.bin"
    target.write_bytes(b"old")
    with Client(str(client.base_url)) as library:
        assert library.output(run_id, "small").value() == {"a": [1, None]}
        assert library.output(run_id, "tagged").value() == DECIMALS
        with pytest.raises(InvalidInputError, match="never loads"):
            library.output(run_id, "pickled").value()
        saved = library.save_output(run_id, "large", target)
        assert (saved.kind, saved.size, saved.file) == ("json", target.stat().st_size, target)
        assert json.loads(target.read_bytes()) == LARGE
        pickled = library.save_output(run_id, "pickled", target)
        assert (pickled.kind, target.read_bytes()) == ("pickle", library.output(run_id, "pickled").content)
    assert [*tmp_path.iterdir()] == [target]

    async def asynchronously() -> None:
        async with AsyncClient(str(client.base_url)) as library:
            assert (await library.output(run_id, "large")).value() == LARGE
            assert (await library.save_output(run_id, "large", target)).size == len(LARGE) + 2
            with pytest.raises(ApiError) as refused:
                await library.output(run_id, "ask")
            assert refused.value.status == 409

    asyncio.run(asynchronously())
    assert json.loads(target.read_bytes()) == LARGE


def test_a_file_that_cannot_be_written_is_an_error(client: httpx.Client, run_id: str, tmp_path: Path) -> None:
    with Client(str(client.base_url)) as library, pytest.raises(FileNotFoundError):
        library.save_output(run_id, "large", tmp_path / "nowhere" / "out.json")


def test_the_command_line_prints_and_saves(client: httpx.Client, run_id: str, tmp_path: Path) -> None:
    server = ["--server", str(client.base_url)]
    target = tmp_path / "out.json"
    printed = call(tmp_path, *server, "output", run_id, "small")
    assert json.loads(printed.stdout) == {
        "run_id": run_id,
        "node_id": "small",
        "output_kind": "json",
        "value": {"a": [1, None]},
    }
    assert json.loads(call(tmp_path, *server, "output", run_id, "tagged", "--output", "value").stdout)[1] == {
        "$decimal": "0.125"
    }
    saved = call(tmp_path, *server, "output", run_id, "large", "--file", str(target), "--output", "json")
    assert json.loads(saved.stdout)["bytes"] == target.stat().st_size == len(LARGE) + 2
    assert json.loads(target.read_bytes()) == LARGE
    refused = call(tmp_path, *server, "output", run_id, "pickled")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "pass --file PATH" in refused.stderr
    lost = call(tmp_path, *server, "output", run_id, "lost")
    assert lost.returncode == 1
    assert "ERR-PYOCO-0109" in lost.stderr
    unwritable = call(tmp_path, *server, "output", run_id, "large", "--file", str(tmp_path / "nowhere" / "x"))
    assert unwritable.returncode == 1
    assert "No such file or directory" in unwritable.stderr
    assert [path for path in tmp_path.iterdir() if not path.is_dir()] == [target]


def test_a_reader_that_leaves_is_no_error(client: httpx.Client, run_id: str) -> None:
    with client.stream("GET", f"/runs/{run_id}/nodes/large/output") as answer, contextlib.suppress(StopIteration):
        next(answer.iter_raw(1))
    assert output(client, run_id, "large").status_code == 200
