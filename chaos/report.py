"""The report: Markdown, with plots beside it."""

import collections
import statistics
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from tests.invariants import ENDS
from tests.kill.reading import Logged

from chaos.clients import Clients, Run
from chaos.faults import Happened
from chaos.judging import Judgement
from chaos.plots import Band, dots, lines

STEP_SEC = 2.0
MOST_SHOWN = 20
SLOWEST = 8


class Told(NamedTuple):
    """Everything there is to tell of one run of chaos."""

    command: str
    topology: str
    seed: int
    minutes: float
    began: float
    faults: list[Happened]
    clients: Clients
    judgement: Judgement
    ended_by_themselves: list[str]
    errors: dict[str, int]
    """What gateways and workers logged as errors, and how often."""
    notes: list[str]


def write(told: Told, file: Path) -> None:
    """Write the report and its plots."""
    file.parent.mkdir(parents=True, exist_ok=True)
    recovered = recovery_times(told)
    load, recovery = f"{file.stem}-load.svg", f"{file.stem}-recovery.svg"
    bands = [Band(fault.began - told.began, fault.healed - told.began, fault.what) for fault in told.faults]
    (file.parent / load).write_text(lines("runs a second", _series(told), bands, STEP_SEC))
    (file.parent / recovery).write_text(dots("seconds until every gateway takes runs that end", recovered, "s"))
    file.write_text(
        "\n".join(
            [*_head(told), *_verdicts(told), *_plots(told, load, recovery, recovered), *_slowest(told), *_lists(told)]
        )
    )


def recovery_times(told: Told) -> dict[str, list[float]]:
    """By kind of fault: how long after it was put right the last gateway accepted a run that came to its end.

    The time counts to the end of that run, as the log has it.
    """
    by_kind = collections.defaultdict[str, list[float]](list)
    ends = _ends(told)
    for fault in told.faults:
        seconds = _recovered(told.clients.accepted, ends, fault.healed)
        if seconds is not None:
            by_kind[fault.kind].append(seconds)
    return dict(sorted(by_kind.items()))


def _recovered(runs: Sequence[Run], ends: Mapping[str, float], healed: float) -> float | None:
    first: dict[str, float] = {}
    for run in runs:
        last = run.attempts[-1]
        ended = ends.get(run.run_id or "")
        if ended is None or ended < last.asked_at or run.cancel_answer is not None or run.flow == "ask":
            continue  # it tells nothing: it began with an earlier attempt, was cut short, or waited for somebody
        if last.asked_at >= healed:
            first[last.gateway] = min(first.get(last.gateway, float("inf")), ended - healed)
    return max(first.values(), default=None)


def _ends(told: Told) -> dict[str, float]:
    """When runs ended, as the log has it."""
    return {
        run_id: logged.stored_at
        for run_id, found in told.judgement.looked.items()
        for logged in found.log
        if logged.event.type in ENDS
    }


def _series(told: Told) -> dict[str, list[float]]:
    attempts = [attempt for run in told.clients.runs for attempt in run.attempts]
    moments = {
        answer: [attempt.answered_at for attempt in attempts if attempt.answer == answer]
        for answer in ("accepted", "refused", "unknown")
    }
    moments["ended"] = [*_ends(told).values()]
    last = max((moment for found in moments.values() for moment in found), default=told.began) - told.began
    series = {}
    for name, found in moments.items():
        counts = [0.0] * (int(last / STEP_SEC) + 1)
        for moment in found:
            counts[max(int((moment - told.began) / STEP_SEC), 0)] += 1 / STEP_SEC
        series[name] = counts
    return series


def _head(told: Told) -> Iterator[str]:
    runs, accepted = told.clients.runs, told.clients.accepted
    answers = collections.Counter(attempt.answer for run in runs for attempt in run.attempts)
    ends = collections.Counter(str(found.snapshot.get("status")) for found in told.judgement.looked.values())
    servers = "three NATS servers in network namespaces" if told.topology == "three" else "one NATS server"
    yield f"# Chaos: {servers}, {told.minutes:g} minutes, seed {told.seed}"
    yield ""
    yield f"`{told.command}`"
    yield ""
    lost = sum(1 for found in told.judgement.looked.values() if not found.log)
    yield f"**{'Everything held.' if told.judgement.holds else 'SOMETHING DID NOT HOLD: see below.'}** "
    yield f"{len(accepted)} runs were acknowledged, {lost} of them are lost. {len(told.faults)} faults were injected; "
    yield f"{told.judgement.settled_sec:.1f} s after the load had ended, everything had come to its end."
    yield ""
    yield "| | |"
    yield "|---|---|"
    yield f"| runs wanted | {len(runs)}, {told.clients.held_back} more held back because too many had no answer |"
    yield f"| requests | {', '.join(f'{count} {answer}' for answer, count in sorted(answers.items()))} |"
    yield f"| ends | {', '.join(f'{count} {end}' for end, count in sorted(ends.items()))} |"
    yield f"| cancels answered | {sum(run.cancel_answer is not None for run in accepted)} |"
    yield f"| watched to the end | {sum(run.watched_end is not None for run in accepted)} |"
    yield f"| processes that ended by themselves | {len(told.ended_by_themselves)} |"
    yield f"| logs without an end that nobody was promised | {len(told.judgement.open_logs)} |"
    for note in told.notes:
        yield f"| note | {note} |"
    yield ""


def _verdicts(told: Told) -> Iterator[str]:
    yield "## What must hold"
    yield ""
    yield "| | checked | broken |"
    yield "|---|---:|---:|"
    for verdict in told.judgement.verdicts:
        yield f"| {verdict.name} | {verdict.checked} | {len(verdict.broken)} |"
    yield ""
    broken = [problem for verdict in told.judgement.verdicts for problem in verdict.broken]
    if broken:
        yield "```"
        yield from broken[:MOST_SHOWN]
        yield from told.judgement.told
        yield "```"
        yield ""


def _plots(told: Told, load: str, recovery: str, recovered: Mapping[str, Sequence[float]]) -> Iterator[str]:
    yield "## Load held"
    yield ""
    yield f"![runs a second, accepted, refused and ended, with the faults marked]({load})"
    yield ""
    yield "## Recovery"
    yield ""
    yield "From the moment a fault was put right until each gateway had accepted a run that came to its end (so it "
    yield "includes the time the run itself takes, the election of a new leader, the ack wait of "
    yield "2 s, and the next fault if that came at once)."
    yield ""
    yield f"![seconds to recovery by kind of fault]({recovery})"
    yield ""
    yield "| fault | times | median | worst |"
    yield "|---|---:|---:|---:|"
    counts = collections.Counter(fault.kind for fault in told.faults)
    for kind, times in recovered.items():
        yield f"| {kind} | {counts[kind]} | {statistics.median(times):.1f} s | {max(times):.1f} s |"
    yield ""


def _cell(text: str) -> str:
    """As a cell of a table can hold it."""
    return text.replace("|", "\\|")


def _slowest(told: Told) -> Iterator[str]:
    """The runs that took longest after the load was over, which is what convergence waited for."""
    ends = _ends(told)
    took = sorted(
        ((ends[run.run_id] - run.attempts[-1].answered_at, run) for run in told.clients.accepted if run.run_id in ends),
        key=lambda found: -found[0],
    )
    yield "## The slowest runs"
    yield ""
    yield "| accepted at | ended after | flow | status | longest silence in its log | run |"
    yield "|---:|---:|---|---|---|---|"
    for seconds, run in took[:SLOWEST]:
        found = told.judgement.looked[run.run_id or ""]
        accepted, status = run.attempts[-1].answered_at - told.began, found.snapshot.get("status")
        yield (f"| {accepted:.1f} s | {seconds:.1f} s | {run.flow} | {status} | {_silence(found.log)} | {run.run_id} |")
    yield ""


def _silence(log: Sequence[Logged]) -> str:
    """Where the log stood still for longest."""
    gap, before, after = max(
        ((two.stored_at - one.stored_at, one, two) for one, two in pairwise(log)), key=lambda found: found[0]
    )
    return f"{gap:.1f} s between {before.event.type.value} and {after.event.type.value}"


def _lists(told: Told) -> Iterator[str]:
    yield "## Faults injected"
    yield ""
    yield "| at | for | what |"
    yield "|---:|---:|---|"
    for fault in told.faults:
        yield f"| {fault.began - told.began:.1f} s | {fault.healed - fault.began:.1f} s | {_cell(fault.what)} |"
    yield ""
    yield "## Errors that were logged"
    yield ""
    yield "| what | times |"
    yield "|---|---:|"
    yield from (f"| {_cell(what)} | {count} |" for what, count in told.errors.items())
    yield ""
    if told.ended_by_themselves:
        yield "## Processes that ended by themselves and were started again"
        yield ""
        yield from (f"- {line}" for line in told.ended_by_themselves)
        yield ""
    if told.judgement.open_logs:
        yield "## Logs without an end that nobody was promised"
        yield ""
        yield from (f"- {run_id}" for run_id in told.judgement.open_logs[:MOST_SHOWN])
        yield ""
