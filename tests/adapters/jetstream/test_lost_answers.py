"""An error of the network is an unknown outcome: what was written is found, and nothing is written twice."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from pyoco_server.adapters.jetstream.connection import Connection, connect
from pyoco_server.adapters.jetstream.event_log import COMMIT_ID, JetStreamEventLog
from pyoco_server.adapters.jetstream.names import Names
from pyoco_server.adapters.jetstream.stream_reader import StoredMessage, StreamReader
from pyoco_server.app.ports import LogConflictError, UnavailableError
from tests.adapters.conftest import JetStream
from tests.adapters.events import note
from tests.adapters.proxy import Proxy, proxy_to
from tests.waiting import wait_until

SHORT_SEC = 0.2


class Stage:
    """A log behind a bad network, and another one with a good one, to see what is really there."""

    def __init__(self, proxy: Proxy, log: JetStreamEventLog, good: JetStreamEventLog, reader: StreamReader) -> None:
        self.proxy = proxy
        self.log = log
        self.good = good
        self.reader = reader

    async def told(self) -> list[int]:
        """Where the log of 'r' really ends, from now on."""
        told: list[int] = []
        await self.good.subscribe_all(lambda run_id, position: told.append(position) if run_id == "r" else None)
        await self.good.read("r")  # what the server answers after a subscription, it answers with it in mind
        return told

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


@pytest.mark.parametrize("cut", [False, True], ids=["comes back", "is cut"])
def test_a_commit_whose_answer_was_lost_is_recognised(jetstream: JetStream, cut: bool) -> None:
    async def body(connection: Connection, names: Names) -> None:
        async with staged(jetstream, connection) as stage:
            first = await stage.log.append("r", [note("1")], after=0)
            told = await stage.told()
            stage.proxy.swallows_answers = True
            appending = asyncio.create_task(stage.log.append("r", [note("2")], after=first))
            await wait_until(lambda: told)
            [link] = stage.proxy.links
            sent = link.sent
            await wait_until(lambda: link.sent > sent)  # it has given up waiting, and asks what became of it
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


def test_nobody_knows_when_answers_stay_away(jetstream: JetStream) -> None:
    async def body(connection: Connection, _names: Names) -> None:
        async with staged(jetstream, connection, patience_sec=0.5) as stage:
            await stage.log.append("other", [note("warm")], after=0)
            stage.proxy.swallows_answers = True
            started = asyncio.get_running_loop().time()
            with pytest.raises(UnavailableError, match="nobody knows whether a commit to 'r' was written"):
                await stage.log.append("r", [note("1")], after=0)
            assert asyncio.get_running_loop().time() - started < 2.0
            assert (await stage.good.read("r"))[0] == [note("1")]

    jetstream.run(body)


def test_a_delayed_commit_loses_to_the_one_that_came_first(jetstream: JetStream) -> None:
    async def body(connection: Connection, _names: Names) -> None:
        async with staged(jetstream, connection) as stage:
            first = await stage.log.append("r", [note("1")], after=0)
            [link] = stage.proxy.links
            link.hold()
            delayed = asyncio.create_task(stage.log.append("r", [note("slow")], after=first))
            await wait_until(lambda: link.held)
            second = await stage.good.append("r", [note("quick")], after=first)
            await wait_until(lambda: len(link.held or ()) > 1)  # it has given up waiting for an answer
            link.release()
            with pytest.raises(LogConflictError):
                await delayed
            assert await stage.good.read("r") == ([note("1"), note("quick")], second)

    jetstream.run(body)


async def _ghost(stage: Stage, first: int) -> "asyncio.Task[int]":
    """An append whose bytes are still on their way when the client has found another way."""
    [link] = stage.proxy.links
    link.hold()
    appending = asyncio.create_task(stage.log.append("r", [note("2")], after=first))
    await wait_until(lambda: link.held)
    link.client.close()
    return appending


def test_a_ghost_of_a_commit_that_was_sent_again_changes_nothing(jetstream: JetStream) -> None:
    async def body(connection: Connection, names: Names) -> None:
        async with staged(jetstream, connection) as stage:
            first = await stage.log.append("r", [note("1")], after=0)
            second = await (await _ghost(stage, first))
            stage.proxy.links[0].release()
            third = await stage.log.append("r", [note("3")], after=second)
            assert await stage.good.read("r") == ([note("1"), note("2"), note("3")], third)
            assert len(set(await stage.commit_ids(names.events_subject("r")))) == 3

    jetstream.run(body)


def test_a_ghost_that_is_quicker_than_the_second_try_is_no_conflict(jetstream: JetStream) -> None:
    async def body(connection: Connection, names: Names) -> None:
        async with staged(jetstream, connection) as stage:
            first = await stage.log.append("r", [note("1")], after=0)
            told, really_first = await stage.told(), stage.log._reader.first

            async def and_then_the_ghost_arrives(subject: str, *, start: int) -> StoredMessage | None:
                found = await really_first(subject, start=start)
                if found is None:
                    stage.proxy.links[0].release()
                    await wait_until(lambda: told)
                return found

            stage.log._reader.first = and_then_the_ghost_arrives  # type: ignore[method-assign]
            second = await (await _ghost(stage, first))
            assert await stage.good.read("r") == ([note("1"), note("2")], second)
            assert len(await stage.commit_ids(names.events_subject("r"))) == 2

    jetstream.run(body)


def test_a_second_try_whose_answer_was_lost_is_recognised_too(jetstream: JetStream) -> None:
    async def body(connection: Connection, names: Names) -> None:
        async with staged(jetstream, connection) as stage:
            first = await stage.log.append("r", [note("1")], after=0)
            told, really_first = await stage.told(), stage.log._reader.first

            async def and_then_no_answer_comes(subject: str, *, start: int) -> StoredMessage | None:
                found = await really_first(subject, start=start)
                stage.proxy.swallows_answers = found is None
                return found

            stage.log._reader.first = and_then_no_answer_comes  # type: ignore[method-assign]
            appending = await _ghost(stage, first)
            await wait_until(lambda: told)
            stage.proxy.links[-1].client.close()
            stage.proxy.swallows_answers = False
            second = await appending
            assert await stage.good.read("r") == ([note("1"), note("2")], second)
            assert len(await stage.commit_ids(names.events_subject("r"))) == 2

    jetstream.run(body)


def test_a_page_whose_end_is_lost_is_not_taken_for_the_whole(jetstream: JetStream) -> None:
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
