"""Random flows and random edits of them on real workers that are killed, stopped and replaced at random commits.

Every worker has each flow as it was, or as one of its edits has it. Meanwhile runs are cancelled and waits answered; at
the end a worker with all of the code comes. Then, for each run: every route reads its log; the log keeps the rules, on
the graph of one version of its flow; COMPLETED means that all that this version demands has succeeded; and each call
belongs to an attempt of its own.

The rule for an attempt that was started and never called: a start counts. The next attempt has the next number and
names the crash of the one before, unless its worker handed it back; or there is no next one, since the run was
cancelled or failed.

PYOCO_KILL_SCALE=full runs hundreds; PYOCO_KILL_SEED gives the same flows and edits again.
"""

import asyncio
import contextlib
import itertools
import json
import random
import time
import uuid
from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx
import msgspec

from pyoco_server.app.runtime.crashes import CRASHED, HANDED_BACK
from pyoco_server.app.snapshots.projection import worker_name
from pyoco_server.core import CommandRejected, Event, Graph, fold, graph_to_dict, read_graph
from pyoco_server.core.payloads import NodeFailReported, NodeProgressReported, NodeStarted
from pyoco_server.flows.model import FlowModel, tasks_of
from pyoco_server.flows.plan import plan
from tests.kill.checking import check_queue_is_empty, check_runs
from tests.kill.fleet import ENDED, chance, fleet, report, scaled, timeout
from tests.kill.own_graph_cases import drawn, versions
from tests.kill.own_graph_tasks import CallLine, calls_in, trace_of
from tests.kill.own_graph_workers import Deployed, Interruptions
from tests.kill.reading import Logged
from tests.kill.routes import read_all_routes
from tests.plain_http import NO_TLS
from tests.worker.own_graph_laws import (
    Begun,
    check_attempts_are_numbered,
    check_end,
    is_cancelled,
    node_called,
    tasks_of_nodes,
)

AT_ONCE: Final = 12
"""How many runs are under way at the same time."""
STILL_SEC: Final = 3.0
"""When no log moves for so long, every run that is left waits for a person or for code."""
WITHIN_SEC: Final = 90.0


@timeout
def test_any_run_on_workers_with_any_edits_that_die_at_any_commit_keeps_its_graph_and_its_calls(tmp_path: Path) -> None:
    asyncio.run(_interrupted(tmp_path, scaled(6, 240)))


async def _interrupted(home: Path, many: int) -> None:
    luck = chance()
    figures: Counter[str] = Counter()
    cases = drawn(many, luck.randrange(1 << 32))
    limits = httpx.Limits(max_keepalive_connections=0)  # the gateway closes idle ones between two waves
    async with fleet(home) as there:
        gateway, deployed = there.start_gateway("gateway"), Deployed(there, luck)
        interruptions = Interruptions(there, deployed)
        unsubscribe = await there.platform.log.subscribe_all(interruptions.appended)
        async with httpx.AsyncClient(base_url=gateway.url, timeout=30, verify=NO_TLS, limits=limits) as client:
            for first in range(0, many, AT_ONCE):
                wave = {f"f{first + number}": case for number, case in enumerate(cases[first : first + AT_ONCE])}
                await deployed.deploy({name: versions(name, case) for name, case in wave.items()})
                await gateway.ready()
                runs = {uuid.uuid4().hex: name for name in wave}
                interruptions.cases |= {run_id: wave[name] for run_id, name in runs.items()}
                for run_id, name in runs.items():
                    await there.submit(name, run_id=run_id, **wave[name].params)
                figures["held"] += len(await _until_ended(interruptions, deployed, runs, luck))
                logs = await check_runs(there, runs)
                for run_id, name in runs.items():
                    calls = calls_in(trace_of(there.traces, run_id))
                    figures += _check(versions(name, wave[name]), wave[name].params, logs[run_id], calls)
                    await read_all_routes(client, run_id, [*fold(_events(logs[run_id])).nodes])
        unsubscribe()
        await check_queue_is_empty(there)
        counted = {**figures, **deployed.stopped}
        report(f"{many} runs: " + ", ".join(f"{name} {count}" for name, count in sorted(counted.items())))


async def _until_ended(
    interruptions: Interruptions, deployed: Deployed, runs: Collection[str], luck: random.Random
) -> set[str]:
    """Answer the waits of these runs until all have ended; return those that were held in between.

    When nothing moves any more, a worker with all of the code comes.
    """
    left, held, there = set(runs), set[str](), deployed.there
    deadline = time.monotonic() + WITHIN_SEC
    while left:
        assert time.monotonic() < deadline, "\n".join([await there.described(run_id) for run_id in sorted(left)])
        await asyncio.sleep(0.1)
        await interruptions.done()
        if time.monotonic() - interruptions.latest > STILL_SEC:
            deployed.start_whole()
        for run_id in sorted(left):
            found = await there.snapshot(run_id)
            held |= {run_id} if "held" in found else set()
            if found["status"] in ENDED:
                left.discard(run_id)
            elif found["waiting"] and luck.random() < 0.4:
                with contextlib.suppress(CommandRejected):  # it is being cancelled
                    await there.resume(run_id, found["waiting"][0]["node_id"], "answer")
    await interruptions.done()
    return held


# --- What must hold --------------------------------------------------------------------------------------------------


def _events(log: Sequence[Logged]) -> list[Event]:
    return [logged.event for logged in log]


def _check(
    candidates: Sequence[FlowModel], params: dict[str, Any], log: Sequence[Logged], calls: Sequence[CallLine]
) -> Counter[str]:
    """Hold a run that has ended against the laws, and return what there was to see."""
    events = _events(log)
    state, (graph, notes, left_out) = fold(events), read_graph(events)
    assert (notes, left_out) == ([], [])
    check_attempts_are_numbered(events)
    uncalled = _check_calls(log, calls)
    figures = Counter({state.status.value.lower(): 1, "calls": len(calls), "started and not called": uncalled})
    if not state.nodes:
        assert (state.status, calls) == ("CANCELED", [])
        return figures
    own = [version for version in candidates if _shape(plan(version).graph) == _shape(graph)]
    assert own, [sorted(_shape(plan(version).graph) ^ _shape(graph)) for version in candidates]
    once = {task.name for task in tasks_of(own[0]) if task.at_most_once}
    check_end(own[0], params, events, state, once)
    return figures


def _shape(graph: Graph) -> set[str]:
    """What the graph is made of, in an order of no meaning."""
    shape = json.loads(msgspec.json.encode(graph_to_dict(graph)))
    parts = [(name, each) for name, value in shape.items() for each in (value if isinstance(value, list) else [value])]
    return {json.dumps(part, sort_keys=True) for part in parts}


class _Start(NamedTuple):
    attempt: int
    worker: str | None
    at: float
    event: NodeStarted


def _starts(log: Sequence[Logged]) -> dict[str, list[_Start]]:
    """By node, the attempts at tasks."""
    tasks = tasks_of_nodes(_events(log))
    found: dict[str, list[_Start]] = {node_id: [] for node_id in tasks}
    for logged in log:
        payload = logged.event.payload
        if isinstance(payload, NodeStarted) and payload.node_id in tasks:
            start = _Start(payload.attempt, worker_name(payload.worker_id), logged.stored_at, payload)
            found[payload.node_id].append(start)
    return found


def _check_calls(log: Sequence[Logged], calls: Sequence[CallLine]) -> int:
    """Every call belongs to an attempt of its own, in the worker that began it; return how many have no call."""
    events, starts, called = _events(log), _starts(log), set[Begun]()
    for call in calls:
        node_id = node_called(events, call.task, call.rounds)
        before = [start for start in starts[node_id] if start.at <= call.at]
        assert before, f"'{node_id}' was called and had not been started: {call}"
        assert before[-1].worker == call.worker, f"{call} is not of {before[-1]}"
        assert (node_id, before[-1].attempt) not in called, f"attempt {before[-1].attempt} of '{node_id}': two calls"
        called.add((node_id, before[-1].attempt))
    left = _left_in(events)
    for node_id, those in starts.items():
        for start, behind in itertools.pairwise(those):
            names_crash = behind.event.extra.get(CRASHED, {}).get("attempt") == start.attempt
            assert names_crash or (node_id, start.attempt) in left, f"attempt {behind.attempt} of '{node_id}': why?"
    uncalled = {(node_id, start.attempt) for node_id, those in starts.items() for start in those} - called
    is_over = is_cancelled(events) or fold(events).status == "FAILED"
    for node_id, attempt in uncalled:
        is_latest = attempt == starts[node_id][-1].attempt
        assert is_over or not is_latest, f"attempt {attempt} of '{node_id}' was never called"
    return len(uncalled)


def _left_in(events: Sequence[Event]) -> set[Begun]:
    """Attempts that their workers ended in good order before the next one: they failed, or were handed back."""
    payloads = [event.payload for event in events]
    failed = {(each.node_id, each.attempt) for each in payloads if isinstance(each, NodeFailReported)}
    handed = {
        (each.node_id, each.attempt)
        for each in payloads
        if isinstance(each, NodeProgressReported) and HANDED_BACK in each.extra
    }
    return {(node_id, attempt) for node_id, attempt in failed | handed if attempt is not None}
