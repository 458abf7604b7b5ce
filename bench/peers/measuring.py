"""One candidate from its installation to its figures, within a limit of time."""

import functools
import os
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.peers.candidate import Candidate
from bench.peers.stand import CLIENT, START_SEC, CandidateError, Stand, standing
from bench.peers.syncs import count_syncs

WARM_UP = 20
SYNC_RUNS = 30
PAGES = 30
GRACE_SEC = 45.0
"""How much longer than its limit a client may take, for the runs it has under way."""


@dataclass(frozen=True)
class Plan:
    """What to measure."""

    runs: int
    list_size: int
    """How many runs there shall be when the list is asked for; 0: it is not."""
    limit_sec: float
    """For all phases but the filling of the list."""
    fill_sec: float
    counts_syncs: bool


@dataclass
class Figures:
    """What was found out about a candidate. None: not measured, and ``problem`` or ``notes`` say why."""

    name: str
    durable: str
    remark: str
    versions: dict[str, str] = field(default_factory=dict)
    disk_sync_ms: float | None = None
    """What one sync of a small write cost just before: how busy the disk was with others."""
    load: float | None = None
    """The load average at that moment: how busy the processors were."""
    single_runs: int = 0
    p50_ms: float | None = None
    p95_ms: float | None = None
    single_cpu_ms: float | None = None
    in_flight: int = 0
    many_runs: int = 0
    runs_per_sec: float | None = None
    cpu_ms: float | None = None
    cpu_ms_by_role: dict[str, float] = field(default_factory=dict)
    memory_mib: float | None = None
    memory_mib_by_role: dict[str, float] = field(default_factory=dict)
    syncs_single: float | None = None
    syncs_many: float | None = None
    page_ms: float | None = None
    page_p95_ms: float | None = None
    page_of: int = 0
    notes: list[str] = field(default_factory=list)
    problem: str | None = None


def measure(candidate: Candidate, plan: Plan) -> Figures:
    """Install, start, measure, stop. Problems are in the figures, beside those measured before."""
    figures = Figures(candidate.name, candidate.durable, candidate.remark)
    try:
        figures.versions = candidate.install()
        with (
            tempfile.TemporaryDirectory(prefix="pyoco-bench-", ignore_cleanup_errors=True) as name,
            standing(Path(name)) as stand,
        ):
            figures.disk_sync_ms, figures.load = disk_sync_ms(Path(name)), os.getloadavg()[0]
            candidate.start(stand)
            measure_standing(candidate, plan, stand, figures)
    except (CandidateError, OSError) as error:
        figures.problem = str(error)
    return figures


def measure_standing(candidate: Candidate, plan: Plan, stand: Stand, figures: Figures) -> None:
    """Measure a candidate whose processes are there, its client among them; CandidateError: not further than this."""
    stand.ask(None, START_SEC)
    _Measurement(candidate, plan, stand, figures).everything()


def disk_sync_ms(directory: Path) -> float:
    """The median of some small writes, each synced."""
    times = []
    with (directory / "probe").open("wb", buffering=0) as probe:
        for _ in range(SYNC_RUNS):
            began = time.perf_counter()
            probe.write(bytes(4096))
            os.fdatasync(probe.fileno())
            times.append((time.perf_counter() - began) * 1e3)
    return statistics.median(times)


class _Measurement:
    """The phases, one after the other; each has a share of the time."""

    def __init__(self, candidate: Candidate, plan: Plan, stand: Stand, figures: Figures) -> None:
        self._candidate = candidate
        self._plan = plan
        self._stand = stand
        self._figures = figures
        self._runs = min(plan.runs, candidate.most_runs)
        self._done = 0

    def everything(self) -> None:
        self._ask("single", 0.05, count=1)  # the first is charged for everything that is made on demand
        self._single()
        self._many()
        if self._plan.counts_syncs:
            self._syncs()
        if self._plan.list_size and self._candidate.has_list:
            self._list()

    def _ask(self, do: str, share: float, **more: object) -> dict[str, Any]:
        answer = self._ask_even_if_it_stops(do, share, **more)
        self._refuse_stopped(answer)
        return answer

    def _ask_even_if_it_stops(self, do: str, share: float, **more: object) -> dict[str, Any]:
        limit_sec = self._plan.fill_sec if do == "fill" else self._plan.limit_sec * share
        answer = self._stand.ask({"do": do, "limit_sec": limit_sec, **more}, limit_sec + GRACE_SEC)
        self._done += len(answer["times_ms"]) if do == "single" else answer.get("done", 0)
        return answer

    def _refuse_stopped(self, answer: Mapping[str, Any]) -> None:
        if "stopped" in answer:
            raise CandidateError(f"it stopped after {self._done} runs: {answer['stopped']}")

    def _single(self) -> None:
        """One at a time. What is not warm yet is left out."""
        self._warm_up()
        figures, before = self._figures, self._stand.processor_sec()
        answer = self._ask_even_if_it_stops("single", 0.15, count=self._runs)
        times = answer["times_ms"]
        figures.single_runs = len(times)
        if times:
            figures.p50_ms, figures.p95_ms = statistics.median(times), percentile(times, 0.95)
            figures.single_cpu_ms = sum(self._used_ms(before, len(times)).values())
        self._refuse_stopped(answer)

    def _warm_up(self) -> None:
        count = min(WARM_UP, self._runs)
        self._ask("single", 0.05, count=count)
        self._ask("many", 0.05, count=count, in_flight=self._candidate.in_flight)

    def _many(self) -> None:
        """As many at a time as are allowed."""
        figures, in_flight = self._figures, self._candidate.in_flight
        before = self._stand.processor_sec()
        answer = self._ask("many", 0.2, count=self._runs, in_flight=in_flight)
        figures.many_runs, figures.in_flight = answer["done"], in_flight
        if not answer["done"]:
            raise CandidateError("no run ended in time")
        figures.cpu_ms_by_role = self._used_ms(before, answer["done"])
        figures.cpu_ms = sum(figures.cpu_ms_by_role.values())
        figures.runs_per_sec = answer["done"] / answer["seconds"]
        held = self._stand.memory_mib()
        figures.memory_mib_by_role = held
        figures.memory_mib = sum(mib for role, mib in held.items() if role != CLIENT)
        if bad := self._ask("verify", 0.05)["bad"]:
            raise CandidateError(f"{bad} of {answer['done']} runs had not ended well")

    def _used_ms(self, before: Mapping[str, float], runs: int) -> dict[str, float]:
        return {role: (now - before.get(role, 0.0)) * 1e3 / runs for role, now in self._stand.processor_sec().items()}

    def _syncs(self) -> None:
        """Counted apart, because it slows everything down."""
        count = min(SYNC_RUNS, self._runs)
        for name, do, in_flight in (("syncs_single", "single", 1), ("syncs_many", "many", self._candidate.in_flight)):
            done_before = self._done
            work = functools.partial(self._ask, do, 0.05, count=count, in_flight=in_flight)
            counted = count_syncs(self._stand.pids(), work, self._stand.directory)
            if counted is None or self._done == done_before:
                self._figures.notes.append("sync calls: strace is not there or may not look")
                return
            setattr(self._figures, name, counted / (self._done - done_before))

    def _list(self) -> None:
        """The newest 50, with so many there as could be made in time."""
        missing = max(0, self._plan.list_size - self._done)
        self._ask("fill", 1.0, count=missing, in_flight=self._candidate.in_flight)
        time.sleep(1.0)  # lists are brought up to date in the background
        answer = self._ask("page", 0.05, count=PAGES)
        times = answer["times_ms"]
        if not times or answer["runs"] != min(50, self._done):
            raise CandidateError(f"its list had {answer['runs']} runs on a page of 50")
        self._figures.page_of = self._done
        self._figures.page_ms, self._figures.page_p95_ms = statistics.median(times), percentile(times, 0.95)


def percentile(values: Sequence[float], share: float) -> float:
    """The value so large a share is not above."""
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]
