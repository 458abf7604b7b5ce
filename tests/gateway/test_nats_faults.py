"""Errors of NATS at every write of every route: an answer with an ERR id, and no run that was not accepted.

``make test`` takes every error where runs are submitted, and a sample of them elsewhere. ``make faults`` takes every
error of the library and every JetStream code at every write of every route.
"""

import contextvars
import itertools
import os
import re
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final

import httpx
import nats.errors
import nats.js.errors
import pytest

from pyoco_server.app.ports import RunQuery
from pyoco_server.app.retracting import was_taken_back
from pyoco_server.core import fold
from pyoco_server.gateway.services import Services
from tests.adapters.nats_faults import CODES, Fault, FaultyClient, answers, is_write, library_errors, named, only
from tests.adapters.nats_server import NatsServer
from tests.gateway.stand import Stand, eventually, settings_for
from tests.gateway.writing_routes import OTHERS, SUBMISSIONS, Client, Prepare

IS_FULL: Final = os.environ.get("PYOCO_ALL_FAULTS") == "1"
"""Whether every test takes every fault."""

TELLING: Final = {10054, 10071, 10077, 10047}
"""The codes that the product decides by; a sample holds these and a few of the others."""
ALL: Final[list[Fault]] = [*library_errors(), *answers()]
_SOME: Final[list[Fault]] = [
    *library_errors(),
    *answers([code for code in CODES if code[1] in TELLING or code[1] % 40 == 0 or code[1] > 19_000]),
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

_in_request: contextvars.ContextVar[bool] = contextvars.ContextVar("in a request under test", default=False)
_ERR_ID: Final = re.compile(r"ERR-PYOCO-\d{4}")


class Bench:
    """A gateway without workers, whose writes fail as a test says; requests come in by its ASGI interface."""

    def __init__(self, stand: Stand) -> None:
        self.stand = stand
        self.faulty = FaultyClient(
            stand.services.store,  # type: ignore[arg-type]  # it is a connection
            affects=lambda subject: _in_request.get() and is_write(subject),
        )

    def run(self, body: Callable[[Client], Awaitable[None]]) -> None:
        async def with_client(_given: Services) -> None:
            transport = httpx.ASGITransport(self.stand.app, raise_app_exceptions=False)
            headers = {"Accept-Language": "en"}
            async with Client(transport=transport, base_url="http://gateway", headers=headers) as client:
                await body(client)

        self.stand.call(with_client, timeout_sec=3_000 if IS_FULL else 500)

    async def send(self, client: Client, request: httpx.Request, *fault: Any) -> httpx.Response:
        """Send a request whose writes fail, and nobody else's."""
        self.faulty.begin(*fault)
        token = _in_request.set(True)
        try:
            return await client.send(request)
        finally:
            _in_request.reset(token)

    async def writes_of(self, client: Client, prepare: Prepare) -> int:
        """How many writes a request makes when nothing fails."""
        answer = await self.send(client, await prepare(client))
        assert answer.status_code < 300, answer.text
        return len(self.faulty.subjects)

    def runs_begun(self) -> set[str]:
        """The runs the last request wrote about."""
        streams = ("pyoco.events.", "$KV.pyoco_runs.")
        return {subject.rpartition(".")[2] for subject in self.faulty.subjects if subject.startswith(streams)}


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    server = NatsServer(tmp_path_factory.mktemp("nats"))
    server.start()
    with Stand(settings_for(server.url, tmp_path_factory.mktemp("data")), workers=0) as stand:
        yield Bench(stand)
    server.kill()


async def there_is(given: Services, run_id: str) -> bool:
    """Is there a run, for anybody who looks?"""
    events, _ = await given.log.read(run_id)
    is_open = bool(events) and not was_taken_back(fold(events))
    return is_open or await given.snapshots.read(run_id) is not None


async def listed(given: Services) -> set[str]:
    await given.keeper.catch_up()
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
        before, accepted, refused = await listed(given), set[str](), 0
        writes = await bench.writes_of(client, prepare)
        accepted |= bench.runs_begun()
        for number, fault in itertools.product(range(writes), ALL):
            answer = await bench.send(client, await prepare(client), fault, only(number))
            check_answer(answer, fault)
            run_ids = bench.runs_begun()
            if answer.status_code < 300:
                accepted |= run_ids
                assert [await there_is(given, run_id) for run_id in run_ids] == [True]
            else:
                refused += 1
                assert not [run_id for run_id in run_ids if await there_is(given, run_id)], named(fault)
        assert refused > len(ALL) / 2

        async def all_are_listed() -> bool:  # a snapshot that was not written is written by the sweep
            return await listed(given) - before == accepted

        await eventually(all_are_listed)

    bench.run(body)


PLACES: Final = {"the log": "pyoco.events.", "the snapshots": "$KV.pyoco_runs.", "the queue": "pyoco.work."}
_LASTING: Final[list[Fault]] = [*answers([(400, 10054), (500, 10047), (503, 10077), (503, 10008), (400, 10109)])]
LASTING: Final = ALL if IS_FULL else _LASTING


@pytest.mark.parametrize("name", SUBMISSIONS)
@pytest.mark.parametrize("place", PLACES)
def test_a_place_that_refuses_every_write_leaves_no_run(bench: Bench, place: str, name: str) -> None:
    """What cannot be retracted at once is retracted as soon as the place takes writes again."""
    prepare, prefix, given = SUBMISSIONS[name], PLACES[place], bench.stand.services

    async def body(client: Client) -> None:
        begun = set[str]()
        for fault in LASTING:
            request = await prepare(client)
            answer = await bench.send(client, request, fault, lambda _number, subject: subject.startswith(prefix))
            check_answer(answer, fault)
            if answer.status_code >= 300:
                assert bench.faulty.hits
                begun |= bench.runs_begun()
        bench.faulty.begin()

        async def none_is_left() -> bool:
            return not [run_id for run_id in begun if await there_is(given, run_id)]

        await eventually(none_is_left)
        assert not begun & await listed(given)

    bench.run(body)


def test_each_run_of_a_batch_is_accepted_or_leaves_nothing(bench: Bench) -> None:
    given = bench.stand.services

    async def body(client: Client) -> None:
        async def prepare(client: Client) -> httpx.Request:
            return client.build_request("POST", "/runs/batch", json={"runs": [{"flow_name": "f"}, {"flow_name": "g"}]})

        for number, fault in itertools.product(range(await bench.writes_of(client, prepare)), SOME):
            answer = await bench.send(client, await prepare(client), fault, only(number))
            assert answer.status_code == 200
            results = answer.json()["results"]
            accepted = {result["run_id"] for result in results if result["run_id"] is not None}
            assert all(_ERR_ID.fullmatch(end["error"]["err_id"]) for end in results if end["run_id"] is None)
            assert {run_id for run_id in bench.runs_begun() if await there_is(given, run_id)} == accepted

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
                answer = await client.post("/runs", json=fields, headers=headers)
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


async def _repeated(client: Client, request: httpx.Request) -> list[httpx.Response]:
    """Send a request until NATS answers in time, which a loaded machine may prevent; returns all answers."""
    found: list[httpx.Response] = []

    async def is_answered() -> bool:
        found.append(await client.send(request))
        return found[-1].status_code != 503

    await eventually(is_answered)
    return found


@pytest.mark.parametrize("name", OTHERS)
def test_no_error_of_nats_is_the_answer(bench: Bench, name: str) -> None:
    """And what was answered with an error can be sent again: it is done, or it was done the first time."""
    prepare = OTHERS[name]

    async def body(client: Client) -> None:
        hits, refused = 0, 0
        for number, fault in itertools.product(range(await bench.writes_of(client, prepare)), _sample_for(name)):
            request = await prepare(client)
            answer = await bench.send(client, request, fault, only(number))
            hits += bench.faulty.hits
            check_answer(answer, fault)
            if answer.status_code < 300:
                continue
            refused += 1
            repeated = await _repeated(client, request)
            was_done = (number > 0 or len(repeated) > 1) and repeated[-1].status_code in {404, 409}
            assert repeated[-1].status_code < 300 or was_done, f"{named(fault)} at {number}: {repeated[-1].text}"
        assert hits
        assert refused or name == "POST /runs/cancel"  # which answers for each run

    bench.run(body)


def test_every_route_that_writes_is_tested(bench: Bench) -> None:
    async def body(client: Client) -> None:
        paths = (await client.get("/openapi.json")).json()["paths"]
        routes = {f"{method.upper()} {path}" for path, found in paths.items() for method in found if method != "get"}
        assert routes <= {*OTHERS, *SUBMISSIONS, "POST /runs/batch", "PATCH /workers/{worker_id}"}

    bench.run(body)


def test_a_worker_is_hidden_or_an_error_is_answered(bench: Bench) -> None:
    async def body(client: Client) -> None:
        record = {"worker_id": "w", "state": "IDLE", "hidden": False, "last_seen_at": 0.0, "tags": []}
        await bench.stand.services.workers.update("w", lambda _known: record)
        for fault in SOME:
            request = client.build_request("PATCH", "/workers/w", json={"hidden": True})
            check_answer(await bench.send(client, request, fault, only(0)), fault)
            await bench.stand.services.workers.update("w", lambda _known: record)

    bench.run(body)
