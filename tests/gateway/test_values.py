"""Results, parameters and answers keep their type over HTTP, NATS and several workers."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from threading import Lock
from typing import Any

import httpx
import pytest
from pyoco import Flow  # type: ignore[import-untyped]  # pyoco ships no type information
from pyoco.core.models import Task  # type: ignore[import-untyped]
from pyoco.dsl.syntax import TaskWrapper  # type: ignore[import-untyped]

from pyoco_server import options, wait
from pyoco_server.client import Client
from tests.adapters.real_nats import NatsServer
from tests.app.runtime.flows import Calls
from tests.gateway.stand import a_worker, check_error, ended, settings_for, submit, unique, waiting
from tests.values.samples import EXAMPLES, same

KEY = "k" * 32
LOCK = Lock()


@contextlib.asynccontextmanager
async def worker_of(nats: NatsServer, folder: Path, tag: str, flow: Flow, **variables: str) -> AsyncIterator[None]:
    """One worker, which knows one flow."""
    settings = settings_for(nats.url, folder, **variables)
    async with a_worker(settings, tag, flows={flow.name: flow}.__getitem__):
        yield


def charged(calls: Calls, value: Any, use: Callable[..., Any], **fields: Any) -> Flow:
    """``charge``, which costs money, then a wait, then ``ship``."""
    charge = options(calls.task("charge", lambda _: value), **fields)
    return Flow("charged") >> charge >> wait("ok") >> calls.task("ship", use)


async def handed_over(
    nats: NatsServer, folder: Path, client: httpx.Client, make: Callable[[Calls], Flow], answer: Any = None, **keys: str
) -> tuple[dict[str, Any], list[str], list[str]]:
    """How a run ends whose wait is resumed when another worker is there; and what each of the two called."""
    tag, first, second = unique("values"), Calls(), Calls()
    async with worker_of(nats, folder, tag, make(first), **keys):
        run_id = await asyncio.to_thread(submit, client, "charged", tag=tag)
        await asyncio.to_thread(waiting, client, run_id)
    async with worker_of(nats, folder, tag, make(second), **keys):
        with Client(str(client.base_url)) as library:
            await asyncio.to_thread(library.resume, run_id, "ok", answer)
        return await asyncio.to_thread(ended, client, run_id), first.names, second.names


def test_a_charge_is_made_once_whatever_it_returns(nats: NatsServer, tmp_path: Path, client: httpx.Client) -> None:
    receipt = {"examples": EXAMPLES, 1: ("eur", Decimal("9.90"))}
    answer = {"at": datetime(2026, 1, 1, tzinfo=UTC), "by": ("ann", {1})}

    def use(ctx: Any) -> list[bool]:
        return [same(ctx.results["charge"], receipt), same(ctx.results["ok"], answer)]

    end, first, second = asyncio.run(
        handed_over(nats, tmp_path, client, lambda calls: charged(calls, receipt, use), answer, PYOCO_RESULT_KEY=KEY)
    )
    assert (end["status"], first, second) == ("COMPLETED", ["charge"], ["ship"])
    records = end["task_records"]
    assert records["ship"]["output"] == [True, True]
    assert (records["charge"]["output_kind"], records["ok"]["output_kind"]) == ("pickle", "tagged")
    shown = client.get(f"/runs/{end['run_id']}/tasks").json()["task_records"]
    assert shown["charge"]["output_kind"] == "pickle"
    assert shown["charge"]["output_repr"].startswith("{'examples': [(1, (2,)), {1, 2}")


def test_a_lost_result_fails_the_task_that_needs_it(nats: NatsServer, tmp_path: Path, client: httpx.Client) -> None:
    make = lambda calls: charged(calls, LOCK, lambda ctx: ctx.results["charge"])  # noqa: E731 short
    end, first, second = asyncio.run(handed_over(nats, tmp_path, client, make, PYOCO_RESULT_KEY=KEY))
    assert (end["status"], first, second) == ("FAILED", ["charge"], ["ship"])
    error = end["task_records"]["ship"]["error"]
    assert error["code"] == "RESULT_LOST"
    assert error["message"].startswith(
        "the result of task 'charge' is lost: it cannot be stored: TypeError: cannot pickle"
    )
    assert end["task_records"]["charge"]["output_kind"] == "lost"


def test_a_repeatable_task_is_called_again_as_an_attempt(
    nats: NatsServer, tmp_path: Path, client: httpx.Client
) -> None:
    def make(calls: Calls) -> Flow:
        return charged(calls, LOCK, lambda ctx: ctx.results["charge"] is LOCK, recompute=True)

    end, first, second = asyncio.run(handed_over(nats, tmp_path, client, make, PYOCO_RESULT_KEY=KEY))
    assert (end["status"], first, second) == ("COMPLETED", ["charge"], ["charge", "ship"])
    events = client.get(f"/runs/{end['run_id']}/events").json()["events"]
    of_charge = [
        (event["type"], event["payload"]["attempt"])
        for event in events
        if event["payload"].get("nodeId") == "charge" and "attempt" in event["payload"]
    ]
    assert of_charge == [("NODE_STARTED", 1), ("NODE_SUCCEEDED", 1), ("NODE_STARTED", 2), ("NODE_SUCCEEDED", 2)]


def test_a_worker_without_a_key_says_so_and_stores_no_pickle(
    nats: NatsServer, tmp_path: Path, client: httpx.Client, caplog: pytest.LogCaptureFixture
) -> None:
    make = lambda calls: charged(calls, EXAMPLES, lambda ctx: ctx.results["charge"])  # noqa: E731 short
    end, _, _ = asyncio.run(handed_over(nats, tmp_path, client, make))
    assert (
        "a worker without PYOCO_RESULT_KEY neither stores nor loads" in end["task_records"]["ship"]["error"]["message"]
    )
    assert [record.__dict__.get("action") for record in caplog.records].count("result_key_missing") == 2


def test_parameters_of_the_client_keep_their_type(nats: NatsServer, tmp_path: Path, client: httpx.Client) -> None:
    given = {"when": datetime(2026, 1, 1, tzinfo=UTC), "sizes": (1, {2}), "$ref": "#/mine"}
    seen: list[Any] = []
    take = TaskWrapper(Task(func=lambda ctx: seen.append(dict(ctx.params)), name="take"))
    tag = unique("values")

    async def submitted() -> dict[str, Any]:
        async with worker_of(nats, tmp_path, tag, Flow("takes") >> take):
            with Client(str(client.base_url)) as library:
                run_id = await asyncio.to_thread(library.submit, "takes", given, tag=tag)
            return await asyncio.to_thread(ended, client, run_id)

    end = asyncio.run(submitted())
    assert same(seen, [given])
    assert (end["params_kind"], end["params"]["sizes"]) == ("tagged", {"$tuple": [1, {"$set": [2]}]})


def test_plain_json_that_looks_like_a_tag_is_plain(client: httpx.Client) -> None:
    run_id = submit(client, "ask", params={"x": {"$tuple": [1]}})
    assert "params_kind" not in waiting(client, run_id)
    client.post(f"/runs/{run_id}/nodes/ask/resume", json={"input": {"$ref": 1}}).raise_for_status()
    assert ended(client, run_id)["task_records"]["take"]["output"] == {"$ref": 1}


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"params": {"x": {"$evil": 1}}, "params_kind": "tagged"}, "params.x: '$evil' is not a tag"),
        ({"params": {"x": {"$enum": ["a:b", "C"]}}, "params_kind": "tagged"}, "params.x: '$enum' names a class"),
        ({"params": {"$dict": [[1, 2]]}, "params_kind": "tagged"}, "params: an object was expected"),
        ({"params": {}, "params_kind": "pickle"}, "params_kind"),
        (
            {"params": {"x": {"$decimal": "1E999999999"}}, "params_kind": "tagged"},
            "params.x: '$decimal' cannot be read",
        ),
        ({"params": {"x": {"$range": [0, 10**20, 1]}}, "params_kind": "tagged"}, "params.x: '$range' cannot be read"),
    ],
)
def test_a_submission_with_what_a_worker_would_load_is_refused(
    client: httpx.Client, fields: dict[str, Any], problem: str
) -> None:
    answer = client.post("/runs", json={"flow_name": "hello", **fields})
    check_error(answer, 422, "ERR-PYOCO-0002")
    assert problem in answer.text


def test_an_answer_with_what_a_worker_would_load_is_refused(client: httpx.Client) -> None:
    run_id = submit(client, "ask")
    waiting(client, run_id)
    route = f"/runs/{run_id}/nodes/ask/resume"
    for body, problem in (
        ({"input": {"$dataclass": ["a:b", {}]}, "input_kind": "tagged"}, "input: '$dataclass' names a class"),
        ({"input": 1, "input_kind": "pickle"}, "input_kind"),
    ):
        answer = client.post(route, json=body)
        check_error(answer, 422, "ERR-PYOCO-0002")
        assert problem in answer.text
    node = f"/executions/{run_id}/nodes/ask"
    forged = {"output_kind": "pickle", "stored": {"name": f"{run_id}/1", "sha256": "0", "hmac": "0"}}
    check_error(client.post(f"{node}/succeed", json={"output": forged}), 422, "ERR-PYOCO-0002")
    check_error(
        client.post(f"{node}/progress", json={"metrics": {"decision": {"key": "over", "value": []}}}),
        422,
        "ERR-PYOCO-0002",
    )
    client.post(route, json={"input": {"$tuple": [1]}, "input_kind": "tagged"}).raise_for_status()
    take = ended(client, run_id)["task_records"]["take"]
    assert (take["output"], take["output_kind"]) == ({"$tuple": [1]}, "tagged")
