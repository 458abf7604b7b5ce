"""A run's snapshot for a terminal: its status, its tasks, and what it waits for."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from pyoco_server.app.runtime.unused_params import read_unused
from pyoco_server.cli.shared.descriptions import (
    LONGEST_REMARK,
    duration,
    failure,
    of_kind,
    one_line,
    progress,
    prompt_text,
    shown,
)
from pyoco_server.cli.shared.output import STYLES, cell, console, moment
from pyoco_server.core.json_codec import JsonObject
from pyoco_server.values.codec import KIND

_ROUND_WORDS: Final = {
    "failed": "failed",
    "cancelled": "cancelled",
    "running": "running",
    "not_started": "not started",
}


def snapshot_view(snapshot: JsonObject) -> RenderableType:
    """Return the snapshot as a terminal shows it."""
    parts: list[RenderableType] = [_headline(snapshot)]
    for name, text in _remarks(snapshot):
        parts.append(Text.assemble((f"{name}: ", "bold"), one_line(text, most=LONGEST_REMARK)))
    tasks = _tasks(snapshot)
    parts += [tasks] if tasks is not None else []
    parts += [_wait(wait, snapshot) for wait in snapshot.get("waiting") or () if isinstance(wait, Mapping)]
    return Group(*parts)


@contextmanager
def live_snapshots() -> Iterator[Callable[[JsonObject], None]]:
    """Yield a function that shows a snapshot in place of the one before."""
    with Live(console=console(), auto_refresh=False) as live:
        yield lambda snapshot: live.update(snapshot_view(snapshot), refresh=True)


def status_line(snapshot: JsonObject) -> str:
    """Return the statuses of a run and its tasks in one line, without the time."""
    tasks = snapshot.get("tasks")
    words = [f"{name}={status}" for name, status in tasks.items()] if isinstance(tasks, dict) else []
    error = snapshot.get("error")
    line = one_line(" ".join([str(snapshot.get("status")), *words]))
    return f"{line} error: {one_line(str(error), most=LONGEST_REMARK)}" if error else line


def _headline(snapshot: JsonObject) -> Text:
    status = str(snapshot.get("status"))
    took = _lasted(snapshot.get("start_time"), snapshot.get("end_time"))
    return Text.assemble(
        (status, STYLES.get(status, "bold")),
        f"  {one_line(str(snapshot.get('flow_name')))}  {one_line(str(snapshot.get('run_id')))}",
        (f"  {took}" if took else "", "dim"),
    )


def _remarks(snapshot: JsonObject) -> list[tuple[str, str]]:
    remarks = {
        "params": shown(snapshot["params"]) if snapshot.get("params") else None,
        "unused params": ", ".join(_unused(snapshot)),
        "rounds": "; ".join(_rounds(snapshot)),
        "worker": snapshot.get("worker_id"),
        "wheels": ", ".join(map(str, snapshot["wheels"])) if isinstance(snapshot.get("wheels"), dict) else None,
        "updated": moment(snapshot.get("updated_at")),
        "cancel requested": moment(snapshot.get("cancel_requested_at")),
        "reason": snapshot.get("cancel_reason"),
        "error": snapshot.get("error"),
    }
    return [(name, str(value)) for name, value in remarks.items() if value]


def _unused(snapshot: JsonObject) -> list[str]:
    found = read_unused(snapshot.get("unused_params")) or {}
    return [f"{name} (did you mean {near}?)" if near else name for name, near in found.items()]


def _rounds(snapshot: JsonObject) -> list[str]:
    """Return, for each task inside a loop, the number of its rounds by outcome."""
    tallies = snapshot.get("task_tallies")
    return [
        f"{name} {', '.join(_counts(tally))}"
        for name, tally in (tallies.items() if isinstance(tallies, dict) else ())
        if isinstance(tally, dict)
    ]


def _counts(tally: JsonObject) -> list[str]:
    """Return the number of rounds that succeeded, and the other numbers that are not zero."""
    others = [f"{tally[name]} {word}" for name, word in _ROUND_WORDS.items() if tally.get(name)]
    return [f"{tally.get('ok', 0)} ok", *others]


def _tasks(snapshot: JsonObject) -> Table | None:
    """Return a row for each node with records, else one for each task."""
    records = snapshot.get("task_records")
    table = Table(box=None, pad_edge=False, header_style="bold")
    if isinstance(records, dict) and records:
        for title in ("TASK", "STATUS", "ATTEMPT", "TOOK", "RESULT"):
            table.add_column(title, overflow="ellipsis")
        for node_id, record in records.items():
            table.add_row(*_record(node_id, record if isinstance(record, dict) else {}))
        return table
    tasks = snapshot.get("tasks")
    if not isinstance(tasks, dict) or not tasks:
        return None
    table.add_column("TASK")
    table.add_column("STATUS")
    for name, status in tasks.items():
        table.add_row(cell(name), cell(status))
    return table


def _record(node_id: str, record: Mapping[str, Any]) -> tuple[Text, ...]:
    error = record.get("error")
    if error is not None and record.get("status") != "SUCCEEDED":  # else it is the error of an earlier attempt
        result: object = failure(error) if isinstance(error, dict) else str(error)
    elif "output" in record or KIND in record:
        text = shown(record["output"]) if "output" in record else str(record.get("output_repr", ""))
        result = of_kind(text, record.get(KIND))
    else:
        result = progress(record.get("progress"), record.get("message")) or None
    took = _lasted(record.get("started_at"), record.get("ended_at"))
    return cell(node_id), cell(record.get("status")), cell(record.get("attempt")), cell(took), cell(result)


def _wait(wait: Mapping[str, Any], snapshot: JsonObject) -> Text:
    node_id, prompt = one_line(str(wait.get("node_id"))), wait.get("prompt")
    asked = f": {prompt_text(prompt)}" if isinstance(prompt, dict) and prompt else ""
    how = f"pyoco-client resume {one_line(str(snapshot.get('run_id')))} {node_id} --input JSON"
    return Text.assemble((f"'{node_id}' waits{asked}", STYLES["WAITING"]), (f"  ({how})", "dim"))


def _lasted(begin: object, end: object) -> str | None:
    if isinstance(begin, int | float) and isinstance(end, int | float):
        return duration(max(float(end) - float(begin), 0.0))
    return None
