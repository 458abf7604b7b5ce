"""Drive one graph through the core, with a retry, an approval and a join, and print what happened."""

import itertools
from datetime import UTC, datetime, timedelta
from typing import Any

from pyoco_server.core import (
    Event,
    ExecutionState,
    advance,
    decode_command,
    event_to_dict,
    fold,
    graph_from_dict,
    initial_state,
)

GRAPH = graph_from_dict(
    {
        "graphId": "publish-report",
        "nodes": [
            {"nodeId": "start", "nodeType": "Start"},
            {"nodeId": "split", "nodeType": "Fork"},
            {"nodeId": "fetch", "nodeType": "Task", "retries": 1},
            {"nodeId": "approve", "nodeType": "Wait"},
            {"nodeId": "meet", "nodeType": "Join", "policy": "ALL_SUCCESS"},
            {"nodeId": "publish", "nodeType": "Task"},
            {"nodeId": "end", "nodeType": "Success"},
        ],
        "edges": [
            {"from": "start", "to": "split"},
            {"from": "split", "to": "fetch"},
            {"from": "split", "to": "approve"},
            {"from": "fetch", "to": "meet"},
            {"from": "approve", "to": "meet"},
            {"from": "meet", "to": "publish"},
            {"from": "publish", "to": "end"},
        ],
    }
)

SCRIPT: list[dict[str, Any]] = [
    {"type": "CreateExecution", "graphId": GRAPH.graph_id, "input": {"month": "2026-01"}},
    {"type": "StartExecution"},
    {"type": "StartNode", "nodeId": "fetch", "workerId": "worker-1"},
    {"type": "FailNode", "nodeId": "fetch", "error": {"code": "TIMEOUT", "message": "the source did not answer"}},
    {"type": "StartNode", "nodeId": "approve"},
    {"type": "PutNodeWaiting", "nodeId": "approve", "waitKey": "sign-off", "prompt": {"question": "Publish?"}},
    {"type": "StartNode", "nodeId": "fetch", "workerId": "worker-2"},
    {"type": "SucceedNode", "nodeId": "fetch", "output": {"rows": 1204}},
    {"type": "RequestResumeNode", "nodeId": "approve", "resumeKey": "sign-off"},
    {"type": "ResumeNode", "nodeId": "approve", "resumeKey": "sign-off", "input": {"approved": True}},
    {"type": "SucceedNode", "nodeId": "approve", "output": {"approved": True}},
    {"type": "StartNode", "nodeId": "publish", "workerId": "worker-1"},
    {"type": "SucceedNode", "nodeId": "publish", "output": {"url": "/reports/2026-01"}},
]


def main() -> None:
    """Run the script and print the log and the final state."""
    state = initial_state("demo")
    log: list[Event] = []
    now = datetime(2026, 1, 31, 9, 0, tzinfo=UTC)
    numbers = itertools.count(1)
    for fields in SCRIPT:
        command = decode_command({"executionId": "demo", "actor": {"kind": "user", "id": "ann"}, **fields})
        commit = advance(GRAPH, state, command, now=now, new_id=lambda: f"event-{next(numbers):03d}")
        state = fold(commit, state)
        log += commit
        now += timedelta(seconds=2)
    print_log(log)
    print_state(state)


def print_log(log: list[Event]) -> None:
    """One line an event: when, what, by whom, and because of which other event."""
    position = {event.event_id: number for number, event in enumerate(log, 1)}
    rows = [["#", "time", "event", "node", "by", "because of", "detail"]]
    for number, event in enumerate(log, 1):
        payload = event_to_dict(event)["payload"]
        node = payload.pop("nodeId", "")
        payload.pop("meta", None)
        detail = " ".join(f"{key}={value}" for key, value in payload.items())
        because = f"#{position[event.causation_id]}" if event.causation_id in position else ""
        by = event.actor.id or event.actor.kind.value
        rows.append([str(number), f"{event.occurred_at:%H:%M:%S}", event.type.value, node, by, because, detail])
    print(f"event log of execution 'demo' on graph '{GRAPH.graph_id}'\n")
    print_table(rows, widest=60)


def print_state(state: ExecutionState) -> None:
    """One line a node, and how it all ended."""
    rows = [["node", "type", "status", "attempt", "worker", "output"]]
    for node_id in GRAPH.order:
        node = state.nodes[node_id]
        output = str(node.output) if node.output else ""
        rows.append([node_id, node.node_type, node.status.value, str(node.attempt), node.worker_id or "", output])
    print(f"\nfinal state: {state.status} at version {state.version}\n")
    print_table(rows, widest=60)


def print_table(rows: list[list[str]], widest: int) -> None:
    """Print rows in columns; the first row is the heading."""
    shown = [[cell if len(cell) <= widest else cell[: widest - 1] + "…" for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in shown) for column in range(len(rows[0]))]
    shown.insert(1, ["-" * width for width in widths])
    for row in shown:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


if __name__ == "__main__":
    main()
