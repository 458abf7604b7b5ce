"""Describes events, nodes and values in one line for users; the log has the whole texts."""

import json
from datetime import datetime
from typing import Any

from pyoco_server.app.runtime.outputs import TEXT_ONLY, VALUE
from pyoco_server.core import Event, ExecutionState, NodeState, NodeStatus
from pyoco_server.core.json_codec import JsonObject
from pyoco_server.core.payloads import (
    ExecutionCanceled,
    ExecutionCancelRequested,
    ExecutionCreated,
    ExecutionFailed,
    NodeCanceled,
    NodeFailed,
    NodeFailReported,
    NodeProgressReported,
    NodeStarted,
    NodeSucceeded,
    NodeWaiting,
)
from pyoco_server.values.codec import KIND

LONGEST = 160
LONGEST_REMARK = 1_000
"""The longest error or note: its remedy is at its end."""


def detail(event: Event) -> str:
    """Describe an event beyond its type and node; empty if there is nothing."""
    match event.payload:
        case ExecutionCreated(graph_id=graph_id, input=given):
            params = (given or {}).get("params") or {}
            return f"{event.execution_id} flow={graph_id}" + (f" params={shown(params)}" if params else "")
        case NodeStarted(attempt=attempt):
            return f"attempt {attempt}" if attempt > 1 else ""
        case NodeProgressReported(progress=percent, message=message):
            return progress(percent, message)
        case NodeWaiting(wait_key=key, prompt=prompt, extra=extra):
            return waiting(key, prompt, extra.get("deadline"))
        case NodeSucceeded(output=output):
            return result(output)
        case NodeFailReported(error=error) | NodeFailed(error=error) | ExecutionFailed(error=error):
            return failure(error)
        case NodeCanceled(skip=skip, reason=reason):
            return f"cannot run: '{skip.by}' did not lead here" if skip else one_line(reason or "")
        case ExecutionCancelRequested(reason=reason) | ExecutionCanceled(reason=reason):
            return one_line(reason or "")
        case _:
            return ""


def progress(percent: float | None, message: str | None) -> str:
    """Describe the progress of a node."""
    parts = ([] if percent is None else [f"{percent:.0f} %"]) + ([one_line(message)] if message else [])
    return " ".join(parts)


def waiting(key: str | None, prompt: JsonObject | None, deadline: str | None = None) -> str:
    """Describe what a node waits for."""
    parts = [f"key={key}"] if key else []
    if prompt:
        parts.append(f"prompt={prompt_text(prompt)}")
    if deadline:
        parts.append(f"until {clock_time(datetime.fromisoformat(deadline))}")
    return " ".join(parts)


def prompt_text(prompt: JsonObject) -> str:
    """Return a prompt as text; one that has only a text as that text."""
    text = prompt.get("text")
    return one_line(text) if len(prompt) == 1 and isinstance(text, str) else shown(prompt)


def question(node: NodeState) -> str:
    """Return the question for the user at the terminal, and how to answer it."""
    prompt = f": {prompt_text(node.prompt)}" if node.prompt else ""
    return f"'{node.node_id}' waits for an answer (key {node.wait_key}){prompt}\nType JSON or text, then Enter:"


def result(output: JsonObject | None) -> str:
    """Describe the output of a node; empty for None."""
    if output is None or output.get(VALUE, "") is None:
        return ""
    text = shown(output[VALUE]) if VALUE in output else str(output.get(TEXT_ONLY, ""))
    return of_kind(text, output.get(KIND))


def of_kind(text: str, kind: object) -> str:
    """Describe an output on one line, with its kind unless it is plain JSON: ``{"$tuple": [1]} [tagged]``."""
    return one_line(text) if kind is None else one_line(f"{one_line(text, most=LONGEST - 10)} [{kind}]".lstrip())


def failure(error: JsonObject | None) -> str:
    """Describe an error by its code and message."""
    parts = [str(error[field]) for field in ("code", "message") if error and error.get(field)]
    return one_line(": ".join(parts))


def failures(state: ExecutionState) -> list[str]:
    """Describe why a run failed: the error of each failed node, with the traceback of the user's code."""
    if state.status != "FAILED":
        return []
    failed = sorted((node for node in state.nodes.values() if node.status is NodeStatus.FAILED), key=_innermost_first)
    found: dict[str, str] = {}
    for node in failed:  # a block fails with the error of a node inside it: the error is shown once, with that node
        found.setdefault(_account(node.error), node.node_id)
    return [f"'{node_id}' failed: {account}" for account, node_id in found.items()]


def _innermost_first(node: NodeState) -> tuple[int, str]:
    return -node.node_id.count("/"), node.node_id


def _account(error: JsonObject | None) -> str:
    traceback = ((error or {}).get("detail") or {}).get("traceback")
    text = failure(error) or "without a reason"
    return f"{text}\n{str(traceback).rstrip()}" if traceback else text


def duration(seconds: float) -> str:
    """Format a length of time."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def lasted(state: ExecutionState) -> str:
    """Return how long a run took; empty until it has ended."""
    end = state.completed_at or state.failed_at or state.canceled_at
    return duration((end - state.created_at).total_seconds()) if end and state.created_at else ""


def clock_time(moment: datetime) -> str:
    """Format the local time of day."""
    return moment.astimezone().strftime("%H:%M:%S")


def shown(value: Any) -> str:  # noqa: ANN401 any value of the user's
    """Format a value on one line: as JSON if possible, else by ``repr``."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        text = repr(value)
    return one_line(text)


def one_line(text: str, *, most: int = LONGEST) -> str:
    """Shorten a text to one line without control characters, which could control the terminal."""
    flat = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    return flat if len(flat) <= most else flat[: most - 1] + "…"
