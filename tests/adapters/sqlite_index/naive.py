"""The read index as a plain list: slow, and simple enough to be the reference."""

import json
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from pyoco_server.app.ports import DueWait, RunQuery, SnapshotChange, TenantUsage

ENDED = ("COMPLETED", "FAILED", "CANCELLED")


class Run(NamedTuple):
    run_id: str
    sequence: int
    submitted_at: float
    snapshot: dict[str, Any]
    bytes_of_body: int

    @property
    def size(self) -> int:
        more = (self.snapshot.get(name) for name in ("stored_bytes", "workflow_yaml_bytes"))
        return self.bytes_of_body + sum(size for size in more if isinstance(size, int))

    @property
    def summary(self) -> dict[str, Any]:
        kept = {name: value for name, value in self.snapshot.items() if name not in {"params", "task_records"}}
        return {**kept, "run_id": self.run_id}


class NaiveIndex:
    def __init__(self) -> None:
        self.runs: dict[str, Run] = {}
        self.position = 0

    def apply(self, changes: Sequence[SnapshotChange], position: int) -> None:
        newest = {change.run_id: change for change in sorted(changes, key=lambda change: change.sequence)}
        for change in newest.values():
            known = self.runs.get(change.run_id)
            if change.sequence <= self.position or (known is not None and change.sequence <= known.sequence):
                continue
            snapshot = read(change.body)
            if snapshot is None:
                self.runs.pop(change.run_id, None)
                continue
            placed = known.submitted_at if known else snapshot.get("start_time") or snapshot["updated_at"]
            submitted_at = snapshot.get("submitted_at") or placed
            self.runs[change.run_id] = Run(
                change.run_id, change.sequence, submitted_at, snapshot, len(change.body or b"")
            )
        self.position = max(self.position, position)

    def forget(self, before: int) -> None:
        self.runs = {run_id: run for run_id, run in self.runs.items() if run.sequence >= before}

    def page(self, query: RunQuery) -> list[Run]:
        newest_first = not query.oldest_first
        listed = sorted(self.runs.values(), key=lambda run: (run.submitted_at, run.run_id), reverse=newest_first)
        return [run for run in listed if fits(run, query)][: max(query.limit, 0)]

    def counts(self, tenant_id: str | None = None) -> dict[str, int]:
        runs = self.page(RunQuery(tenant_id=tenant_id, limit=len(self.runs)))
        return dict(Counter(run.snapshot["status"] for run in runs))

    def submitted_on_day_of(self, moment: float, tenant_id: str | None) -> int:
        runs = self.page(RunQuery(tenant_id=tenant_id, limit=len(self.runs)))
        return sum(run.submitted_at // 86_400 == moment // 86_400 for run in runs)

    def usage(self, tenant_id: str, since: float) -> TenantUsage:
        runs = self.page(RunQuery(tenant_id=tenant_id, limit=len(self.runs)))
        live = sum(run.snapshot["status"] not in ENDED for run in runs)
        return TenantUsage(live, sum(run.submitted_at > since for run in runs), sum(run.size for run in runs))

    def due(self, now: float) -> set[DueWait]:
        return {
            DueWait(run.run_id, node["node_id"])
            for run in self.runs.values()
            if run.snapshot["status"] not in ENDED
            for node in run.snapshot.get("waiting", ())
            if node["deadline"] is not None and datetime.fromisoformat(node["deadline"]).timestamp() <= now
        }

    def silent(self, since: float) -> set[str]:
        return {run.run_id for run in self.runs.values() if is_watched(run.snapshot) and alive_at(run.snapshot) < since}


def read(body: bytes | None) -> dict[str, Any] | None:
    try:
        snapshot = json.loads(body or b"")
    except ValueError:
        return None
    return snapshot if isinstance(snapshot, dict) and isinstance(snapshot.get("status"), str) else None


def fits(run: Run, query: RunQuery) -> bool:
    snapshot = run.snapshot
    equal = {
        "tenant_id": query.tenant_id,
        "status": query.status,
        "flow_name": query.flow,
        "tag": query.tag,
        "workflow_yaml_sha256": query.workflow_yaml_sha256,
    }
    return (
        all(wanted is None or snapshot.get(name) == wanted for name, wanted in equal.items())
        and (query.updated_after is None or snapshot["updated_at"] > query.updated_after)
        and (query.submitted_after is None or run.submitted_at > query.submitted_after)
        and (not query.held or is_held(snapshot))
        and run.run_id.startswith(query.run_id_prefix or "")
        and (query.before is None or is_behind((run.submitted_at, run.run_id), query))
    )


def is_behind(place: tuple[float, str], query: RunQuery) -> bool:
    before = tuple(query.before or ())
    return place > before if query.oldest_first else place < before


def is_held(snapshot: dict[str, Any]) -> bool:
    stands = snapshot["status"] not in {*ENDED, "CANCELLING"}
    return stands and isinstance(snapshot.get("held"), dict) and snapshot["driven_by"] is None


def is_watched(snapshot: dict[str, Any]) -> bool:
    if snapshot["status"] in ENDED or snapshot.get("driven_outside") or is_held(snapshot):
        return False
    waiting = {node["node_id"] for node in snapshot.get("waiting", ())}
    running = {name for name, record in snapshot["task_records"].items() if record["status"] == "RUNNING"}
    return not (waiting and running <= waiting and snapshot["driven_by"] is None and snapshot["status"] != "CANCELLING")


def alive_at(snapshot: dict[str, Any]) -> float:
    return float(max(snapshot["heartbeat_at"], snapshot["updated_at"]))
