"""No error of NATS leaves the adapters: each is translated to one of ours, by what it proves."""

import asyncio
import contextlib
import io
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from typing import Any, Final

import nats.errors
import nats.js.errors
import pytest

from pyoco_server.adapters.jetstream.durability.connection import Connection
from pyoco_server.adapters.jetstream.primitives.names import Names
from pyoco_server.adapters.jetstream.primitives.provisioning import provision, set_replicas
from pyoco_server.adapters.jetstream.stores.dead_letters import JetStreamDeadLetters
from pyoco_server.adapters.jetstream.stores.event_log import JetStreamEventLog
from pyoco_server.adapters.jetstream.stores.exhausted_jobs import JetStreamExhaustedJobs
from pyoco_server.adapters.jetstream.stores.graphs import JetStreamGraphRegistry
from pyoco_server.adapters.jetstream.stores.in_flight_jobs import JetStreamInFlightJobs
from pyoco_server.adapters.jetstream.stores.keys import JetStreamKeyStore
from pyoco_server.adapters.jetstream.stores.listing import JetStreamListing
from pyoco_server.adapters.jetstream.stores.outputs import JetStreamOutputStore
from pyoco_server.adapters.jetstream.stores.snapshot_feed import JetStreamSnapshotFeed
from pyoco_server.adapters.jetstream.stores.snapshots import JetStreamSnapshots
from pyoco_server.adapters.jetstream.stores.wheels import JetStreamWheelHistory, JetStreamWheelRegistry
from pyoco_server.adapters.jetstream.stores.work_queue import JetStreamWorkQueue
from pyoco_server.adapters.jetstream.stores.workers import JetStreamWorkerRegistry
from pyoco_server.adapters.jetstream.transport.error_translation import (
    ChangedError,
    FullError,
    MissingError,
    RefusedError,
    RejectedError,
    translated,
    translation_of,
)
from pyoco_server.app.ports import NotStoredError, TooLargeError, UnavailableError
from pyoco_server.app.ports.keys import StoredKey
from pyoco_server.app.ports.wheels import NewWheel, WheelEvent
from pyoco_server.app.ports.work_queue import InFlightJob
from pyoco_server.errors import PyocoServerError
from tests.adapters.conftest import JetStream
from tests.adapters.events import note
from tests.adapters.nats_faults import CODES, Fault, FaultyClient, answers, library_errors, named, only

DISTINGUISHED: Final = {10002, 10014, 10037, 10043, 10047, 10054, 10057, 10059, 10071, 10077, 10164}
"""The error numbers that the translation distinguishes; of the others, a few stand for all of their status."""
SOME: Final = [code for code in CODES if code[1] in DISTINGUISHED or code[1] % 40 == 0 or code[1] > 19_000]
FAULTS: Final[list[Fault]] = [*library_errors(), *answers(SOME)]


def raised(fault: Fault) -> None:
    """Raise the fault as the library does."""
    if isinstance(fault, dict):
        nats.js.errors.APIError.from_error(fault)
    else:
        raise fault


@pytest.mark.parametrize("fault", [*library_errors(), *answers()], ids=named)
def test_every_error_is_translated_to_one_of_ours(fault: Fault) -> None:
    with pytest.raises(PyocoServerError) as caught, translated():
        raised(fault)
    assert isinstance(caught.value, (UnavailableError, TooLargeError))
    assert isinstance(caught.value.__cause__, Exception)
    if isinstance(fault, dict):
        assert str(fault["err_code"]) in str(caught.value)
        assert fault["description"] in str(caught.value)


@pytest.mark.parametrize(
    ("code", "err_code", "description", "kind"),
    [
        (400, 10071, "wrong last sequence: 7", ChangedError),
        (400, 10164, "wrong last sequence", ChangedError),
        (400, 10054, "message size exceeds maximum allowed", TooLargeError),
        (404, 10059, "stream not found", MissingError),
        (404, 0, "message not found", MissingError),
        (500, 10047, "insufficient storage resources available", FullError),
        (503, 10077, "maximum bytes exceeded", FullError),
        (503, 10077, "maximum messages per subject exceeded", FullError),
        (503, 10077, "input/output error", RefusedError),
        (503, 10008, "JetStream system temporarily unavailable", RefusedError),
        (400, 10109, "invalid operation on sealed stream", RejectedError),
        (400, 19_999, "of a later release", RejectedError),
    ],
)
def test_error_answer_has_the_translation_that_it_proves(
    code: int, err_code: int, description: str, kind: type[Exception]
) -> None:
    error = nats.js.errors.APIError(code, description, err_code)
    assert type(translation_of(error)) is kind
    proves_it = {ChangedError, MissingError, FullError, RejectedError}
    assert isinstance(translation_of(error), NotStoredError) == (kind in proves_it)


@pytest.mark.parametrize(
    ("error", "is_known"),
    [
        (nats.errors.NoRespondersError(), True),
        (nats.js.errors.NoStreamResponseError(), True),
        (nats.js.errors.ServiceUnavailableError(), True),
        (nats.errors.OutboundBufferLimitError(), True),
        (nats.errors.ConnectionClosedError(), True),
        (nats.errors.ConnectionDrainingError(), True),
        (nats.errors.BadSubjectError(), True),
        (nats.errors.TimeoutError(), False),
        (nats.errors.StaleConnectionError(), False),
        (nats.errors.UnexpectedEOF(), False),
        (ConnectionResetError(), False),
    ],
    ids=lambda given: type(given).__name__,
)
def test_network_error_is_not_stored_only_if_that_is_known(error: Exception, is_known: bool) -> None:
    with pytest.raises(UnavailableError, match=r"NATS did not answer: \S") as caught, translated():
        raise error
    assert isinstance(caught.value, NotStoredError) == is_known
    assert caught.value.__cause__ is error


@pytest.mark.parametrize("error", [ValueError("ours"), asyncio.CancelledError(), UnavailableError("known")])
def test_other_errors_are_not_translated(error: BaseException) -> None:
    with pytest.raises(type(error)) as caught, translated():
        raise error
    assert caught.value is error


# --- Every method of every port --------------------------------------------------------------------------------------

EVENT: Final = WheelEvent(event_id="e", occurred_at=1.0, action="upload", wheel_name="a-1-py3-none-any.whl")
KEY: Final = StoredKey(api_key_id="k", tenant_id="t", scopes=(), hmac="0", created_at=1.0)
Call = Callable[[Connection, Names], Awaitable[object]]


async def _every(pages: AsyncIterator[Any]) -> None:
    async for _ in pages:
        pass


async def _add_wheel(connection: Connection, names: Names) -> None:
    rest = io.BytesIO(b"data")

    async def read(size: int) -> bytes:
        return rest.read(size)

    sha256_hex = "3a6eb0790f39ac87c94f3856b2dd2c5d110e6811602261a9a923d3bb23adc8b7"
    wheel = NewWheel(name=EVENT.wheel_name, sha256_hex=sha256_hex, tags=(), requires_python="", event=EVENT)
    await JetStreamWheelRegistry(connection, names).add(wheel, read, lambda _wheels: None)


def _log(connection: Connection, names: Names) -> JetStreamEventLog:
    return JetStreamEventLog(connection, names, patience_sec=0.0)


CALLS: Final[dict[str, Call]] = {
    "log.append": lambda c, n: _log(c, n).append("r", [note("1")], after=0),
    "log.read": lambda c, n: _log(c, n).read("r"),
    "log.subscribe": lambda c, n: _log(c, n).subscribe("r", lambda _position: None),
    "log.subscribe_all": lambda c, n: _log(c, n).subscribe_all(lambda _run_id, _position: None),
    "listing.logs": lambda c, n: _every(JetStreamListing(c, n).logs()),
    "listing.jobs": lambda c, n: _every(JetStreamListing(c, n).jobs()),
    "listing.state": lambda c, n: JetStreamListing(c, n).state(),
    "snapshots.write": lambda c, n: JetStreamSnapshots(c, n).write("r", b"{}", position=1),
    "snapshots.read": lambda c, n: JetStreamSnapshots(c, n).read("r"),
    "snapshots.delete": lambda c, n: JetStreamSnapshots(c, n).delete("r"),
    "snapshots.sync": lambda c, n: JetStreamSnapshots(c, n).sync(),
    "feed.read": lambda c, n: JetStreamSnapshotFeed(c, n).read(after=0),
    "feed.state": lambda c, n: JetStreamSnapshotFeed(c, n).state(),
    "queue.publish": lambda c, n: JetStreamWorkQueue(c, n).publish("t", b"{}", dedup_id="1"),
    "queue.prepare": lambda c, n: JetStreamWorkQueue(c, n).prepare("t"),
    "queue.pull": lambda c, n: JetStreamWorkQueue(c, n).pull("t", timeout_sec=0),
    "queue.backlog": lambda c, n: JetStreamWorkQueue(c, n).backlog("t"),
    "queue.rebind": lambda c, n: JetStreamWorkQueue(c, n).rebind("t"),
    "in_flight_jobs.look": lambda c, n: JetStreamInFlightJobs(c, n).look(["t"]),
    "in_flight_jobs.give_back": lambda c, n: JetStreamInFlightJobs(c, n).give_back(InFlightJob(1, "t", b"", _ack(n))),
    "exhausted_jobs.subscribe": lambda c, n: JetStreamExhaustedJobs(c, n).subscribe(lambda _number, _times: None),
    "exhausted_jobs.get": lambda c, n: JetStreamExhaustedJobs(c, n).get(1, 1),
    "exhausted_jobs.look": lambda c, n: JetStreamExhaustedJobs(c, n).look(10),
    "exhausted_jobs.remove": lambda c, n: JetStreamExhaustedJobs(c, n).remove(1),
    "dead_letters.publish": lambda c, n: JetStreamDeadLetters(c, n).publish("t", {}),
    "dead_letters.count": lambda c, n: JetStreamDeadLetters(c, n).count(),
    "dead_letters.newest": lambda c, n: JetStreamDeadLetters(c, n).newest(5),
    "dead_letters.get": lambda c, n: JetStreamDeadLetters(c, n).get(1),
    "graphs.put": lambda c, n: JetStreamGraphRegistry(c, n).put("g", b"{}"),
    "graphs.get": lambda c, n: JetStreamGraphRegistry(c, n).get("g"),
    "outputs.put": lambda c, n: JetStreamOutputStore(c, n).put("o", b"data"),
    "outputs.get": lambda c, n: JetStreamOutputStore(c, n).get("o"),
    "outputs.delete": lambda c, n: JetStreamOutputStore(c, n).delete("o"),
    "workers.update": lambda c, n: JetStreamWorkerRegistry(c, n).update("w", lambda _record: {"worker_id": "w"}),
    "workers.get": lambda c, n: JetStreamWorkerRegistry(c, n).get("w"),
    "workers.all": lambda c, n: JetStreamWorkerRegistry(c, n).all(),
    "keys.add": lambda c, n: JetStreamKeyStore(c, n).add(KEY),
    "keys.update": lambda c, n: JetStreamKeyStore(c, n).update("k", lambda key: key),
    "keys.read": lambda c, n: JetStreamKeyStore(c, n).read(),
    "wheels.all": lambda c, n: JetStreamWheelRegistry(c, n).all(),
    "wheels.find": lambda c, n: JetStreamWheelRegistry(c, n).find(EVENT.wheel_name),
    "wheels.add": _add_wheel,
    "wheels.delete": lambda c, n: JetStreamWheelRegistry(c, n).delete(EVENT.wheel_name, lambda _wheel: EVENT),
    "wheels.events": lambda c, n: JetStreamWheelRegistry(c, n).events(),
    "wheels.tidy": lambda c, n: JetStreamWheelRegistry(c, n).tidy(timedelta(days=1) / timedelta(seconds=1)),
    "history.add": lambda c, n: JetStreamWheelHistory(c, n).add(EVENT),
    "history.all": lambda c, n: JetStreamWheelHistory(c, n).all(),
    "provision": provision,
    "replicas": lambda c, n: set_replicas(c, n, 1),
}


def _ack(names: Names) -> str:
    return f"$JS.ACK.{names.work_stream}.pyoco-t.1.1.1.0.0"


@pytest.mark.parametrize("name", CALLS)
def test_no_port_raises_an_error_of_nats(jetstream: JetStream, name: str) -> None:
    """Every operation of the call fails once, with every error; the call returns or raises an error of ours."""
    call = CALLS[name]

    async def body(connection: Connection, names: Names) -> None:
        faulty = FaultyClient(connection)
        await JetStreamWorkQueue(connection, names).prepare("t")
        faulty.begin()
        with contextlib.suppress(PyocoServerError):
            await call(connection, names)
        refused = 0
        for number in range(max(len(faulty.subjects), 1)):
            for fault in FAULTS:
                faulty.begin(fault, only(number))
                try:
                    await call(connection, names)
                except PyocoServerError:
                    refused += faulty.hits
        assert refused or not faulty.subjects

    jetstream.run(body)
