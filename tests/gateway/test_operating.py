"""Routes for operators: health, workers, metrics, dead letters; and unexpected errors."""

import re
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from pyoco_server.adapters.nats_server.server import NatsServer
from pyoco_server.app.ports import UnavailableError, WorkerRecord
from pyoco_server.app.recovery.worker_views import shown_state
from pyoco_server.app.snapshots.status import RunStatus
from pyoco_server.gateway.services import Services
from tests.gateway.stand import Stand, check_error, ended, listed, settings_for, submit, unique


@pytest.mark.spec("004 REQ-0001", "004 §付録D GET /health")
def test_health(client: httpx.Client) -> None:
    answer = client.get("/health")
    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})
    ready = client.get("/health/ready")
    assert (ready.status_code, ready.json()["status"], ready.json()["nats"]) == (200, "ready", "connected")
    assert ready.json()["synced_by"] == "operator"


@pytest.mark.spec("004 REQ-0001", "004 ERR-PYOCO-0001")
def test_a_stopped_gateway_does_not_answer(stand: Stand) -> None:
    with pytest.raises(httpx.ConnectError):
        httpx.get("http://127.0.0.1:1/health")
    assert httpx.get(f"{stand.url}/health").status_code == 200


# --- Workers ---------------------------------------------------------------------------------------------------------


def register(stand: Stand, worker_id: str, **fields: Any) -> None:
    async def write(given: Services) -> None:
        now = time.time()
        record = {
            "worker_id": worker_id,
            "instance_id": "i",
            "state": "IDLE",
            "hidden": False,
            "last_seen_at": now,
            "last_heartbeat_at": now,
            "tags": ["t"],
            **fields,
        }

        def change(_found: WorkerRecord | None) -> WorkerRecord:
            return record

        await given.workers.update(worker_id, change)

    stand.call(write)


def names(client: httpx.Client, **query: Any) -> set[str]:
    return {worker["worker_id"] for worker in client.get("/workers", params=query).json()}


@pytest.mark.spec("004 REQ-0015", "004 §付録D GET /workers", "004 §付録C worker", "004 §付録G")
def test_workers_are_listed_with_their_states(stand: Stand, client: httpx.Client) -> None:
    idle, silent, stopped = (unique(name) for name in ("idle", "silent", "stopped"))
    register(stand, idle)
    register(stand, silent, state="RUNNING", last_seen_at=time.time() - 21, last_heartbeat_at=0)
    register(
        stand, stopped, state="STOPPED_GRACEFUL", last_seen_at=1.0, stopped_at=1.0, stop_reason="graceful_shutdown"
    )
    assert idle in names(client)
    assert not {silent, stopped} & names(client)
    assert {idle, silent, stopped} <= names(client, scope="all", limit=500)
    assert silent in names(client, scope="all", state="DISCONNECTED", limit=500)
    assert stopped in names(client, scope="all", state="STOPPED_GRACEFUL", limit=500)
    assert names(client, state="DISCONNECTED") == names(client, scope="active", state="STOPPED_GRACEFUL") == set()
    found = {worker["worker_id"]: worker for worker in client.get("/workers?scope=all&limit=500").json()}
    assert found[silent]["state"] == "DISCONNECTED"
    assert found[stopped]["state"] == "STOPPED_GRACEFUL"
    required = {"worker_id", "instance_id", "state", "hidden", "last_seen_at", "last_heartbeat_at", "tags"}
    optional = {"current_run_id", "last_run_id", "last_run_status", "stopped_at", "stop_reason"}
    assert required | optional <= found[idle].keys()


@pytest.mark.spec("004 §付録G", "004 §付録C worker")
@pytest.mark.parametrize(
    ("state", "age", "expected"),
    [
        ("RUNNING", 20, "RUNNING"),
        ("RUNNING", 20.1, "DISCONNECTED"),
        ("IDLE", 0, "IDLE"),
        ("IDLE", 21, "DISCONNECTED"),
        ("STOPPED_GRACEFUL", 10_000, "STOPPED_GRACEFUL"),
        ("DISCONNECTED", 0, "DISCONNECTED"),
        ("DANCING", 0, "DISCONNECTED"),
    ],
)
def test_a_worker_without_heartbeats_is_disconnected(state: str, age: float, expected: str) -> None:
    record = {"state": state, "last_seen_at": 1_000.0 - age}
    assert shown_state(record, now=1_000.0, timeout_sec=20) == expected


@pytest.mark.spec("004 REQ-0022", "004 REQ-0015", "004 §付録D PATCH /workers/{worker_id}", "004 §付録D GET /workers")
@pytest.mark.parametrize("name", ["mine", "worker.mine"])
def test_a_worker_can_be_hidden_and_shown(stand: Stand, client: httpx.Client, name: str) -> None:
    mine = unique(name)
    register(stand, mine)
    answer = client.patch(f"/workers/{mine}", json={"hidden": True})
    assert answer.status_code == 200
    assert (answer.json()["worker_id"], answer.json()["hidden"]) == (mine, True)
    assert answer.json()["updated_at"] == pytest.approx(time.time(), abs=30)
    assert mine not in names(client)
    assert mine in names(client, include_hidden="true")
    client.patch(f"/workers/{mine}", json={"hidden": False})
    assert mine in names(client)


@pytest.mark.spec("004 REQ-0022", "004 ERR-PYOCO-0020", "004 MSG-PYOCO-0020")
@pytest.mark.parametrize("worker_id", ["unknown", "a.b", "a..b", ".a", "*", "x" * 300, "%00"])
def test_an_unknown_worker_is_not_found(client: httpx.Client, worker_id: str) -> None:
    error = check_error(client.patch(f"/workers/{worker_id}", json={"hidden": True}), 404, "ERR-PYOCO-0020")
    assert error["message"] == "worker not found"


@pytest.mark.spec("004 REQ-0022", "004 ERR-PYOCO-0019", "004 MSG-PYOCO-0019")
@pytest.mark.parametrize("body", [{}, {"hidden": "yes"}, {"hidden": 1}, {"hidden": None}, [], "x", None])
def test_a_patch_that_is_not_valid_is_refused(client: httpx.Client, body: Any) -> None:
    error = check_error(client.patch("/workers/unknown", json=body), 422, "ERR-PYOCO-0019")
    assert error["message"] == "the request about workers is not valid"


@pytest.mark.spec("004 REQ-0015", "004 ERR-PYOCO-0019")
@pytest.mark.parametrize(
    "query", [{"scope": "some"}, {"state": "ASLEEP"}, {"include_hidden": "perhaps"}, {"limit": 0}, {"limit": 501}]
)
def test_a_query_for_workers_that_is_not_valid_is_refused(client: httpx.Client, query: dict[str, Any]) -> None:
    check_error(client.get("/workers", params=query), 422, "ERR-PYOCO-0019")


# --- Metrics ---------------------------------------------------------------------------------------------------------


def metric(client: httpx.Client, name: str) -> float:
    found = re.search(rf"^{re.escape(name)} (\S+)$", client.get("/metrics").text, re.MULTILINE)
    assert found, name
    return float(found[1])


@pytest.mark.spec("004 REQ-0014", "004 §付録D GET /metrics")
def test_metrics_count_runs_workers_and_dead_letters(empty_stand: Stand) -> None:
    with empty_stand.client() as client:
        answer = client.get("/metrics")
        assert answer.status_code == 200
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        day = datetime.now(UTC).date()
        ended(client, submit(client))
        submit(client, tag="no-worker")
        listed(client, 1, status="COMPLETED")
        listed(client, 1, status="PENDING")
        today = metric(client, "pyoco_runs_today_total")
        if datetime.now(UTC).date() == day:  # else midnight has passed
            assert today == 2
        assert metric(client, "pyoco_workers_alive_total") == 1
        assert metric(client, "pyoco_dlq_messages_total") == 0
        assert metric(client, 'pyoco_queue_backlog{tag="no-worker"}') == 1
        counts = {status.value: metric(client, f'pyoco_runs_total{{status="{status.value}"}}') for status in RunStatus}
        assert counts == {**dict.fromkeys(counts, 0), "COMPLETED": 1, "PENDING": 1}


@pytest.mark.spec("004 REQ-0014", "004 §付録D GET /metrics")
def test_counts_are_whole_numbers(client: httpx.Client) -> None:
    lines = client.get("/metrics").text.splitlines()
    samples = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    counted = [name for name in samples if "_seconds" not in name or "_bucket" in name or "_count" in name]
    assert {"pyoco_workers_alive_total", "pyoco_dlq_messages_total"} < set(counted)
    assert [samples[name] for name in counted if not samples[name].isdigit()] == []


def test_the_cost_of_metrics_does_not_depend_on_the_number_of_runs(stand: Stand, client: httpx.Client) -> None:
    def requests() -> int:
        async def sent(given: Services) -> int:
            connection: Any = given.store
            count: int = connection.nc.stats["out_msgs"]
            return count

        return stand.call(sent)

    def cost() -> int:
        """The minimum of ten: the gateway also sends messages of its own."""
        costs = []
        for _ in range(10):
            before = requests()
            client.get("/metrics")
            costs.append(requests() - before)
        return min(costs)

    few, tag = cost(), unique("no-worker")
    client.post("/runs/batch", json={"runs": [{"flow_name": "hello", "tag": tag}] * 200})
    listed(client, 200, tag=tag)
    assert cost() <= few


# --- Dead letters ----------------------------------------------------------------------------------------------------


def test_dead_letters(client: httpx.Client) -> None:
    run_id = submit(client, unique("no-such-flow"))
    assert ended(client, run_id)["status"] == "FAILED"
    mine = next(letter for letter in client.get("/dlq").json() if letter["entry"].get("run_id") == run_id)
    assert (mine["tag"], mine["entry"]["reason"]) == ("default", "flow_not_found")
    assert client.get(f"/dlq/{mine['sequence']}").json() == mine
    check_error(client.get("/dlq/999999999"), 404, "ERR-PYOCO-0104")
    for bad in ("0", "-1", "x", "1.5", str(2**70)):
        check_error(client.get(f"/dlq/{bad}"), 422, "ERR-PYOCO-0002")
    check_error(client.get("/dlq?limit=501"), 422, "ERR-PYOCO-0002")


# --- Unexpected errors -----------------------------------------------------------------------------------------------


def test_an_unknown_path_is_not_found(client: httpx.Client) -> None:
    for path in ("/nothing", "/runs/", "/runs/a/b/c", "/health/x"):
        check_error(client.get(path), 404, "ERR-PYOCO-0104")


def test_a_method_that_is_not_allowed_is_refused(client: httpx.Client) -> None:
    answer = client.delete("/runs")
    check_error(answer, 405, "ERR-PYOCO-0002")
    assert answer.headers["Allow"]


def test_a_crash_is_answered_in_the_same_shape(stand: Stand) -> None:
    @stand.app.get("/crash", include_in_schema=False)
    async def crash() -> None:
        raise RuntimeError("not for strangers")

    with stand.client() as client:
        answer = client.get("/crash")
    check_error(answer, 500, "ERR-PYOCO-0106")
    assert "strangers" not in answer.text


@pytest.mark.spec("004 MSG-PYOCO-0005", "004 MSG-PYOCO-0017")
@pytest.mark.parametrize("language", ["ja", "en"])
def test_errors_are_in_the_language_of_the_client_or_the_server(
    nats: NatsServer, tmp_path: Path, language: str
) -> None:
    message = {"ja": "runが見つかりません", "en": "run not found"}
    with Stand(settings_for(nats.url, tmp_path, PYOCO_LANG=language), workers=0) as stand:
        for header, expected in (("ja", "ja"), ("en-GB", "en"), ("fr", language), ("*", language), ("", language)):
            answer = httpx.get(f"{stand.url}/runs/none", headers={"Accept-Language": header})
            assert answer.json()["error"]["message"] == message[expected]
        answer = httpx.get(f"{stand.url}/runs/none")  # without the header
        assert answer.json()["error"]["message"] == message[language]
        refused = httpx.get(f"{stand.url}/runs?limit=0").json()["error"]["message"]
        assert refused == {"ja": "一覧クエリが不正です", "en": "the query for the list is not valid"}[language]


def test_a_gateway_whose_writes_fail_is_not_ready(stand: Stand) -> None:
    async def fail(services: Services) -> None:
        async def failing() -> None:
            raise UnavailableError("no quorum")

        with pytest.raises(UnavailableError):
            await services.writes.noted(failing())

    stand.call(fail)
    with stand.client() as client:
        answer = client.get("/health/ready")
        assert (answer.status_code, answer.json()["status"], answer.json()["nats"]) == (503, "unavailable", "connected")
        submit(client)
        assert client.get("/health/ready").status_code == 200


def test_held_runs_are_counted(stand: Stand, client: httpx.Client) -> None:
    run_id = unique("held")
    held = {"needs": ["publish"], "since": 1.0, "seen_by": "w"}
    snapshot = {"run_id": run_id, "flow_name": "f", "status": "RUNNING", "updated_at": 1.0, "held": held}

    async def write(given: Services) -> None:
        await given.snapshots.write(run_id, msgspec.json.encode(snapshot), position=0)

    async def remove(given: Services) -> None:
        await given.snapshots.delete(run_id)

    before = metric(client, "pyoco_runs_held")
    stand.call(write)
    try:
        listed(client, 1, held="true", run_id_prefix=run_id)
        assert metric(client, "pyoco_runs_held") == before + 1
    finally:
        stand.call(remove)
    listed(client, 0, held="true", run_id_prefix=run_id)
    assert metric(client, "pyoco_runs_held") == before
