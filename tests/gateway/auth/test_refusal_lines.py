"""What the log says of those who were turned away: enough to find them, nothing of their keys, and not without end."""

import asyncio
import json
import logging
from typing import Any

import pytest

from pyoco_server.app.api_keys.format import KeyScope
from pyoco_server.logs.formats import JsonFormatter
from pyoco_server.logs.line_limit import MOST_LINES
from tests.gateway.auth.world import World, issued

KEY = f"pyoco_k{'0' * 16}_{'5e' * 32}"


def refusals(caplog: pytest.LogCaptureFixture, level: int = logging.WARNING) -> list[dict[str, Any]]:
    formatter = JsonFormatter(service="s", utc=True, include_traceback=True)
    found = [record for record in caplog.records if record.__dict__.get("action") == "request_refused"]
    return [json.loads(formatter.format(record)) for record in found if record.levelno >= level]


@pytest.mark.spec("004 REQ-0013", "004 REQ-0016")
def test_a_refused_request_leaves_one_log_line(world: World, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> str:
        async with world.open() as gateway:
            weak = await issued(gateway, "acme", KeyScope.RUNS)
            for key, path, status in ((None, "/runs", 401), (KEY, "/runs", 403), (weak, "/workers", 403)):
                async with gateway.client(key) as client:
                    assert (await client.get(path)).status_code == status
            return weak.stored.api_key_id

    api_key_id = asyncio.run(scenario())
    missing, wrong, weak = refusals(caplog)
    assert [line["err_id"] for line in (missing, wrong)] == ["ERR-PYOCO-0014", "ERR-PYOCO-0015"]
    for line in (missing, wrong, weak):
        assert line["level"] == "WARNING"
        assert line["msg_id"] == line["err_id"].replace("ERR", "MSG")
        assert line["exception_class"].startswith("pyoco_server.app.api_keys.errors.")
        assert line["exception_message"] == line["reason"]
        assert line["traceback"]
        assert "path" not in line
    assert [line["api_key_id"] for line in (missing, wrong, weak)] == [None, f"k{'0' * 16}", api_key_id]
    assert "5e5e5e" not in caplog.text
    assert "request_rejected" not in [record.__dict__.get("action") for record in caplog.records]


def test_guessing_keys_does_not_fill_the_log(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="pyoco_server.gateway.middleware.auth")

    async def scenario() -> None:
        async with world.open() as gateway, gateway.client(KEY) as client:
            for _ in range(MOST_LINES + 5):
                assert (await client.get("/runs")).status_code == 403

    asyncio.run(scenario())
    assert len(refusals(caplog)) == MOST_LINES
    assert len(refusals(caplog, logging.DEBUG)) == MOST_LINES + 5
    assert [("note" in line) for line in refusals(caplog)] == [False] * (MOST_LINES - 1) + [True]
