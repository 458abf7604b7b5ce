"""Log lines of failed requests: one line for an expected error, a traceback for an unexpected one."""

import json
import logging
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from pyoco_server.app.ports import UnavailableError
from pyoco_server.errors import PyocoServerError
from pyoco_server.gateway.errors import answer_to
from pyoco_server.gateway.middleware.body_limit import DEFAULT_BYTES
from pyoco_server.logs.formats import JsonFormatter, TextFormatter
from pyoco_server.messages import Language
from tests.adapters.real_nats import NatsServer
from tests.gateway.stand import Stand, check_error, settings_for

APP = SimpleNamespace(state=SimpleNamespace(language=Language.EN))
SCOPE: dict[str, Any] = {"type": "http", "method": "GET", "path": "/runs/x", "headers": [], "app": APP}
UNKNOWN = "0" * 32


def failures(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if getattr(record, "action", "") == "request_failed"]


def as_json(record: logging.LogRecord) -> dict[str, Any]:
    line: dict[str, Any] = json.loads(JsonFormatter(service="s", utc=True, include_traceback=True).format(record))
    return line


def as_text(record: logging.LogRecord) -> str:
    return TextFormatter(service="s", utc=True, include_traceback=True).format(record)


def raised(error: PyocoServerError) -> PyocoServerError:
    """The error as it is once it was raised."""
    try:
        raise error
    except PyocoServerError as caught:
        return caught


@pytest.mark.spec("004 REQ-0013")
def test_an_outage_is_one_line_with_its_id_and_its_reason(caplog: pytest.LogCaptureFixture) -> None:
    assert answer_to({**SCOPE}, raised(UnavailableError("NATS did not answer: timeout"))).status_code == 503
    [record] = failures(caplog)
    logged = as_json(record)
    assert (logged["level"], logged["err_id"], logged["msg_id"]) == ("WARNING", "ERR-PYOCO-0003", "MSG-PYOCO-0003")
    assert (logged["path"], logged["status"], logged["reason"]) == ("/runs/x", 503, "NATS did not answer: timeout")
    assert logged["exception_class"] == "pyoco_server.app.ports.errors.UnavailableError"
    assert logged["exception_message"] == "NATS did not answer: timeout"
    assert logged["traceback"].startswith("Traceback")
    assert "\n" not in as_text(record)
    assert "UnavailableError" in as_text(record)


def test_an_unexpected_error_is_logged_with_its_place(caplog: pytest.LogCaptureFixture) -> None:
    assert answer_to({**SCOPE}, PyocoServerError("a mistake of ours")).status_code == 500
    [record] = failures(caplog)
    assert record.levelno == logging.ERROR
    assert record.exc_info is not None


def test_while_nats_is_away_every_request_leaves_a_line(
    own_nats: NatsServer, tmp_path: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with Stand(settings_for(own_nats.url, tmp_path), workers=0) as stand, stand.client() as client:
        own_nats.kill()
        answers: list[httpx.Response] = [client.get("/runs"), client.post("/runs", json={"flow_name": "hello"})]
        for answer in answers:
            check_error(answer, 503, "ERR-PYOCO-0003")
    records = failures(caplog)
    assert [record.__dict__["path"] for record in records] == ["/runs", "/runs"]
    assert [as_text(record).count("\n") for record in records] == [0, 0]


# --- Mistakes of clients ---------------------------------------------------------------------------------------------


class Kept(logging.Handler):
    """Keeps what the gateway says of requests it rejected."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.lines: list[dict[str, Any]] = []
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:  # type: ignore[explicit-override]  # needs Python 3.12
        if getattr(record, "action", "") == "request_rejected":
            self.lines.append(as_json(record))
            self.texts.append(as_text(record))


@pytest.fixture
def kept() -> Iterator[Kept]:
    logger, handler = logging.getLogger("pyoco_server.gateway.errors"), Kept()
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield handler
    logger.removeHandler(handler)
    logger.setLevel(before)


@pytest.mark.spec("004 REQ-0013")
@pytest.mark.parametrize(
    ("request_", "status", "err_id", "raised_class"),
    [
        (("GET", f"/runs/{UNKNOWN}", None), 404, "ERR-PYOCO-0005", "RunNotFoundError"),
        (("GET", "/nothing/here", None), 404, "ERR-PYOCO-0104", "HTTPException"),
        (("GET", "/runs?limit=0", None), 422, "ERR-PYOCO-0017", "RequestNotValidError"),
        (("GET", "/runs?cursor=x", None), 422, "ERR-PYOCO-0017", "ListQueryError"),
        (("POST", "/runs", b'{"flow_name": 1}'), 422, "ERR-PYOCO-0002", "RequestNotValidError"),
        (("POST", "/runs", b"{"), 422, "ERR-PYOCO-0002", "RequestNotValidError"),
        (("PATCH", "/workers/unknown", b'{"hidden": true}'), 404, "ERR-PYOCO-0020", "WorkerNotFoundError"),
        (("POST", "/runs", b" " * (DEFAULT_BYTES + 1)), 413, "ERR-PYOCO-0101", "BodyTooLargeError"),
    ],
)
def test_a_request_that_is_rejected_leaves_one_line(
    client: httpx.Client,
    kept: Kept,
    request_: tuple[str, str, bytes | None],
    status: int,
    err_id: str,
    raised_class: str,
) -> None:
    method, path, body = request_
    check_error(
        client.request(method, path, content=body, headers={"Content-Type": "application/json"}), status, err_id
    )
    [line] = kept.lines
    assert (line["level"], line["err_id"], line["status"]) == ("INFO", err_id, status)
    assert line["msg_id"] == err_id.replace("ERR", "MSG")
    assert (line["method"], line["path"]) == (method, path.partition("?")[0])
    assert line["exception_class"].rpartition(".")[2] == raised_class
    assert line["exception_message"]
    assert line["traceback"]
    assert {"logger", "file", "line", "function", "service"} <= line.keys()
    assert "\n" not in kept.texts[0]


def test_a_body_that_is_too_large_is_logged_once(client: httpx.Client, kept: Kept) -> None:
    pieces = (b" " * 65536 for _ in range(DEFAULT_BYTES // 65536 + 2))  # without a length in the header
    check_error(client.post("/runs", content=pieces), 413, "ERR-PYOCO-0101")
    assert [line["err_id"] for line in kept.lines] == ["ERR-PYOCO-0101"]


def test_the_body_of_a_request_is_not_logged(client: httpx.Client, kept: Kept) -> None:
    body = {"flow_name": 7, "params": {"card": "4111-1111"}, "tag": ["4111-1111"]}
    check_error(client.post("/runs", json=body), 422, "ERR-PYOCO-0002")
    assert "4111-1111" not in json.dumps(kept.lines)
    assert "flow_name" in kept.lines[0]["reason"]


def test_the_run_that_was_asked_for_is_named(client: httpx.Client, kept: Kept) -> None:
    client.get(f"/runs/{UNKNOWN}/tasks")
    assert kept.lines[0]["run_id"] == UNKNOWN
