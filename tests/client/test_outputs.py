"""Outputs that do not arrive whole: both clients read them again, and leave no half-written file."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pyoco_server.client import AsyncClient, Client, GatewayUnreachableError, SavedOutput, UnexpectedAnswerError
from pyoco_server.errors import InvalidInputError
from tests.client.scripted_gateway import Answer, ScriptedGateway, refuses, says

PATH = "/runs/r1/nodes/a/output"
WHOLE = Answer(body=b'"value"', headers={"X-Pyoco-Output-Kind": "json"})
CUT_OFF = Answer(body=b'"val', headers={"X-Pyoco-Output-Kind": "json"}, cut_off=True)


def _blocking(gateway: ScriptedGateway, retries: int, body: Callable[[Any], Any]) -> Any:
    with Client(gateway.url, retries=retries) as client:
        return body(client)


def _asynchronous(gateway: ScriptedGateway, retries: int, body: Callable[[Any], Any]) -> Any:
    async def scenario() -> Any:
        async with AsyncClient(gateway.url, retries=retries) as client:
            return await body(client)

    return asyncio.run(scenario())


BOTH = pytest.mark.parametrize("ask", [_blocking, _asynchronous])


@BOTH
def test_a_broken_download_begins_again(gateway: ScriptedGateway, ask: Callable[..., Any], tmp_path: Path) -> None:
    target = tmp_path / "a.json"
    gateway.on("GET", PATH, CUT_OFF, refuses("ERR-PYOCO-0003"), WHOLE)
    saved = ask(gateway, 2, lambda client: client.save_output("r1", "a", target))
    assert saved == SavedOutput("json", 7, target)
    assert target.read_bytes() == b'"value"'
    assert [*tmp_path.iterdir()] == [target]


@BOTH
def test_a_download_that_stays_broken_leaves_the_old_file(
    gateway: ScriptedGateway, ask: Callable[..., Any], tmp_path: Path
) -> None:
    target = tmp_path / "a.json"
    target.write_bytes(b"old")
    gateway.on("GET", PATH, CUT_OFF)
    with pytest.raises(GatewayUnreachableError):
        ask(gateway, 1, lambda client: client.save_output("r1", "a", target))
    assert len(gateway.requests) == 2
    assert target.read_bytes() == b"old"
    assert [*tmp_path.iterdir()] == [target]


@BOTH
def test_an_answer_that_does_not_say_its_kind_is_not_an_output(
    gateway: ScriptedGateway, ask: Callable[..., Any], tmp_path: Path
) -> None:
    gateway.on("GET", PATH, says([1]))
    for body in (lambda c: c.output("r1", "a"), lambda c: c.save_output("r1", "a", tmp_path / "a")):
        with pytest.raises(UnexpectedAnswerError, match="X-Pyoco-Output-Kind"):
            ask(gateway, 0, body)
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b'{"$enum": ["os:abort", "X"]}', "output"),
        (b'{"$nothing": 1}', "output"),
        (b"[" * 100_000, "not JSON"),
        (b"\xff", "not JSON"),
    ],
)
def test_a_value_that_cannot_be_read_is_an_error(gateway: ScriptedGateway, content: bytes, said: str) -> None:
    gateway.on("GET", PATH, Answer(body=content, headers={"X-Pyoco-Output-Kind": "tagged"}))
    output = _blocking(gateway, 0, lambda client: client.output("r1", "a"))
    with pytest.raises(InvalidInputError, match=said):
        output.value()
