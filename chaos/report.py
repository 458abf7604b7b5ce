"""Write the report of a chaos run: Markdown, with plots beside it."""

import collections
import contextlib
import json
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


class ChaosResult(NamedTuple):
    """The result of one chaos run."""

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
    """How often gateways and workers logged each error."""
    notes: list[str]


def write(result: ChaosResult, file: Path) -> None:
    """Write the report and its plots."""
    file.parent.mkdir(parents=True, exist_ok=True)
    recovered = recovery_times(result)
    load, recovery = f"{file.stem}-load.svg", f"{file.stem}-recovery.svg"
    bands = [Band(fault.began - result.began, fault.healed - result.began, fault.what) for fault in result.faults]
    (file.parent / load).write_text(lines("runs a second", _series(result), bands, STEP_SEC))
    (file.parent / recovery).write_text(dots("seconds until every gateway takes runs that end", recovered, "s"))
    file.write_text(
        "\n".join(
            [
                *_head(result),
                *_verdicts(result),
                *_plots(result, load, recovery, recovered),
                *_slowest(result),
                *_lists(result),
            ]
        )
    )


def errors_in(home: Path) -> dict[str, int]:
    """Count the logged errors by id, action and type, and the tracebacks that were printed and not logged."""
    found: collections.Counter[str] = collections.Counter()
    for log in home.glob("*.log"):
        for line in log.read_text().splitlines():
            if line.startswith("Traceback"):
                found["a traceback that was printed, not logged"] += 1
            with contextlib.suppress(ValueError):
                entry = json.loads(line)
                if isinstance(entry, dict) and entry.get("level") in {"ERROR", "CRITICAL"}:
                    what = f"{entry.get('err_id') or 'no id'} {entry.get('action') or entry.get('message')}"
                    kind = str(entry.get("exception_class") or "").rpartition(".")[2]
                    found[f"{what} ({kind})" if kind else what] += 1
    return dict(found.most_common())


def recovery_times(result: ChaosResult) -> dict[str, list[float]]:
    """Return by kind of fault how long after its end the last gateway accepted a run that ended.

    The time counts to the end of that run, as the log has it.
    """
    by_kind = collections.defaultdict[str, list[float]](list)
    ends = _ends(result)
    for fault in result.faults:
        seconds = _recovered(result.clients.accepted, ends, fault.healed)
        if seconds is not None:
            by_kind[fault.kind].append(seconds)
    return dict(sorted(by_kind.items()))


def _recovered(runs: Sequence[Run], ends: Mapping[str, float], healed: float) -> float | None:
    first: dict[str, float] = {}
    for run in runs:
        last = run.attempts[-1]
        ended = ends.get(run.run_id or "")
        if ended is None or ended < last.asked_at or run.cancel_answer is not None or run.flow == "ask":
            continue  # not comparable: an earlier attempt began it, it was cancelled, or it waited for input
        if last.asked_at >= healed:
            first[last.gateway] = min(first.get(last.gateway, float("inf")), ended - healed)
    return max(first.values(), default=None)


def _ends(result: ChaosResult) -> dict[str, float]:
    """Return when runs ended, from their logs."""
    return {
        run_id: logged.stored_at
        for run_id, found in result.judgement.looked.items()
        for logged in found.log
        if logged.event.type in ENDS
    }


def _series(result: ChaosResult) -> dict[str, list[float]]:
    attempts = [attempt for run in result.clients.runs for attempt in run.attempts]
    moments = {
        answer: [attempt.answered_at for attempt in attempts if attempt.answer == answer]
        for answer in ("accepted", "refused", "unknown")
    }
    moments["ended"] = [*_ends(result).values()]
    last = max((moment for found in moments.values() for moment in found), default=result.began) - result.began
    series = {}
    for name, found in moments.items():
        counts = [0.0] * (int(last / STEP_SEC) + 1)
        for moment in found:
            counts[max(int((moment - result.began) / STEP_SEC), 0)] += 1 / STEP_SEC
        series[name] = counts
    return series


def _head(result: ChaosResult) -> Iterator[str]:
    runs, accepted = result.clients.runs, result.clients.accepted
    answers = collections.Counter(attempt.answer for run in runs for attempt in run.attempts)
    ends = collections.Counter(str(found.snapshot.get("status")) for found in result.judgement.looked.values())
    servers = "three NATS servers in network namespaces" if result.topology == "three" else "one NATS server"
    yield f"# Chaos: {servers}, {result.minutes:g} minutes, seed {result.seed}"
    yield ""
    yield f"`{result.command}`"
    yield ""
    lost = sum(1 for found in result.judgement.looked.values() if not found.log)
    yield f"**{'All guarantees held.' if result.judgement.holds else 'A GUARANTEE IS BROKEN: see below.'}** "
    yield f"{len(accepted)} runs were acknowledged, {lost} of them are lost. {len(result.faults)} faults were injected;"
    yield f"{result.judgement.settled_sec:.1f} s after the load had ended, every run had ended."
    yield ""
    yield "| | |"
    yield "|---|---|"
    yield f"| runs wanted | {len(runs)}, {result.clients.held_back} more held back because too many had no answer |"
    yield f"| requests | {', '.join(f'{count} {answer}' for answer, count in sorted(answers.items()))} |"
    yield f"| ends | {', '.join(f'{count} {end}' for end, count in sorted(ends.items()))} |"
    yield f"| cancels answered | {sum(run.cancel_answer is not None for run in accepted)} |"
    yield f"| watched to the end | {sum(run.watched_end is not None for run in accepted)} |"
    yield f"| processes that ended by themselves | {len(result.ended_by_themselves)} |"
    yield f"| logs without an end whose run was never acknowledged | {len(result.judgement.open_logs)} |"
    for note in result.notes:
        yield f"| note | {note} |"
    yield ""


def _verdicts(result: ChaosResult) -> Iterator[str]:
    yield "## What must hold"
    yield ""
    yield "| | checked | broken |"
    yield "|---|---:|---:|"
    for verdict in result.judgement.verdicts:
        yield f"| {verdict.name} | {verdict.checked} | {len(verdict.broken)} |"
    yield ""
    broken = [problem for verdict in result.judgement.verdicts for problem in verdict.broken]
    if broken:
        yield "```"
        yield from broken[:MOST_SHOWN]
        yield from result.judgement.broken_logs
        yield "```"
        yield ""


def _plots(result: ChaosResult, load: str, recovery: str, recovered: Mapping[str, Sequence[float]]) -> Iterator[str]:
    yield "## Load held"
    yield ""
    yield f"![runs a second, accepted, refused and ended, with the faults marked]({load})"
    yield ""
    yield "## Recovery"
    yield ""
    yield "From the end of a fault until each gateway had accepted a run that ended (so it "
    yield "includes the time the run itself takes, the election of a new leader, the ack wait of "
    yield "2 s, and the next fault if that came at once)."
    yield ""
    yield f"![seconds to recovery by kind of fault]({recovery})"
    yield ""
    yield "| fault | times | median | worst |"
    yield "|---|---:|---:|---:|"
    counts = collections.Counter(fault.kind for fault in result.faults)
    for kind, times in recovered.items():
        yield f"| {kind} | {counts[kind]} | {statistics.median(times):.1f} s | {max(times):.1f} s |"
    yield ""


def _cell(text: str) -> str:
    """Escape a text for a cell of a table."""
    return text.replace("|", "\\|")


def _slowest(result: ChaosResult) -> Iterator[str]:
    """List the runs that took longest, which determine how long convergence takes."""
    ends = _ends(result)
    took = sorted(
        (
            (ends[run.run_id] - run.attempts[-1].answered_at, run)
            for run in result.clients.accepted
            if run.run_id in ends
        ),
        key=lambda found: -found[0],
    )
    yield "## The slowest runs"
    yield ""
    yield "| accepted at | ended after | flow | status | longest silence in its log | run |"
    yield "|---:|---:|---|---|---|---|"
    for seconds, run in took[:SLOWEST]:
        found = result.judgement.looked[run.run_id or ""]
        accepted, status = run.attempts[-1].answered_at - result.began, found.snapshot.get("status")
        yield (f"| {accepted:.1f} s | {seconds:.1f} s | {run.flow} | {status} | {_silence(found.log)} | {run.run_id} |")
    yield ""


def _silence(log: Sequence[Logged]) -> str:
    """Return the longest pause between two commits of the log."""
    gap, before, after = max(
        ((two.stored_at - one.stored_at, one, two) for one, two in pairwise(log)), key=lambda found: found[0]
    )
    return f"{gap:.1f} s between {before.event.type.value} and {after.event.type.value}"


def _lists(result: ChaosResult) -> Iterator[str]:
    yield "## Faults injected"
    yield ""
    yield "| at | for | what |"
    yield "|---:|---:|---|"
    for fault in result.faults:
        yield f"| {fault.began - result.began:.1f} s | {fault.healed - fault.began:.1f} s | {_cell(fault.what)} |"
    yield ""
    yield "## Errors that were logged"
    yield ""
    yield "| what | times |"
    yield "|---|---:|"
    yield from (f"| {_cell(what)} | {count} |" for what, count in result.errors.items())
    yield ""
    if result.ended_by_themselves:
        yield "## Processes that ended by themselves and were restarted"
        yield ""
        yield from (f"- {line}" for line in result.ended_by_themselves)
        yield ""
    if result.judgement.open_logs:
        yield "## Logs without an end whose run was never acknowledged"
        yield ""
        yield from (f"- {run_id}" for run_id in result.judgement.open_logs[:MOST_SHOWN])
        yield ""
