"""Check the guarantees after the faults: in the logs, and through the gateways."""

import asyncio
import collections
import dataclasses
import json
import time
from collections.abc import Collection
from typing import Final

import httpx
from tests.invariants import ENDS
from tests.kill.checking import RULES, Looked, check_queue_is_empty, look_at
from tests.kill.crew import ENDED
from tests.kill.reading import described

from chaos.clients import Clients
from chaos.stage import Stage
from pyoco_server.adapters.jetstream.primitives.stream_reader import StreamReader
from pyoco_server.app.ports import UnavailableError
from pyoco_server.bootstrap import names_of

LOOKS: Final = 10
AT_ONCE: Final = 16
_CANCELLED: Final = {"CANCELLING", "CANCELLED"}
_PAGE: Final = 200
_MOST_LOGS: Final = 5


@dataclasses.dataclass(slots=True)
class Verdict:
    """One guarantee: how many cases were checked, and which are broken."""

    name: str
    checked: int = 0
    broken: list[str] = dataclasses.field(default_factory=list)

    def hold(self, *, true: bool, problem: str) -> None:
        """Count one case."""
        self.checked += 1
        if not true:
            self.broken.append(problem)


@dataclasses.dataclass(slots=True)
class Judgement:
    """All verdicts, and the state of the runs."""

    verdicts: list[Verdict]
    looked: dict[str, Looked]
    settled_sec: float
    """How long it took until every run had ended."""
    open_logs: list[str]
    """Logs without an end whose run was never acknowledged."""
    broken_logs: list[str]
    """The logs of some runs that break a rule."""

    @property
    def holds(self) -> bool:
        """Whether all guarantees hold."""
        return not any(verdict.broken for verdict in self.verdicts)


async def judge(stage: Stage, clients: Clients, within: float) -> Judgement:
    """Wait at most ``within`` seconds until every run has ended, then check the guarantees."""
    began = time.monotonic()
    await clients.submitted()
    accepted = {run.run_id: run for run in clients.accepted if run.run_id is not None}
    converged = Verdict("every acknowledged run ends")
    for run_id in await _still_open(stage, accepted, within):
        converged.broken.append(f"run {run_id} ({accepted[run_id].flow}) has not ended")
    converged.checked = len(accepted)
    await clients.finish(within)
    settled_sec = time.monotonic() - began
    looked = await _look_at_all(stage, accepted)
    return Judgement(
        [
            converged,
            *_rules(looked),
            _failures(looked),
            _cancels(clients, looked),
            _watches(clients, looked),
            await _queue(stage),
            *[await _list(stage, name, accepted) for name in stage.urls],
        ],
        looked,
        settled_sec,
        await _open_logs(stage, accepted),
        [f"run {run_id}\n{described(found.log)}" for run_id, found in looked.items() if found.problems][:_MOST_LOGS],
    )


async def _still_open(stage: Stage, run_ids: Collection[str], within: float) -> list[str]:
    """Return the runs that have not ended after ``within`` seconds."""
    left, end = set(run_ids), asyncio.get_running_loop().time() + within
    while left and asyncio.get_running_loop().time() < end:
        for run_id in [*left]:
            try:
                stored = await stage.crew.platform.snapshots.read(run_id)
            except UnavailableError:
                break
            if stored is not None and json.loads(stored.body)["status"] in ENDED:
                left.discard(run_id)
        await asyncio.sleep(0.25)
    return sorted(left)


async def _look_at_all(stage: Stage, run_ids: Collection[str]) -> dict[str, Looked]:
    places, looked = asyncio.Semaphore(AT_ONCE), dict[str, Looked]()

    async def one(run_id: str) -> None:
        async with places:
            looked[run_id] = await _look_patiently(stage, run_id)

    await asyncio.gather(*map(one, run_ids))
    return looked


async def _look_patiently(stage: Stage, run_id: str) -> Looked:
    """Read one run with retries: a machine that reads thousands of logs may be slow."""
    for _ in range(LOOKS - 1):
        try:
            return await look_at(stage.crew, run_id)
        except UnavailableError:
            await asyncio.sleep(1)
    return await look_at(stage.crew, run_id)


def _rules(looked: dict[str, Looked]) -> list[Verdict]:
    verdicts = []
    for name in RULES:
        verdict = Verdict(name)
        for run_id, found in looked.items():
            verdict.hold(true=name not in found.problems, problem=f"run {run_id}: {found.problems.get(name)}")
        verdicts.append(verdict)
    return verdicts


def _failures(looked: dict[str, Looked]) -> Verdict:
    """Check that no run failed: no flow here fails by itself."""
    verdict = Verdict("no run fails because of a fault")
    for run_id, found in looked.items():
        is_failed = found.snapshot.get("status") == "FAILED"
        verdict.hold(true=not is_failed, problem=f"run {run_id} failed: {found.snapshot.get('error')}")
    return verdict


def _cancels(clients: Clients, looked: dict[str, Looked]) -> Verdict:
    verdict = Verdict("a cancel that was answered CANCELLING ends CANCELLED")
    for run in clients.accepted:
        if run.run_id is not None and run.cancel_answer in _CANCELLED:
            end = looked[run.run_id].snapshot.get("status")
            verdict.hold(true=end == "CANCELLED", problem=f"run {run.run_id} ended {end}")
    return verdict


def _watches(clients: Clients, looked: dict[str, Looked]) -> Verdict:
    verdict = Verdict("every watcher of a run saw its end")
    for run in clients.accepted:
        if run.run_id is not None and run.is_watched:
            end = looked[run.run_id].snapshot.get("status")
            verdict.hold(true=run.watched_end == end, problem=f"run {run.run_id} ended {end}, seen {run.watched_end}")
    return verdict


async def _queue(stage: Stage) -> Verdict:
    verdict = Verdict("the queue is empty, and no job is in flight")
    try:
        await check_queue_is_empty(stage.crew)
    except AssertionError as problem:
        verdict.broken.append(str(problem))
    verdict.checked = 1
    return verdict


async def _list(stage: Stage, gateway: str, accepted: Collection[str]) -> Verdict:
    """Read all pages of the list."""
    verdict = Verdict(f"the list of {gateway} shows every run once, as its snapshot has it")
    seen: collections.Counter[str] = collections.Counter()
    ends: dict[str, str] = {}
    async with httpx.AsyncClient(base_url=stage.urls[gateway], timeout=30) as http:
        query: dict[str, str] = {"updated_after": "0", "limit": str(_PAGE)}
        while True:
            page = (await http.get("/runs", params=query)).raise_for_status().json()
            seen.update(item["run_id"] for item in page["items"])
            ends.update({item["run_id"]: item["status"] for item in page["items"]})
            if page["next_cursor"] is None:
                break
            query = {"cursor": page["next_cursor"], "limit": str(_PAGE)}
    for run_id in {*accepted, *seen}:
        verdict.hold(true=seen[run_id] == 1, problem=f"run {run_id} is listed {seen[run_id]} times")
    for run_id in sorted(set(accepted) & set(ends)):
        if ends[run_id] not in ENDED:
            verdict.broken.append(f"run {run_id} is listed as {ends[run_id]}")
    return verdict


async def _open_logs(stage: Stage, accepted: Collection[str]) -> list[str]:
    """Return logs without an end whose run was never acknowledged: the rest of a submission without an answer."""
    names = names_of(stage.crew.settings)
    js = stage.crew.platform.connection.js
    pattern = names.events_subject("x").removesuffix("x") + ">"
    found: dict[str, int] = (await js.stream_info(names.events_stream, subjects_filter=pattern)).state.subjects or {}
    reader, left = StreamReader(stage.crew.platform.connection, names.events_stream), []
    for subject in sorted(found):
        run_id = subject.rpartition(".")[2]
        if run_id not in accepted:
            last = await reader.last(subject)
            if last is not None and not any(end.value.encode() in last.data for end in ENDS):
                left.append(run_id)
    return left
