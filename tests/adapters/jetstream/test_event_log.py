"""What only the log on JetStream has: size limits, messages of other programs in the stream, reads from the leader."""

import json

import pytest

from pyoco_server.adapters.jetstream.durability.connection import Connection
from pyoco_server.adapters.jetstream.primitives.names import EXPECTED_SEQUENCE, Names
from pyoco_server.adapters.jetstream.primitives.stream_reader import StreamReader
from pyoco_server.adapters.jetstream.stores.event_log import (
    COMMIT_ID,
    EVENT_COUNT,
    BrokenLogError,
    JetStreamEventLog,
)
from pyoco_server.app.ports import LogConflictError, TooLargeError
from pyoco_server.core import encode_event, event_to_dict
from pyoco_server.errors import InvalidInputError
from tests.adapters.conftest import JetStream
from tests.adapters.events import note

BAD_IDS = ["", "a.b", "*", ">", "a b", "r\r\n", "実行", "x" * 129]


@pytest.mark.parametrize("run_id", BAD_IDS)
def test_run_id_that_is_no_token_is_refused(jetstream: JetStream, run_id: str) -> None:
    async def body(connection: Connection, names: Names) -> None:
        log = JetStreamEventLog(connection, names)
        for attempt in (
            log.append(run_id, [note("1")], after=0),
            log.append(run_id, [], after=0),
            log.read(run_id),
            log.subscribe(run_id, lambda _position: None),
        ):
            with pytest.raises(InvalidInputError, match=r"run_id: .* cannot be used"):
                await attempt
        assert (await connection.js.stream_info(names.events_stream)).state.messages == 0

    jetstream.run(body)


def test_commit_is_stored_as_one_json_message(jetstream: JetStream) -> None:
    async def body(connection: Connection, names: Names) -> None:
        log = JetStreamEventLog(connection, names)
        first = await log.append("r", [note("1"), note("実行")], after=0)
        second = await log.append("r", [note("2")], after=first)
        stored = await connection.js.get_msg(names.events_stream, first)
        assert json.loads(stored.data or b"") == [event_to_dict(note("1")), event_to_dict(note("実行"))]
        assert stored.headers is not None
        assert (stored.headers[EVENT_COUNT], stored.headers[EXPECTED_SEQUENCE]) == ("2", "0")
        following = await connection.js.get_msg(names.events_stream, second)
        assert following.headers is not None
        assert following.headers[EXPECTED_SEQUENCE] == str(first)
        assert following.headers[COMMIT_ID] != stored.headers[COMMIT_ID]

    jetstream.run(body)


def test_commit_of_the_maximum_size_is_stored_and_a_larger_one_refused(jetstream: JetStream) -> None:
    async def body(connection: Connection, names: Names) -> None:
        log = JetStreamEventLog(connection, names)
        with pytest.raises(TooLargeError, match=r"'r' has \d+ bytes, the server accepts 1048576: keep large values"):
            await log.append("r", [note("x" * 1_048_576)], after=0)
        with pytest.raises(TooLargeError) as caught:
            await log.append("r", [note("x" * 1_048_577)], after=0)
        size = int(str(caught.value).partition(" has ")[2].partition(" ")[0])
        fitting = note("x" * (1_048_577 - (size - connection.max_payload)))
        with pytest.raises(TooLargeError):
            await log.append("r", [note("x" * (1_048_578 - (size - connection.max_payload)))], after=0)
        end = await log.append("r", [fitting], after=0)
        assert await log.read("r") == ([fitting], end)
        assert connection.nc.stats["reconnects"] == 0

    jetstream.run(body)


def test_commit_larger_than_the_limit_of_the_stream_is_refused(jetstream: JetStream) -> None:
    async def body(connection: Connection, names: Names) -> None:
        log = JetStreamEventLog(connection, names)
        config = (await connection.js.stream_info(names.events_stream)).config
        await connection.js.update_stream(config.evolve(max_msg_size=1000))
        with pytest.raises(TooLargeError, match="max_msg_size of the stream"):
            await log.append("r", [note("x" * 2000)], after=0)
        assert await log.read("r") == ([], 0)

    jetstream.run(body)


async def three_commits(log: JetStreamEventLog) -> list[int]:
    ends = [0]
    for number in range(3):
        ends.append(await log.append("r", [note(str(number))], after=ends[-1]))
    return ends[1:]


@pytest.mark.parametrize("removed", [0, 1])
def test_read_of_a_log_with_a_gap_fails(jetstream: JetStream, removed: int) -> None:
    async def body(connection: Connection, names: Names) -> None:
        log = JetStreamEventLog(connection, names)
        ends = await three_commits(log)
        await connection.js.delete_msg(names.events_stream, ends[removed])
        with pytest.raises(BrokenLogError, match=f"position {ends[removed + 1]} follows {ends[removed]}"):
            await log.read("r")
        assert await log.read("r", after=ends[removed]) == ([note(str(n)) for n in range(removed + 1, 3)], ends[2])

    jetstream.run(body)


def test_read_of_a_log_that_lost_its_end_fails(jetstream: JetStream) -> None:
    async def body(connection: Connection, names: Names) -> None:
        log = JetStreamEventLog(connection, names)
        ends = await three_commits(log)
        await connection.js.delete_msg(names.events_stream, ends[2])
        with pytest.raises(BrokenLogError, match=f"read up to {ends[2]} before, and ends at {ends[1]} now"):
            await log.read("r", after=ends[2])
        await connection.js.purge_stream(names.events_stream, subject=names.events_subject("r"))
        with pytest.raises(BrokenLogError, match="ends at 0 now"):
            await log.read("r", after=ends[2])

    jetstream.run(body)


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (b"not json", {EXPECTED_SEQUENCE: "0", EVENT_COUNT: "1"}),
        (b"{}", {EXPECTED_SEQUENCE: "0", EVENT_COUNT: "1"}),
        (b"[{}]", {EXPECTED_SEQUENCE: "0", EVENT_COUNT: "1"}),
        (b"[]", {EXPECTED_SEQUENCE: "0", EVENT_COUNT: "1"}),
        (b"[%b]" % encode_event(note("foreign")), {EXPECTED_SEQUENCE: "0", EVENT_COUNT: "2"}),
        (b"[%b]" % encode_event(note("foreign")), {}),
    ],
)
def test_read_of_a_log_with_a_foreign_message_fails(jetstream: JetStream, body: bytes, headers: dict[str, str]) -> None:
    async def check(connection: Connection, names: Names) -> None:
        await connection.js.publish(names.events_subject("r"), body, headers=headers)
        with pytest.raises(BrokenLogError, match="the log of 'r' is damaged: position 1"):
            await JetStreamEventLog(connection, names).read("r")

    jetstream.run(check)


def test_reads_from_the_leader_return_the_same(jetstream: JetStream) -> None:
    """A single server is its own leader; only the kind of request differs."""

    async def body(connection: Connection, names: Names) -> None:
        log = JetStreamEventLog(connection, names, leader_reads=True)
        assert await log.read("r") == ([], 0)
        ends = await three_commits(log)
        assert await log.read("r") == ([note("0"), note("1"), note("2")], ends[2])
        assert await log.read("r", after=ends[1]) == ([note("2")], ends[2])
        assert await log.read("r", after=ends[2]) == ([], ends[2])
        with pytest.raises(LogConflictError):
            await log.append("r", [note("late")], after=ends[0])
        with pytest.raises(BrokenLogError):
            await log.read("r", after=ends[2] + 1)

    jetstream.run(body)


@pytest.mark.parametrize("leader", [False, True])
def test_reader_finds_first_and_last_message_of_a_subject(jetstream: JetStream, leader: bool) -> None:
    async def body(connection: Connection, names: Names) -> None:
        log, reader = JetStreamEventLog(connection, names), StreamReader(connection, names.events_stream, leader=leader)
        subject = names.events_subject("r")
        assert await reader.last(subject) is None
        assert await reader.first(subject, start=0) is None
        ends = await three_commits(log)
        for found, position in ((await reader.last(subject), ends[2]), (await reader.first(subject, start=2), ends[1])):
            assert found is not None
            assert found.sequence == position
            assert found.headers[EVENT_COUNT] == "1"
            assert json.loads(found.data)[0]["payload"]["message"] == str(position - 1)
        assert await reader.first(subject, start=ends[2] + 1) is None

    jetstream.run(body)


def test_page_ends_at_its_limit_of_messages_or_bytes(jetstream: JetStream) -> None:
    async def body(connection: Connection, names: Names) -> None:
        ends = await three_commits(JetStreamEventLog(connection, names))
        reader, subject = StreamReader(connection, names.events_stream), names.events_subject("r")
        two = await reader.page(subject, start=0, most=2)
        assert ([message.sequence for message in two.messages], two.left) == (ends[:2], 1)
        small = await reader.page(subject, start=0, most_bytes=1)
        assert ([message.sequence for message in small.messages], small.left) == (ends[:1], 2)
        rest = await reader.page(subject, start=ends[1] + 1)
        assert ([message.sequence for message in rest.messages], rest.left) == (ends[2:], 0)
        assert await reader.page(subject, start=ends[2] + 1) == ([], 0)
        assert not reader._pages

    jetstream.run(body)
