"""Logs whose events contradict each other: every route of such a run answers, those that show the log with notes."""

import asyncio
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import httpx
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings

from pyoco_server.core import Event, decode_event
from pyoco_server.core.json_codec import DecodeError
from pyoco_server.gateway.services import Services
from tests.fuzz.documents import golden_logs, mutated, written
from tests.gateway.stand import Stand
from tests.golden.files import load
from tests.kill.routes import read_all_routes
from tests.plain_http import NO_TLS

SHOW_THE_LOG = ("/events", "/graph", "/state")
Document = dict[str, Any]
Change = Callable[[list[Document]], list[Document]]


def recorded() -> list[Document]:
    """The events of a run that completed."""
    return [msgspec.json.decode(line) for line in load("chain").lines]


def added(kind: str, **payload: Any) -> Change:
    """One event more, behind all others."""
    return lambda events: [*events, {**events[-1], "type": kind, "payload": payload}]


def without(kind: str) -> Change:
    """The log without the events of a type."""
    return lambda events: [event for event in events if event["type"] != kind]


CONTRADICTIONS: dict[str, Change] = {
    "a second creation": lambda events: [*events, events[0]],
    "a second end": added("EXECUTION_FAILED"),
    "an unknown node": added("NODE_SUCCEEDED", nodeId="gone", attempt=1),
    "a node of another graph": added(
        "NODE_CREATED", nodeId="new", nodeType="Task", meta={"node": {}, "edges": [], "inputs": 1}
    ),
    "everything twice": lambda events: [*events, *events],
    "backwards": lambda events: [*reversed(events)],
    "no creation": without("EXECUTION_CREATED"),
    "no nodes": without("NODE_CREATED"),
    "no success": without("NODE_SUCCEEDED"),
}


def own(documents: Sequence[Document], run_id: str) -> Iterator[Event]:
    """The events as those of another run, without those that no log can hold."""
    for document in documents:
        mine = {"executionId": run_id, "eventId": str(uuid.uuid4())}
        try:
            yield decode_event(written({**document, **mine}))
        except DecodeError:
            continue


def read(stand: Stand, events: Sequence[Event], run_id: str) -> dict[str, Any]:
    """Write a log as it is, with its snapshot, and read all routes of its run."""

    async def store(services: Services) -> list[str]:
        await services.log.append(run_id, events, after=0)
        run = await services.run_log.open(run_id)
        await services.run_log.write_snapshot(run)
        return [*run.execution.state.nodes]

    async def routes(nodes: list[str]) -> dict[str, Any]:
        async with httpx.AsyncClient(base_url=stand.url, timeout=30, verify=NO_TLS) as client:
            return await read_all_routes(client, run_id, nodes)

    return asyncio.run(routes(stand.call(store)))


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_every_route_of_a_log_that_contradicts_itself_answers_with_notes(stand: Stand, name: str) -> None:
    run_id = uuid.uuid4().hex
    answers = read(stand, [*own(CONTRADICTIONS[name](recorded()), run_id)], run_id)
    shown = [path for path in answers if path.endswith(SHOW_THE_LOG)]
    assert len(shown) >= len(SHOW_THE_LOG)
    for path in shown:
        assert answers[path]["notes"], path


def test_a_log_that_fits_together_has_no_notes(stand: Stand) -> None:
    run_id = uuid.uuid4().hex
    answers = read(stand, [*own(recorded(), run_id)], run_id)
    assert [path for path, answer in answers.items() if isinstance(answer, dict) and "notes" in answer] == []


@given(log=mutated(golden_logs()))
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_every_route_of_a_log_with_something_changed_answers(stand: Stand, log: Any) -> None:
    run_id = uuid.uuid4().hex
    documents = [each for each in log if isinstance(each, dict)] if isinstance(log, list) else []
    events = [*own(documents, run_id)]
    if events:
        read(stand, events, run_id)
