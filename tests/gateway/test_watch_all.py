"""``GET /runs/~/watch``, and runs by the beginning of their ids."""

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from pyoco_server.app.ports import SnapshotChange
from pyoco_server.gateway.live.run_changes import RecentRuns, RunChanges
from tests.adapters.real_nats import NatsServer
from tests.gateway.sse import SentEvent, events
from tests.gateway.stand import Stand, check_error, ended, listed, settings_for, submit, unique, waiting
from tests.waiting import wait_until

ALL = "/runs/~/watch"


@contextlib.contextmanager
def watching(client: httpx.Client, **query: Any) -> Iterator[Iterator[SentEvent]]:
    with client.stream("GET", ALL, params=query) as answer:
        assert answer.status_code == 200
        assert answer.headers["Content-Type"].startswith("text/event-stream")
        yield events(answer)


def status_of(event: SentEvent, run_id: str) -> str | None:
    """What is said of a run, if anything is."""
    return next((item["status"] for item in event.data.get("items", ()) if item["run_id"] == run_id), None)


def test_changed_runs_are_sent_with_the_counts(client: httpx.Client) -> None:
    tag = unique("no-worker")
    with watching(client, tag=tag) as events_sent:
        first = next(events_sent)
        assert first.name == "ready"
        assert first.data["counts"] == dict.fromkeys(first.data["counts"], 0)
        assert set(first.data["counts"]) == {"PENDING", "RUNNING", "COMPLETED", "FAILED", "CANCELLING", "CANCELLED"}
        submit(client, tag=unique("else"))  # another tag
        run_id = submit(client, tag=tag)
        pending = next(one for one in events_sent if one.name == "runs")
        assert [item["run_id"] for item in pending.data["items"]] == [run_id]
        assert (pending.data["counts"]["PENDING"], pending.data["counts_complete"]) == (1, True)
        assert {"params", "task_records", "log_position"}.isdisjoint(pending.data["items"][0])
        client.post(f"/runs/{run_id}/cancel", json={})
        last = next(one for one in events_sent if status_of(one, run_id) == "CANCELLED")
        assert (last.data["counts"]["PENDING"], last.data["counts"]["CANCELLED"]) == (0, 1)


def test_a_row_is_what_the_list_has(client: httpx.Client) -> None:
    with watching(client) as events_sent:
        next(events_sent)
        run_id = submit(client)
        ended(client, run_id)
        item = next(
            item
            for one in events_sent
            for item in one.data.get("items", ())
            if (item["run_id"], item["status"]) == (run_id, "COMPLETED")
        )
    [found] = listed(client, 1, run_id_prefix=run_id)
    assert item == found


def test_a_quiet_stream_has_heartbeats_and_ends_in_time(client: httpx.Client) -> None:
    with watching(client, flow=unique("none"), timeout_sec=4) as events_sent:
        names = [one.name for one in events_sent]
    assert names[0] == "ready"
    assert set(names[1:]) == {"heartbeat"}


@pytest.mark.parametrize("query", ["timeout_sec=0.5", "timeout_sec=601", "timeout_sec=x", f"run_id_prefix={'a' * 129}"])
def test_a_query_that_is_not_valid_is_refused(client: httpx.Client, query: str) -> None:
    check_error(client.get(f"{ALL}?{query}"), 422, "ERR-PYOCO-0002")


def test_a_run_of_that_name_cannot_be(client: httpx.Client) -> None:
    check_error(client.get("/runs/~"), 404, "ERR-PYOCO-0005")
    check_error(client.post("/executions", json={"graphId": "g", "executionId": "~"}), 422, "ERR-PYOCO-0002")


def test_streams_of_the_list_and_of_runs_share_a_limit(nats: NatsServer, tmp_path: Any) -> None:
    settings = settings_for(nats.url, tmp_path, PYOCO_WATCH_MAX_PER_CLIENT="2")
    with Stand(settings, workers=0) as stand, stand.client() as client:
        run_id = submit(client, tag=unique("no-worker"))
        with watching(client) as one, client.stream("GET", f"/runs/{run_id}/watch") as other:
            assert next(one).name == "ready"
            assert other.status_code == 200
            assert stand.services.hub.streams.count == 2
            check_error(client.get(ALL), 429, "ERR-PYOCO-0102")

        asyncio.run(wait_until(lambda: stand.services.hub.streams.count == 0))
        assert not stand.services.hub.changes._watched


def test_a_hundred_changes_of_one_run_are_one() -> None:
    recent = RecentRuns(most=3)
    seen = recent.count
    for _ in range(100):
        recent.note("a")
    recent.note("b")
    assert recent.since(seen) == ["b", "a"]
    assert recent.since(recent.count) == []
    assert len(recent._changed_at) == 2


def test_a_reader_that_lags_too_far_behind_has_to_read_the_list_again() -> None:
    recent = RecentRuns(most=3)
    late = recent.count
    recent.note("a")
    early = recent.count
    for run_id in "bcd":
        recent.note(run_id)
    assert recent.since(late) is None
    assert recent.since(early) == ["d", "c", "b"]
    assert len(recent._changed_at) == 3


def test_a_tenant_is_woken_by_its_own_runs_only() -> None:
    async def body() -> None:
        changes = RunChanges()
        changes.notify(SnapshotChange("before", b"{}", 1))
        with changes.watch("acme") as acme, changes.watch(None) as of_all, changes.watch("acme") as again:
            assert again is acme
            changes.notify(SnapshotChange("r1", b'{"tenant_id": "zeta"}', 2))
            changes.notify(SnapshotChange("r2", b"no json", 3))
            assert not await acme.wait(0, 0.01)
            assert await of_all.wait(0, 5)
            waits = asyncio.create_task(acme.wait(0, 5))
            await asyncio.sleep(0)
            changes.notify(SnapshotChange("r3", b'{"tenant_id": "acme"}', 4))
            assert await waits
            assert (acme.since(0), of_all.since(0)) == (["r3"], ["r3", "r2", "r1"])
        assert not changes._watched

    asyncio.run(body())


def test_runs_are_found_by_how_their_ids_begin(client: httpx.Client) -> None:
    tag = unique("no-worker")
    runs = [submit(client, tag=tag) for _ in range(5)]
    for run_id in runs:
        [found] = listed(client, 1, run_id_prefix=run_id[:18])
        assert found["run_id"] == run_id
    assert {run["run_id"] for run in listed(client, 5, run_id_prefix="", tag=tag)} == set(runs)
    assert listed(client, 0, run_id_prefix="no-such") == []
    check_error(client.get("/runs", params={"run_id_prefix": "a" * 129}), 422, "ERR-PYOCO-0017")


def test_the_oldest_are_listed_first_if_asked_for(client: httpx.Client) -> None:
    tag = unique("no-worker")
    runs = [submit(client, tag=tag) for _ in range(5)]
    listed(client, 5, tag=tag)
    assert [run["run_id"] for run in listed(client, 5, tag=tag, order="oldest", status="PENDING")] == runs
    assert [
        run["run_id"] for run in client.get("/runs", params={"tag": tag, "order": "oldest", "limit": 2}).json()
    ] == runs[:2]
    check_error(client.get("/runs", params={"order": "oldest", "updated_after": 0}), 422, "ERR-PYOCO-0017")
    check_error(client.get("/runs", params={"order": "best"}), 422, "ERR-PYOCO-0017")


def test_latencies_are_in_the_metrics(client: httpx.Client) -> None:
    def counted(name: str) -> float:
        text = client.get("/metrics").text
        [line] = [line for line in text.splitlines() if line.startswith(f"{name}_count ")]
        buckets = [line for line in text.splitlines() if line.startswith(f"{name}_bucket{{")]
        values = [float(line.rpartition(" ")[2]) for line in buckets]
        assert values == sorted(values)
        assert 'le="+Inf"' in buckets[-1]
        assert values[-1] == float(line.rpartition(" ")[2])
        return values[-1]

    before = {name: counted(name) for name in ("pyoco_run_latency_seconds", "pyoco_run_queue_seconds")}
    ended(client, submit(client))
    waiting(client, submit(client, "ask"))  # which has not ended
    for name, value in before.items():
        asyncio.run(wait_until(lambda name=name, value=value: counted(name) == value + 1))  # type: ignore[misc]
