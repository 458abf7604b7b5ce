"""Requests that wait for a run's end."""

import dataclasses
import threading
import time

import httpx
import pytest

from pyoco_server.app.ports import Snapshots, StoredSnapshot
from pyoco_server.gateway.live.snapshot_hub import SnapshotHub
from pyoco_server.gateway.services import Services
from tests.gateway.stand import Stand, check_error, listed, submit, unique, until, waiting
from tests.waiting import wait_until

UNKNOWN = "00000000-0000-0000-0000-000000000000"


def test_a_submission_that_waits_is_answered_with_how_the_run_ended(client: httpx.Client) -> None:
    answer = client.post("/runs?wait_sec=20", json={"flow_name": "hello", "params": {"name": "Ada"}})
    assert answer.status_code == 200
    said = answer.json()
    assert said["status"] == said["snapshot"]["status"] == "COMPLETED"
    assert said["snapshot"]["run_id"] == said["run_id"]
    outputs = [record["output"] for record in said["snapshot"]["task_records"].values()]
    assert outputs == ["hello Ada", 9]
    assert client.get(f"/runs/{said['run_id']}").json()["status"] == "COMPLETED"


def test_a_submission_that_does_not_wait_says_no_more_than_before(client: httpx.Client) -> None:
    said = client.post("/runs", json={"flow_name": "hello"}).json()
    assert set(said) == {"run_id", "status"}
    assert said["status"] == "PENDING"


def test_a_wait_that_is_too_short_is_answered_with_the_current_snapshot(client: httpx.Client) -> None:
    began = time.monotonic()
    said = client.post("/runs?wait_sec=0.3", json={"flow_name": "hello", "tag": unique("no-worker")}).json()
    assert time.monotonic() - began >= 0.3
    assert said["status"] == said["snapshot"]["status"] == "PENDING"


def test_a_get_can_wait_for_the_end(client: httpx.Client) -> None:
    run_id = submit(client, "ask")
    [wait] = waiting(client, run_id)["waiting"]

    def resume() -> None:
        time.sleep(0.2)
        client.post(f"/runs/{run_id}/nodes/{wait['node_id']}/resume", json={"input": {"yes": True}})

    resuming = threading.Thread(target=resume)
    resuming.start()
    try:
        snapshot = client.get(f"/runs/{run_id}", params={"wait_sec": 20}, timeout=30).json()
    finally:
        resuming.join()
    assert snapshot["status"] == "COMPLETED"


def test_a_run_that_has_ended_is_not_waited_for(client: httpx.Client) -> None:
    run_id = client.post("/runs?wait_sec=20", json={"flow_name": "hello"}).json()["run_id"]
    began = time.monotonic()
    assert client.get(f"/runs/{run_id}", params={"wait_sec": 30}).json()["status"] == "COMPLETED"
    assert time.monotonic() - began < 15


def test_a_wait_for_an_unknown_run_fails_at_once(client: httpx.Client) -> None:
    check_error(client.get(f"/runs/{UNKNOWN}", params={"wait_sec": 30}), 404, "ERR-PYOCO-0005")


@pytest.mark.parametrize("wait_sec", ["-1", "31", "nan", "inf", "soon"])
def test_a_wait_that_is_too_long_or_not_a_number_is_refused(client: httpx.Client, wait_sec: str) -> None:
    run_id = submit(client)
    for answer in (
        client.get(f"/runs/{run_id}", params={"wait_sec": wait_sec}),
        client.post("/runs", params={"wait_sec": wait_sec}, json={"flow_name": "hello"}),
    ):
        check_error(answer, 422, "ERR-PYOCO-0002")
        assert "wait_sec" in answer.text


def deaf_hub(*, most: int) -> SnapshotHub:
    """A hub that receives no change."""

    async def read(_run_id: str) -> StoredSnapshot | None:
        return None

    return SnapshotHub(read, most=most, most_per_client=most)


class Lagging:
    """Snapshots as a replica has them that is behind: for so many looks a run is not there yet."""

    def __init__(self, inner: Snapshots, looks: int) -> None:
        self.inner = inner
        self.left = looks

    async def read(self, run_id: str) -> StoredSnapshot | None:
        self.left -= 1
        return None if self.left >= 0 else await self.inner.read(run_id)

    async def write(
        self, run_id: str, body: bytes, *, position: int, revision: int | None = None, is_urgent: bool = True
    ) -> int | None:
        return await self.inner.write(run_id, body, position=position, revision=revision, is_urgent=is_urgent)

    async def sync(self) -> None:
        await self.inner.sync()

    async def forbid(self, run_id: str) -> bool:
        return await self.inner.forbid(run_id)

    async def delete(self, run_id: str) -> None:
        await self.inner.delete(run_id)


@pytest.mark.parametrize("looks", [1, 3, 1_000_000])
def test_a_submission_is_accepted_also_if_the_run_cannot_be_read_yet(
    stand: Stand, client: httpx.Client, looks: int
) -> None:
    """A submission with a key has to read the run: another request may have created it."""
    services = stand.services
    stand.app.state.services = dataclasses.replace(services, snapshots=Lagging(services.snapshots, looks))
    try:
        given = {"Idempotency-Key": unique("lagging")}
        wait_sec = 20 if looks < 10 else 0.5
        answer = client.post(f"/runs?wait_sec={wait_sec}", json={"flow_name": "hello"}, headers=given)
    finally:
        stand.app.state.services = services
    assert answer.status_code == 200, answer.text
    said = answer.json()
    assert said["status"] in {"PENDING", "COMPLETED"}
    assert until(client, said["run_id"], lambda snapshot: snapshot["status"] == "COMPLETED")
    if looks < 10:
        assert said["snapshot"]["status"] == "COMPLETED", "the request waits until the run can be read"


def test_a_submission_that_waits_needs_no_read(stand: Stand, client: httpx.Client) -> None:
    services = stand.services
    looking = Lagging(services.snapshots, 0)
    stand.app.state.services = dataclasses.replace(services, snapshots=looking)
    try:
        answers = [client.post("/runs?wait_sec=20", json={"flow_name": "hello"}).json() for _ in range(10)]
    finally:
        stand.app.state.services = services
    assert [answer["snapshot"]["status"] for answer in answers] == ["COMPLETED"] * 10
    assert looking.left == 0


def test_a_submission_is_accepted_also_if_its_snapshot_never_arrives(stand: Stand, client: httpx.Client) -> None:
    services, hub = stand.services, deaf_hub(most=10)
    blind = dataclasses.replace(services, snapshots=Lagging(services.snapshots, 1_000_000), hub=hub)
    stand.app.state.services = blind
    try:
        said = client.post("/runs?wait_sec=0.3", json={"flow_name": "hello"})
    finally:
        stand.app.state.services = services
    assert said.status_code == 200, said.text
    assert until(client, said.json()["run_id"], lambda snapshot: snapshot["status"] == "COMPLETED")


def test_a_submission_is_accepted_without_a_wait_if_too_many_wait(stand: Stand, client: httpx.Client) -> None:
    services = stand.services
    full = dataclasses.replace(services, hub=deaf_hub(most=0))
    stand.app.state.services = full
    try:
        said = client.post("/runs?wait_sec=20", json={"flow_name": "hello"}).json()
    finally:
        stand.app.state.services = services
    assert said.keys() == {"run_id", "status"}
    assert until(client, said["run_id"], lambda snapshot: snapshot["status"] == "COMPLETED")


@pytest.mark.parametrize("said", ["25&wait_sec=26", "%32%35", "25&", "2.5e1", "30"])
def test_a_wait_may_be_written_in_any_form_of_a_number(client: httpx.Client, said: str) -> None:
    answer = client.post(f"/runs?wait_sec={said}", json={"flow_name": "hello"}).json()
    assert answer["snapshot"]["status"] == "COMPLETED"


@pytest.mark.parametrize("said", ["30.0000001", "0031", "9999", "", "5,5"])
def test_a_wait_that_is_not_valid_is_refused_in_any_form(client: httpx.Client, said: str) -> None:
    check_error(client.post(f"/runs?wait_sec={said}", json={"flow_name": "hello"}), 422, "ERR-PYOCO-0002")


@pytest.mark.parametrize("how", ["GET", "POST"])
def test_a_request_of_a_disconnected_client_stops_waiting(stand: Stand, how: str) -> None:
    with stand.client() as client:
        tag = unique("no-worker")
        run_id = submit(client, tag=tag)
        path, body = (f"/runs/{run_id}", None) if how == "GET" else ("/runs", {"flow_name": "hello", "tag": tag})
        impatient = httpx.Client(base_url=stand.url, timeout=0.5)
        with impatient, pytest.raises(httpx.ReadTimeout):
            impatient.request(how, path, params={"wait_sec": 30}, json=body)

        async def no_request_waits(services: Services) -> None:
            await wait_until(lambda: not services.hub.requests.count)

        stand.call(no_request_waits)
        listed(client, 1 if how == "GET" else 2, tag=tag)  # accepted nevertheless


@pytest.mark.parametrize("how", ["GET", "POST"])
def test_a_gateway_that_stops_answers_those_who_wait(stand: Stand, how: str) -> None:
    with stand.client() as client:
        tag = unique("no-worker")
        run_id = submit(client, tag=tag)
        answers: list[httpx.Response] = []

        def wait() -> None:
            path, body = (f"/runs/{run_id}", None) if how == "GET" else ("/runs", {"flow_name": "hello", "tag": tag})
            answers.append(client.request(how, path, params={"wait_sec": 30}, json=body, timeout=40))

        waiting_for_it = threading.Thread(target=wait)
        waiting_for_it.start()

        async def close(services: Services) -> None:
            await wait_until(lambda: services.hub.requests.count == 1)
            services.hub.close()
            await wait_until(lambda: services.hub.requests.count == 0)
            services.hub.is_closed = False  # others use this gateway, too

        stand.call(close)
        waiting_for_it.join(20)
    assert [answer.json()["status"] for answer in answers] == ["PENDING"]
