"""Waiting for a run's end within one request."""

import dataclasses
import threading
import time

import httpx
import pytest

from pyoco_server.app.ports import SnapshotChange, Snapshots, StoredSnapshot
from pyoco_server.gateway.errors import TooManyError
from pyoco_server.gateway.run_ends import RunEnds
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


def test_who_waits_longer_than_they_wanted_is_told_how_the_run_stands(client: httpx.Client) -> None:
    began = time.monotonic()
    said = client.post("/runs?wait_sec=0.3", json={"flow_name": "hello", "tag": unique("nobody")}).json()
    assert time.monotonic() - began >= 0.3
    assert said["status"] == said["snapshot"]["status"] == "PENDING"


def test_looking_can_wait_for_the_end_too(client: httpx.Client) -> None:
    run_id = submit(client, "ask")
    [wait] = waiting(client, run_id)["waiting"]

    def resume() -> None:
        time.sleep(0.2)
        client.post(f"/runs/{run_id}/nodes/{wait['node_id']}/resume", json={"input": {"yes": True}})

    somebody = threading.Thread(target=resume)
    somebody.start()
    try:
        snapshot = client.get(f"/runs/{run_id}", params={"wait_sec": 20}, timeout=30).json()
    finally:
        somebody.join()
    assert snapshot["status"] == "COMPLETED"


def test_a_run_that_has_ended_is_not_waited_for(client: httpx.Client) -> None:
    run_id = client.post("/runs?wait_sec=20", json={"flow_name": "hello"}).json()["run_id"]
    began = time.monotonic()
    assert client.get(f"/runs/{run_id}", params={"wait_sec": 30}).json()["status"] == "COMPLETED"
    assert time.monotonic() - began < 15


def test_a_run_there_is_not_is_not_waited_for(client: httpx.Client) -> None:
    check_error(client.get(f"/runs/{UNKNOWN}", params={"wait_sec": 30}), 404, "ERR-PYOCO-0005")


@pytest.mark.parametrize("wait_sec", ["-1", "31", "nan", "inf", "soon"])
def test_how_long_one_may_wait(client: httpx.Client, wait_sec: str) -> None:
    run_id = submit(client)
    for answer in (
        client.get(f"/runs/{run_id}", params={"wait_sec": wait_sec}),
        client.post("/runs", params={"wait_sec": wait_sec}, json={"flow_name": "hello"}),
    ):
        check_error(answer, 422, "ERR-PYOCO-0002")
        assert "wait_sec" in answer.text


def test_no_more_wait_than_may() -> None:
    ends = RunEnds(most=3, most_per_client=2)
    with ends.watched("a", "ann") as first, ends.watched("a", "ann") as second:
        with pytest.raises(TooManyError, match="2 of your requests wait already"), ends.watched("b", "ann"):
            pass
        with ends.watched("b", "bob") as third:
            with pytest.raises(TooManyError, match="3 requests wait already"), ends.watched("b", "eve"):
                pass
            ends.tell("a")
            ends.tell("nobody waits for this one")
            assert (first.is_set(), second.is_set(), third.is_set()) == (True, True, False)
            ends.close()
            assert third.is_set()
            ends.tell("b", SnapshotChange("b", b"newest", 7))
            assert third.take() == b"newest"
            assert (third.is_set(), third.take()) == (False, None)
            for sequence in (6, 7):  # in order, and later, as the index knows it
                ends.tell("b", SnapshotChange("b", b"older", sequence))
            assert not third.is_set()
            ends.tell("b", SnapshotChange("b", b"what it said", 8))
            ends.tell("b")  # something is newer, and nobody knows what it says
            assert (third.is_set(), third.take()) == (True, None)


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
def test_a_submission_is_accepted_also_where_the_run_cannot_be_seen_yet(
    stand: Stand, client: httpx.Client, looks: int
) -> None:
    """Who submits under a key looks for the run: it may be somebody else's."""
    services = stand.services
    stand.app.state.services = dataclasses.replace(services, snapshots=Lagging(services.snapshots, looks))
    try:
        given = {"Idempotency-Key": unique("lagging")}
        answer = client.post("/runs?wait_sec=2", json={"flow_name": "hello"}, headers=given)
    finally:
        stand.app.state.services = services
    assert answer.status_code == 200, answer.text
    said = answer.json()
    assert said["status"] in {"PENDING", "COMPLETED"}
    assert until(client, said["run_id"], lambda snapshot: snapshot["status"] == "COMPLETED")
    if looks < 10:
        assert said["snapshot"]["status"] == "COMPLETED", "it is waited for all the same"


def test_who_submits_and_waits_is_told_without_a_look(stand: Stand, client: httpx.Client) -> None:
    services = stand.services
    looking = Lagging(services.snapshots, 0)
    stand.app.state.services = dataclasses.replace(services, snapshots=looking)
    try:
        answers = [client.post("/runs?wait_sec=20", json={"flow_name": "hello"}).json() for _ in range(10)]
    finally:
        stand.app.state.services = services
    assert [answer["snapshot"]["status"] for answer in answers] == ["COMPLETED"] * 10
    assert looking.left == 0


def test_a_submission_is_accepted_also_where_nothing_was_told_and_nothing_is_seen(
    stand: Stand, client: httpx.Client
) -> None:
    services, ends = stand.services, RunEnds(most=10, most_per_client=10)  # which nobody tells anything
    blind = dataclasses.replace(services, snapshots=Lagging(services.snapshots, 1_000_000), ends=ends)
    stand.app.state.services = blind
    try:
        said = client.post("/runs?wait_sec=0.3", json={"flow_name": "hello"})
    finally:
        stand.app.state.services = services
    assert said.status_code == 200, said.text
    assert said.json()["status"] == "PENDING"
    assert until(client, said.json()["run_id"], lambda snapshot: snapshot["status"] == "COMPLETED")


def test_where_too_many_wait_a_submission_is_accepted_and_not_waited_for(stand: Stand, client: httpx.Client) -> None:
    services = stand.services
    full = dataclasses.replace(services, ends=RunEnds(most=0, most_per_client=0))
    stand.app.state.services = full
    try:
        said = client.post("/runs?wait_sec=20", json={"flow_name": "hello"}).json()
    finally:
        stand.app.state.services = services
    assert said.keys() == {"run_id", "status"}
    assert until(client, said["run_id"], lambda snapshot: snapshot["status"] == "COMPLETED")


@pytest.mark.parametrize("said", ["5&wait_sec=6", "%35", "5&", "1e1", "30"])
def test_however_it_is_written_it_is_waited_for(client: httpx.Client, said: str) -> None:
    answer = client.post(f"/runs?wait_sec={said}", json={"flow_name": "hello"}).json()
    assert answer["snapshot"]["status"] == "COMPLETED"


@pytest.mark.parametrize("said", ["30.0000001", "0031", "9999", "", "5,5"])
def test_however_it_is_written_what_is_not_valid_is_refused(client: httpx.Client, said: str) -> None:
    check_error(client.post(f"/runs?wait_sec={said}", json={"flow_name": "hello"}), 422, "ERR-PYOCO-0002")


@pytest.mark.parametrize("how", ["GET", "POST"])
def test_who_has_left_is_not_waited_with(stand: Stand, how: str) -> None:
    with stand.client() as client:
        tag = unique("nobody")
        run_id = submit(client, tag=tag)
        path, body = (f"/runs/{run_id}", None) if how == "GET" else ("/runs", {"flow_name": "hello", "tag": tag})
        impatient = httpx.Client(base_url=stand.url, timeout=0.5)
        with impatient, pytest.raises(httpx.ReadTimeout):
            impatient.request(how, path, params={"wait_sec": 30}, json=body)

        async def nobody_waits(services: Services) -> None:
            await wait_until(lambda: not services.ends.count)

        stand.call(nobody_waits)
        listed(client, 1 if how == "GET" else 2, tag=tag)  # accepted all the same


@pytest.mark.parametrize("how", ["GET", "POST"])
def test_a_gateway_that_stops_answers_those_who_wait(stand: Stand, how: str) -> None:
    with stand.client() as client:
        tag = unique("nobody")
        run_id = submit(client, tag=tag)
        answers: list[httpx.Response] = []

        def wait() -> None:
            path, body = (f"/runs/{run_id}", None) if how == "GET" else ("/runs", {"flow_name": "hello", "tag": tag})
            answers.append(client.request(how, path, params={"wait_sec": 30}, json=body, timeout=40))

        waiting_for_it = threading.Thread(target=wait)
        waiting_for_it.start()

        async def close(services: Services) -> None:
            await wait_until(lambda: services.ends.count == 1)
            services.ends.close()
            await wait_until(lambda: services.ends.count == 0)
            services.ends.is_closed = False  # others use this gateway, too

        stand.call(close)
        waiting_for_it.join(20)
    assert [answer.json()["status"] for answer in answers] == ["PENDING"]
