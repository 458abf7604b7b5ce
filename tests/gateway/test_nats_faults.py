"""Errors of NATS at every write of every route: an answer with an ERR id, and no run that was not accepted.

``make test`` takes every error where runs are submitted, and a sample of them elsewhere. ``make faults`` takes every
error of the library and every JetStream code at every write of every route.
"""

import asyncio
import contextlib
import itertools
import os
import re
from collections.abc import Awaitable, Callable, Collection, Iterator
from typing import Final

import httpx
import nats.errors
import nats.js.errors
import pytest

from pyoco_server.app.ports import RunQuery, UnavailableError
from pyoco_server.app.snapshots.status import was_retracted
from pyoco_server.core import fold
from pyoco_server.gateway.services import Services
from pyoco_server.gateway.timeouts import LONGEST_SEC
from tests.adapters.nats_faults import (
    CODES,
    Fault,
    FaultPlan,
    FaultyClient,
    answers,
    is_write,
    library_errors,
    named,
    only,
)
from tests.adapters.real_nats import NatsServer
from tests.gateway.stand import Stand, eventually, settings_for
from tests.gateway.writing_routes import OTHERS, SUBMISSIONS, Client, Prepare, answered

IS_FULL: Final = os.environ.get("PYOCO_ALL_FAULTS") == "1"
"""Whether every test takes every fault."""

DECISIVE: Final = {10054, 10071, 10077, 10047}
"""The codes that the product decides by; a sample holds these and a few of the others."""
ALL: Final[list[Fault]] = [*library_errors(), *answers()]
_SOME: Final[list[Fault]] = [
    *library_errors(),
    *answers([code for code in CODES if code[1] in DECISIVE or code[1] % 40 == 0 or code[1] > 19_000]),
]
_FEW: Final[list[Fault]] = [
    TimeoutError(),
    ConnectionResetError(),
    nats.errors.NoRespondersError(),
    nats.errors.MaxPayloadError(),
    nats.js.errors.NoStreamResponseError(),
    *answers([(400, 10054), (400, 10071), (500, 10047), (503, 10077), (503, 10008), (404, 10059), (400, 19_999)]),
]
"""One for each way to translate an error: for slow routes, and for those that share all their code with another."""
SOME: Final = ALL if IS_FULL else _SOME
FEW: Final = ALL if IS_FULL else _FEW

_ERR_ID: Final = re.compile(r"ERR-PYOCO-\d{4}")


class Bench:
    """A gateway without workers; the writes of a request fail as its plan says. Requests use the ASGI interface."""

    def __init__(self, stand: Stand) -> None:
        self.stand = stand
        self.faulty = FaultyClient(stand.services.store, affects=is_write)  # type: ignore[arg-type]  # it is a connection

    def run(self, body: Callable[[Client], Awaitable[None]]) -> None:
        async def with_client(_given: Services) -> None:
            transport = httpx.ASGITransport(self.stand.app, raise_app_exceptions=False)
            headers = {"Accept-Language": "en"}
            async with Client(transport=transport, base_url="http://gateway", headers=headers) as client:
                await body(client)

        self.stand.call(with_client, timeout_sec=3_000 if IS_FULL else 500)

    async def send(self, client: Client, request: httpx.Request, plan: FaultPlan) -> httpx.Response:
        """Send a request whose writes follow the plan; the writes of other requests and of sweeps do not."""
        with self.faulty.within(plan):
            return await client.send(request)

    async def written(self, client: Client, prepare: Prepare) -> FaultPlan:
        """Send a request of which nothing fails; the plan has its writes."""
        found: list[FaultPlan] = []

        async def is_accepted() -> bool:
            found.append(FaultPlan())
            answer = await self.send(client, await prepare(client), found[-1])
            assert answer.status_code < 300 or ran_out_of_time(answer), answer.text
            return answer.status_code < 300

        await eventually(is_accepted)
        return found[-1]

    async def purge_wheels(self) -> None:
        """Remove all wheels with their history, which every request of a wheel reads."""
        js = self.stand.services.store.js  # type: ignore[attr-defined]  # it is a connection
        for stream in ("OBJ_pyoco_wheels", "KV_pyoco_wheel_history"):
            await js.purge_stream(stream)


def runs_of(plan: FaultPlan) -> set[str]:
    """The runs that a request wrote about."""
    streams = ("pyoco.events.", "$KV.pyoco_runs.")
    return {subject.rpartition(".")[2] for subject in plan.subjects if subject.startswith(streams)}


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with (
        NatsServer(tmp_path_factory.mktemp("nats")) as server,
        Stand(settings_for(server.url, tmp_path_factory.mktemp("data")), workers=0) as stand,
    ):
        yield Bench(stand)


async def exists(given: Services, run_id: str) -> bool:
    """Does a client see the run, by its log or by its snapshot?"""
    found: list[bool] = []

    async def is_read() -> bool:
        with contextlib.suppress(UnavailableError):  # a loaded machine: NATS did not answer in time
            events, _ = await given.log.read(run_id)
            is_open = bool(events) and not was_retracted(fold(events))
            found.append(is_open or await given.snapshots.read(run_id) is not None)
        return bool(found)

    await eventually(is_read)
    return found[-1]


async def until_none_exists(given: Services, run_ids: Collection[str]) -> None:
    """Return when no run exists. A request that ran out of time retracts its run after the answer."""

    async def none_exists() -> bool:
        return not [run_id for run_id in run_ids if await exists(given, run_id)]

    await eventually(none_exists)


def ran_out_of_time(answer: httpx.Response) -> bool:
    """Did the gateway give up after its time limit? A loaded machine can cause that without any fault."""
    return answer.status_code == 503 and f"within {LONGEST_SEC:g} s" in answer.json()["detail"]


async def listed(given: Services) -> set[str]:
    await given.index_updater.catch_up()
    found, query = set[str](), RunQuery(limit=10_000)
    found |= {str(run.summary["run_id"]) for run in await given.index.page(query)}
    return found


def check_answer(answer: httpx.Response, fault: Fault) -> None:
    """Every answer that is an error has an id; none is a crash."""
    if answer.status_code < 300:
        return
    error = answer.json()["error"]
    assert _ERR_ID.fullmatch(error["err_id"])
    assert (answer.status_code, error["err_id"]) in {
        (503, "ERR-PYOCO-0003"),
        (413, "ERR-PYOCO-0101"),
        (409, "ERR-PYOCO-0105"),
    }, f"{named(fault)}: {answer.text}"
    assert "nats." not in answer.text


# --- Submissions -----------------------------------------------------------------------------------------------------


@pytest.mark.spec("004 REQ-0003", "004 ERR-PYOCO-0003")
@pytest.mark.parametrize("name", SUBMISSIONS)
def test_a_submission_that_is_not_accepted_leaves_no_run(bench: Bench, name: str) -> None:
    prepare, given = SUBMISSIONS[name], bench.stand.services

    async def body(client: Client) -> None:
        accepted, begun, refused = set[str](), set[str](), 0
        flawless = await bench.written(client, prepare)
        accepted |= runs_of(flawless)
        begun |= accepted
        for number, fault in itertools.product(range(len(flawless.subjects)), ALL):
            plan = FaultPlan(fault, only(number))
            answer = await bench.send(client, await prepare(client), plan)
            check_answer(answer, fault)
            run_ids = runs_of(plan)
            begun |= run_ids
            if answer.status_code < 300:
                accepted |= run_ids
                assert [await exists(given, run_id) for run_id in run_ids] == [True]
            else:
                refused += 1
                assert plan.hits or ran_out_of_time(answer), answer.text
                await until_none_exists(given, run_ids)
        assert refused > len(ALL) / 2

        found = set[str]()

        async def all_are_listed() -> bool:  # a snapshot that was not written is written by the sweep
            found.clear()
            found.update(await listed(given) & begun)  # a sweep may also list runs that other tests left
            return found == accepted

        try:
            await eventually(all_are_listed)
        finally:
            assert (found - accepted, accepted - found) == (set(), set())

    bench.run(body)


PLACES: Final = {"the log": "pyoco.events.", "the snapshots": "$KV.pyoco_runs.", "the queue": "pyoco.work."}
_LASTING: Final[list[Fault]] = [*answers([(400, 10054), (500, 10047), (503, 10077), (503, 10008), (400, 10109)])]
LASTING: Final = ALL if IS_FULL else _LASTING
AT_ONCE: Final = 16
"""A request whose writes are never answered takes its whole time limit, so several are sent at once."""


@pytest.mark.parametrize("name", SUBMISSIONS)
@pytest.mark.parametrize("place", PLACES)
def test_a_place_that_refuses_every_write_leaves_no_run(bench: Bench, place: str, name: str) -> None:
    """What cannot be retracted at once is retracted as soon as the place takes writes again."""
    prepare, prefix, given = SUBMISSIONS[name], PLACES[place], bench.stand.services

    async def body(client: Client) -> None:
        begun, accepted, plans = set[str](), set[str](), list[FaultPlan]()
        gate = asyncio.Semaphore(AT_ONCE)

        async def send(fault: Fault) -> None:
            async with gate:
                plan = FaultPlan(fault, lambda _number, subject: subject.startswith(prefix))
                plans.append(plan)
                answer = await bench.send(client, await prepare(client), plan)
            check_answer(answer, fault)
            if answer.status_code >= 300:
                assert plan.hits or ran_out_of_time(answer), answer.text
                begun.update(runs_of(plan))
            else:
                accepted.update(runs_of(plan))

        await asyncio.gather(*(send(fault) for fault in LASTING))
        for plan in plans:
            plan.end()
        await until_none_exists(given, begun)
        assert not begun & await listed(given)

        async def all_are_listed() -> bool:
            return accepted <= await listed(given)

        await eventually(all_are_listed)

    bench.run(body)


def test_each_run_of_a_batch_is_accepted_or_leaves_nothing(bench: Bench) -> None:
    given = bench.stand.services

    async def body(client: Client) -> None:
        async def prepare(client: Client) -> httpx.Request:
            return client.build_request("POST", "/runs/batch", json={"runs": [{"flow_name": "f"}, {"flow_name": "g"}]})

        flawless = await bench.written(client, prepare)
        for number, fault in itertools.product(range(len(flawless.subjects)), SOME):
            plan = FaultPlan(fault, only(number))
            answer = await bench.send(client, await prepare(client), plan)
            if ran_out_of_time(answer):
                await until_none_exists(given, runs_of(plan))
                continue
            assert answer.status_code == 200, answer.text
            results = answer.json()["results"]
            accepted = {result["run_id"] for result in results if result["run_id"] is not None}
            assert all(_ERR_ID.fullmatch(end["error"]["err_id"]) for end in results if end["run_id"] is None)
            assert {run_id for run_id in runs_of(plan) if await exists(given, run_id)} == accepted

    bench.run(body)


def test_a_job_that_is_larger_than_the_stream_takes_is_refused_with_the_limit(bench: Bench) -> None:
    """As an operator who has limited the stream of jobs sees it; nothing fails but the write itself."""
    given = bench.stand.services

    async def body(client: Client) -> None:
        js = given.store.js  # type: ignore[attr-defined]  # it is a connection
        config = (await js.stream_info("PYOCO_WORK")).config
        await js.update_stream(config.evolve(max_msg_size=1_000))
        before = await listed(given)
        try:
            for headers in ({}, {"Idempotency-Key": "large"}):
                fields = {"flow_name": "f", "params": {"text": "x" * 2_000}}
                request = client.build_request("POST", "/runs", json=fields, headers=headers)
                answer = (await answered(client, request))[-1]
                assert answer.status_code == 413, answer.text
                assert answer.json()["error"]["err_id"] == "ERR-PYOCO-0101"
                for word in ("PYOCO_WORK", "max_msg_size is 1000", "params"):
                    assert word in answer.json()["detail"]
        finally:
            await js.update_stream(config.evolve(max_msg_size=-1))
        assert await listed(given) == before

    bench.run(body)


# --- Everything else that writes -------------------------------------------------------------------------------------


def _sample_for(name: str) -> list[Fault]:
    is_like_another = "/nodes/" in name and not name.endswith(("resume", "succeed"))
    return FEW if "/wheels" in name or is_like_another else SOME


@pytest.mark.parametrize("name", OTHERS)
def test_no_error_of_nats_is_the_answer(bench: Bench, name: str) -> None:
    """And what was answered with an error can be sent again: it is done, or it was done the first time."""
    prepare = OTHERS[name]

    async def body(client: Client) -> None:
        hits, refused = 0, 0
        flawless = await bench.written(client, prepare)
        for number, fault in itertools.product(range(len(flawless.subjects)), _sample_for(name)):
            if "/wheels" in name:
                await bench.purge_wheels()
            request, plan = await prepare(client), FaultPlan(fault, only(number))
            answer = await bench.send(client, request, plan)
            hits += plan.hits
            check_answer(answer, fault)
            if answer.status_code < 300:
                continue
            refused += 1
            repeated = await answered(client, request)
            was_done = (number > 0 or len(repeated) > 1) and repeated[-1].status_code in {404, 409}
            assert repeated[-1].status_code < 300 or was_done, f"{named(fault)} at {number}: {repeated[-1].text}"
        assert hits
        assert refused or name == "POST /runs/cancel"  # which answers for each run

    bench.run(body)


def test_every_route_that_writes_is_tested(bench: Bench) -> None:
    async def body(client: Client) -> None:
        paths = (await client.get("/openapi.json")).json()["paths"]
        routes = {f"{method.upper()} {path}" for path, found in paths.items() for method in found if method != "get"}
        for_each = {"POST /runs/batch", "POST /runs/redrive"}  # of many, as for one
        assert routes <= {*OTHERS, *SUBMISSIONS, *for_each, "PATCH /workers/{worker_id}"}

    bench.run(body)


def test_a_worker_is_hidden_or_an_error_is_answered(bench: Bench) -> None:
    async def body(client: Client) -> None:
        record = {"worker_id": "w", "state": "IDLE", "hidden": False, "last_seen_at": 0.0, "tags": []}
        await bench.stand.services.workers.update("w", lambda _known: record)
        for fault in SOME:
            request = client.build_request("PATCH", "/workers/w", json={"hidden": True})
            check_answer(await bench.send(client, request, FaultPlan(fault, only(0))), fault)
            await bench.stand.services.workers.update("w", lambda _known: record)

    bench.run(body)
