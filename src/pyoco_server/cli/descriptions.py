"""Events and nodes in words, for people. Texts are cut to one line; the whole is in the log."""

import json
from datetime import datetime
from typing import Any

from pyoco_server.app.outputs import TEXT_ONLY, VALUE
from pyoco_server.core import Event, ExecutionState, NodeState, NodeStatus
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
from pyoco_server.core.wire import JsonObject
from pyoco_server.values.codec import KIND

LONGEST = 160
LONGEST_REMARK = 1_000
"""Why something failed is read to its end, where the remedy is."""


def detail(event: Event) -> str:
    """What an event says beyond its type and node; empty if nothing."""
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
    """How far a node is."""
    parts = ([] if percent is None else [f"{percent:.0f} %"]) + ([one_line(message)] if message else [])
    return " ".join(parts)


def waiting(key: str | None, prompt: JsonObject | None, deadline: str | None = None) -> str:
    """What a node waits for."""
    parts = [f"key={key}"] if key else []
    if prompt:
        parts.append(f"prompt={prompt_text(prompt)}")
    if deadline:
        parts.append(f"until {clock_time(datetime.fromisoformat(deadline))}")
    return " ".join(parts)


def prompt_text(prompt: JsonObject) -> str:
    """A prompt that is only a text is shown as that text."""
    text = prompt.get("text")
    return one_line(text) if len(prompt) == 1 and isinstance(text, str) else shown(prompt)


def question(node: NodeState) -> str:
    """What somebody at the terminal is asked, and how to answer."""
    prompt = f": {prompt_text(node.prompt)}" if node.prompt else ""
    return f"'{node.node_id}' waits for an answer (key {node.wait_key}){prompt}\nType JSON or text, then Enter:"


def result(output: JsonObject | None) -> str:
    """What a node returned; nothing for None."""
    if output is None or output.get(VALUE, "") is None:
        return ""
    text = shown(output[VALUE]) if VALUE in output else str(output.get(TEXT_ONLY, ""))
    return of_kind(text, output.get(KIND))


def of_kind(text: str, kind: object) -> str:
    """An output on one line, with the way it is kept unless that is plain JSON: ``{"$tuple": [1]} [tagged]``."""
    return one_line(text) if kind is None else one_line(f"{one_line(text, most=LONGEST - 10)} [{kind}]".lstrip())


def failure(error: JsonObject | None) -> str:
    """The code and message of an error."""
    parts = [str(error[field]) for field in ("code", "message") if error and error.get(field)]
    return one_line(": ".join(parts))


def failures(state: ExecutionState) -> list[str]:
    """What went wrong in a run that failed: for each failed node its error, with the traceback of the user's code."""
    if state.status != "FAILED":
        return []
    failed = sorted((node for node in state.nodes.values() if node.status is NodeStatus.FAILED), key=_innermost_first)
    told: dict[str, str] = {}
    for node in failed:  # a block fails with the error of the node inside it: that is told once, by the one inside
        told.setdefault(_account(node.error), node.node_id)
    return [f"'{node_id}' failed: {account}" for account, node_id in told.items()]


def _innermost_first(node: NodeState) -> tuple[int, str]:
    return -node.node_id.count("/"), node.node_id


def _account(error: JsonObject | None) -> str:
    traceback = ((error or {}).get("detail") or {}).get("traceback")
    text = failure(error) or "without a reason"
    return f"{text}\n{str(traceback).rstrip()}" if traceback else text


def duration(seconds: float) -> str:
    """A length of time, as exact as one wants to read it."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def lasted(state: ExecutionState) -> str:
    """How long a run took; empty while it goes on."""
    end = state.completed_at or state.failed_at or state.canceled_at
    return duration((end - state.created_at).total_seconds()) if end and state.created_at else ""


def clock_time(moment: datetime) -> str:
    """The time of day where the reader is."""
    return moment.astimezone().strftime("%H:%M:%S")


def shown(value: Any) -> str:  # noqa: ANN401 any value of the user's
    """A value on one line: as JSON if it is, else as Python writes it."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        text = repr(value)
    return one_line(text)


def one_line(text: str, *, most: int = LONGEST) -> str:
    """The text without line breaks and other control characters, which could drive a terminal, and not too long."""
    flat = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    return flat if len(flat) <= most else flat[: most - 1] + "…"
