"""Limits of connections and of the heads of requests, on real sockets."""

import contextlib
import json
import logging
import socket
import subprocess
import sys
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from pyoco_server.gateway.middleware.connections import LARGEST_HEAD, MOST_FIELDS
from pyoco_server.gateway.services import Services
from pyoco_server.logs.line_limit import MOST_LINES
from tests.adapters.real_nats import NatsServer
from tests.gateway.stand import Stand, settings_for, unique
from tests.waiting import wait_until

HEALTH = "GET /health HTTP/1.1\r\nHost: localhost\r\n"
MOST, MOST_PER_ADDRESS = 16, 8


@pytest.fixture(scope="module")
def hasty(nats: NatsServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    """A gateway that waits for a head only briefly."""
    settings = settings_for(nats.url, tmp_path_factory.mktemp("hasty"), PYOCO_HTTP_HEAD_TIMEOUT_SEC="0.3")
    with Stand(settings, workers=0) as made:
        yield made


@pytest.fixture(scope="module")
def narrow(nats: NatsServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    """A gateway that accepts few connections."""
    limits = {"PYOCO_HTTP_MAX_CONNECTIONS": str(MOST), "PYOCO_HTTP_MAX_CONNECTIONS_PER_ADDRESS": str(MOST_PER_ADDRESS)}
    with Stand(settings_for(nats.url, tmp_path_factory.mktemp("narrow"), **limits), workers=0) as made:
        yield made


@contextlib.contextmanager
def connected(stand: Stand, source: str = "127.0.0.1") -> Iterator[socket.socket]:
    at = urlsplit(stand.url)
    with socket.create_connection(("127.0.0.1", at.port or 0), timeout=10, source_address=(source, 0)) as connection:
        yield connection


def rest(connection: socket.socket) -> bytes:
    """Everything until the gateway closes the connection."""
    return b"".join(iter(lambda: connection.recv(65_536), b""))


def refusal(answer: bytes) -> tuple[int, str]:
    """The status and the id of an answer."""
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"connection: close" in head.lower()
    error: dict[str, Any] = json.loads(body)["error"]
    assert set(error) == {"err_id", "msg_id", "message", "action", "details"}
    return int(head.split()[1]), error["err_id"]


def head_of(size: int) -> bytes:
    """A request whose head has this size, as it is counted: a path, and fields with four more bytes each."""
    fixed = len("/health") + len("Host") + len("localhost") + 4 + len("X") + 4
    return f"{HEALTH}X: {'x' * (size - fixed)}\r\n\r\n".encode()


def asked(stand: Stand, request: bytes) -> bytes:
    """Send a whole request; the answer until the gateway closes the connection."""
    with connected(stand) as connection:
        connection.sendall(request)
        return rest(connection)


def test_a_head_may_be_large_but_not_larger_than_the_limit(stand: Stand) -> None:
    with connected(stand) as connection:
        connection.sendall(head_of(LARGEST_HEAD - 1_000))
        assert connection.recv(65_536).startswith(b"HTTP/1.1 200")
    assert refusal(asked(stand, head_of(LARGEST_HEAD + 1))) == (431, "ERR-PYOCO-0132")
    assert refusal(asked(stand, head_of(10 * LARGEST_HEAD))) == (431, "ERR-PYOCO-0132")
    long = f"GET /{'x' * LARGEST_HEAD} HTTP/1.1\r\nHost: localhost\r\n\r\n"
    assert refusal(asked(stand, long.encode())) == (431, "ERR-PYOCO-0132")


def test_a_head_may_have_many_fields_but_not_more_than_the_limit(stand: Stand) -> None:
    def fields(count: int) -> bytes:
        lines = [f"X-{number}: x" for number in range(count - 2)]
        return "\r\n".join([f"{HEALTH}Connection: close", *lines, "", ""]).encode()

    assert asked(stand, fields(MOST_FIELDS)).startswith(b"HTTP/1.1 200")
    assert refusal(asked(stand, fields(MOST_FIELDS + 1))) == (431, "ERR-PYOCO-0132")


@pytest.mark.parametrize("start", [f"{HEALTH}X: ", "GET /", f"{HEALTH}X"])
def test_a_head_without_end_is_ended(stand: Stand, start: str) -> None:
    assert refusal(asked(stand, start.encode() + b"x" * 5_000_000)) == (431, "ERR-PYOCO-0132")


def test_a_second_head_on_a_connection_is_limited(stand: Stand) -> None:
    with connected(stand) as connection:
        connection.sendall(f"{HEALTH}\r\n".encode())
        assert connection.recv(65_536).startswith(b"HTTP/1.1 200")
        connection.sendall(head_of(2 * LARGEST_HEAD))
        assert refusal(rest(connection)) == (431, "ERR-PYOCO-0132")


CHUNKED = (
    "POST /runs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
)


def test_fields_behind_a_body_are_bounded_and_change_nothing(stand: Stand) -> None:
    body = json.dumps({"flow_name": "hello", "tag": unique("trailers")})

    def chunked(*trailers: str) -> bytes:
        request = CHUNKED.replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n")
        return "\r\n".join([f"{request}{len(body):x}", body, "0", *trailers, "", ""]).encode()

    answers = [asked(stand, chunked("Idempotency-Key: same")) for _ in range(2)]
    one, other = (json.loads(answer.partition(b"\r\n\r\n")[2])["run_id"] for answer in answers)
    assert one != other, "a field behind the body was taken for one of the head"
    assert asked(stand, chunked(f"X: {'x' * 400_000}")) == b""


def test_a_request_that_is_none_is_refused_with_an_id(stand: Stand) -> None:
    assert refusal(asked(stand, b"hello\r\n\r\n")) == (400, "ERR-PYOCO-0002")


@pytest.mark.parametrize("begun", ["G", HEALTH, f"{HEALTH}X: x"])
def test_a_head_that_does_not_arrive_is_ended(hasty: Stand, begun: str) -> None:
    with connected(hasty) as connection:
        connection.sendall(begun.encode())
        assert refusal(rest(connection)) == (408, "ERR-PYOCO-0133")
    with connected(hasty) as connection:
        connection.sendall(f"{HEALTH}\r\n".encode())
        assert connection.recv(65_536).startswith(b"HTTP/1.1 200")
        connection.sendall(begun.encode())
        assert refusal(rest(connection)) == (408, "ERR-PYOCO-0133")


@pytest.mark.parametrize("sent", [b"", b"\r\n"])
def test_a_connection_without_a_request_is_closed(hasty: Stand, sent: bytes) -> None:
    with connected(hasty) as connection:
        connection.sendall(sent)
        answer = rest(connection)
        assert (refusal(answer) == (408, "ERR-PYOCO-0133")) if sent else (answer == b"")


def test_the_time_for_the_head_is_not_that_of_the_body(hasty: Stand) -> None:
    body = b'{"flow_name": "hello"}'
    head = "POST /runs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n"
    with connected(hasty) as connection:
        connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode())
        with connected(hasty) as later:
            assert rest(later) == b"", "the time for a head is over"
        connection.sendall(body)
        assert rest(connection).startswith(b"HTTP/1.1 200")


def closed(stand: Stand) -> None:
    async def all_closed(_services: Services) -> None:
        await wait_until(lambda: stand.connections.count == 0)

    stand.call(all_closed)


def open_count(stand: Stand, count: int) -> None:
    """Return when the gateway has accepted so many connections."""

    async def accepted(_services: Services) -> None:
        await wait_until(lambda: stand.connections.count == count)

    stand.call(accepted)


def first_answer(stand: Stand, source: str) -> bytes:
    with connected(stand, source) as connection, contextlib.suppress(ConnectionResetError):
        return connection.recv(65_536)
    return b""


def test_one_address_cannot_take_all_connections(narrow: Stand) -> None:
    closed(narrow)
    with contextlib.ExitStack() as taken:
        for _ in range(MOST_PER_ADDRESS):
            taken.enter_context(connected(narrow))
        open_count(narrow, MOST_PER_ADDRESS)
        assert refusal(first_answer(narrow, "127.0.0.1")) == (429, "ERR-PYOCO-0102")
        with connected(narrow, "127.0.0.2") as other:
            other.sendall(f"{HEALTH}\r\n".encode())
            assert other.recv(65_536).startswith(b"HTTP/1.1 200")
    closed(narrow)
    with narrow.client() as client:
        assert client.get("/health").status_code == 200


def test_there_are_at_most_so_many_connections(narrow: Stand) -> None:
    closed(narrow)
    with contextlib.ExitStack() as taken:
        for number in range(MOST):
            taken.enter_context(connected(narrow, f"127.0.0.{2 + number // 8}"))
        open_count(narrow, MOST)
        assert refusal(first_answer(narrow, "127.0.0.9")) == (429, "ERR-PYOCO-0102")
    closed(narrow)


def test_malformed_requests_do_not_fill_the_log(stand: Stand, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(MOST_LINES + 10):
        asked(stand, b"hello\r\n\r\n")
    lines = [record for record in caplog.records if record.__dict__.get("action") == "request_refused"]
    assert 0 < sum(line.levelno >= logging.WARNING for line in lines) <= MOST_LINES


def test_an_answer_that_refuses_a_body_arrives_and_ends_the_connection(stand: Stand) -> None:
    body = b"x" * 5_000_000
    head = f"POST /runs HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    assert refusal(asked(stand, head + body)) == (413, "ERR-PYOCO-0101")


_FEW_FILES = """
import logging, resource
logging.basicConfig()
resource.setrlimit(resource.RLIMIT_NOFILE, (300, 400))
from pyoco_server.gateway.middleware.connections import connection_limits
from pyoco_server.settings import load_settings
limits = connection_limits(load_settings({"PYOCO_LOAD_DOTENV": "0"}).settings)
print(limits.most, limits.most_per_address, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""


def test_fewer_connections_are_accepted_where_fewer_files_may_be_open() -> None:
    done = subprocess.run([sys.executable, "-c", _FEW_FILES], capture_output=True, text=True, check=True)  # noqa: S603
    assert done.stdout.split() == ["144", "72", "400"]
    assert "PYOCO_HTTP_MAX_CONNECTIONS=10000 is more than the limit of open files allows" in done.stderr
