"""A network error leaves the outcome of a commit in doubt: the log finds out, and writes nothing twice."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from pyoco_server.adapters.jetstream.durability.connection import Connection, connect
from pyoco_server.adapters.jetstream.primitives.names import Names
from pyoco_server.adapters.jetstream.primitives.stream_reader import StoredMessage, StreamReader
from pyoco_server.adapters.jetstream.stores.event_log import COMMIT_ID, JetStreamEventLog
from pyoco_server.app.ports import LogConflictError, UnavailableError
from tests.adapters.conftest import JetStream
from tests.adapters.events import note
from tests.adapters.proxy import Proxy, proxy_to
from tests.waiting import wait_until

SHORT_SEC = 0.2


class Stage:
    """A log behind a bad network, and the same log over a good one, to see what was stored."""

    def __init__(self, proxy: Proxy, log: JetStreamEventLog, good: JetStreamEventLog, reader: StreamReader) -> None:
        self.proxy = proxy
        self.log = log
        self.good = good
        self.reader = reader

    async def stored_ends(self) -> list[int]:
        """Return a list that receives each new end of the log of 'r' in the store, from now on."""
        ends: list[int] = []
        await self.good.subscribe_all(lambda run_id, position: ends.append(position) if run_id == "r" else None)
        await self.good.read("r")  # an answer after the subscription proves that the server has it
        return ends

    async def commit_ids(self, subject: str) -> list[str]:
        return [m.headers[COMMIT_ID] for m in (await self.reader.page(subject, start=1)).messages]


@contextlib.asynccontextmanager
async def staged(jetstream: JetStream, connection: Connection, *, patience_sec: float = 10.0) -> AsyncIterator[Stage]:
    names = jetstream.names
    async with proxy_to(jetstream.server.port) as proxy:
        bad = await connect(proxy.url, name="behind a bad network", request_timeout_sec=SHORT_SEC)
        async with bad:
            yield Stage(
                proxy,
                JetStreamEventLog(bad, names, patience_sec=patience_sec),
                JetStreamEventLog(connection, names),
                StreamReader(connection, names.events_stream),
            )


@pytest.mark.parametrize("cut", [False, True], ids=["answers again", "is cut"])
def test_append_with_a_lost_answer_finds_its_commit(jetstream: JetStream, cut: bool) -> None:
    async def body(connection: Connection, names: Names) -> None:
        async with staged(jetstream, connection) as stage:
            first = await stage.log.append("r", [note("1")], after=0)
            ends = await stage.stored_ends()
            stage.proxy.swallows_answers = True
            appending = asyncio.create_task(stage.log.append("r", [note("2")], after=first))
            await wait_until(lambda: ends)
            [link] = stage.proxy.links
            sent = link.sent
            await wait_until(lambda: link.sent > sent)  # the append has timed out, and reads its outcome
            assert not appending.done()
            if cut:
                link.client.close()
            stage.proxy.swallows_answers = False
            second = await appending
            assert await stage.good.read("r") == ([note("1"), note("2")], second)
            third = await stage.log.append("r", [note("3")], after=second)
            assert await stage.good.read("r", after=second) == ([note("3")], third)
            assert len(set(await stage.commit_ids(names.events_subject("r")))) == 3

    jetstream.run(body)


def test_append_without_answers_reports_an_unknown_outcome(jetstream: JetStream) -> None:
    async def body(connection: Connection, _names: Names) -> None:
        async with staged(jetstream, connection, patience_sec=0.5) as stage:
            await stage.log.append("other", [note("warm")], after=0)
            stage.proxy.swallows_answers = True
            started = asyncio.get_running_loop().time()
            with pytest.raises(UnavailableError, match="it is unknown whether a commit to 'r' was written"):
                await stage.log.append("r", [note("1")], after=0)
            assert asyncio.get_running_loop().time() - started < 30
            assert (await stage.good.read("r"))[0] == [note("1")]

    jetstream.run(body)


def test_delayed_commit_loses_to_the_first_stored_one(jetstream: JetStream) -> None:
    async def body(connection: Connection, _names: Names) -> None:
        async with staged(jetstream, connection) as stage:
            first = await stage.log.append("r", [note("1")], after=0)
            [link] = stage.proxy.links
            link.hold()
            delayed = asyncio.create_task(stage.log.append("r", [note("slow")], after=first))
            await wait_until(lambda: link.held)
            second = await stage.good.append("r", [note("quick")], after=first)
            await wait_until(lambda: len(link.held or ()) > 1)  # the append has timed out, and reads its outcome
            link.release()
            with pytest.raises(LogConflictError):
                await delayed
            assert await stage.good.read("r") == ([note("1"), note("quick")], second)

    jetstream.run(body)


async def _delayed_append(stage: Stage, first: int) -> "asyncio.Task[int]":
    """Start an append whose bytes are held back while the client reconnects."""
    [link] = stage.proxy.links
    link.hold()
    appending = asyncio.create_task(stage.log.append("r", [note("2")], after=first))
    await wait_until(lambda: link.held)
    link.client.close()
    return appending


def test_delayed_copy_of_a_repeated_commit_changes_nothing(jetstream: JetStream) -> None:
    async def body(connection: Connection, names: Names) -> None:
        async with staged(jetstream, connection) as stage:
            first = await stage.log.append("r", [note("1")], after=0)
            second = await (await _delayed_append(stage, first))
            stage.proxy.links[0].release()
            third = await stage.log.append("r", [note("3")], after=second)
            assert await stage.good.read("r") == ([note("1"), note("2"), note("3")], third)
            assert len(set(await stage.commit_ids(names.events_subject("r")))) == 3

    jetstream.run(body)


def test_delayed_copy_that_arrives_before_the_repeated_commit_is_no_conflict(jetstream: JetStream) -> None:
    async def body(connection: Connection, names: Names) -> None:
        async with staged(jetstream, connection) as stage:
            first = await stage.log.append("r", [note("1")], after=0)
            ends, real_first = await stage.stored_ends(), stage.log._reader.first

            async def first_then_delayed_copy_arrives(subject: str, *, start: int) -> StoredMessage | None:
                found = await real_first(subject, start=start)
                if found is None:
                    stage.proxy.links[0].release()
                    await wait_until(lambda: ends)
                return found

            stage.log._reader.first = first_then_delayed_copy_arrives  # type: ignore[method-assign]
            second = await (await _delayed_append(stage, first))
            assert await stage.good.read("r") == ([note("1"), note("2")], second)
            assert len(await stage.commit_ids(names.events_subject("r"))) == 2

    jetstream.run(body)


def test_repeated_commit_with_a_lost_answer_is_found(jetstream: JetStream) -> None:
    async def body(connection: Connection, names: Names) -> None:
        async with staged(jetstream, connection) as stage:
            first = await stage.log.append("r", [note("1")], after=0)
            ends, real_first = await stage.stored_ends(), stage.log._reader.first

            async def first_then_answers_are_lost(subject: str, *, start: int) -> StoredMessage | None:
                found = await real_first(subject, start=start)
                stage.proxy.swallows_answers = found is None
                return found

            stage.log._reader.first = first_then_answers_are_lost  # type: ignore[method-assign]
            appending = await _delayed_append(stage, first)
            await wait_until(lambda: ends)
            stage.proxy.links[-1].client.close()
            stage.proxy.swallows_answers = False
            second = await appending
            assert await stage.good.read("r") == ([note("1"), note("2")], second)
            assert len(await stage.commit_ids(names.events_subject("r"))) == 2

    jetstream.run(body)


def test_read_of_a_page_without_its_end_is_unavailable(jetstream: JetStream) -> None:
    async def body(connection: Connection, _names: Names) -> None:
        async with staged(jetstream, connection) as stage:
            end = await stage.log.append("r", [note("1")], after=0)
            await stage.log.read("r")
            stage.proxy.swallows_answers = True
            with pytest.raises(UnavailableError):
                await stage.log.read("r")
            stage.proxy.swallows_answers = False
            assert await stage.log.read("r") == ([note("1")], end)

    jetstream.run(body)
