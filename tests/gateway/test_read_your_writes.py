"""A list contains every run that the same gateway accepted before."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.gateway.stand import Stand, submit, unique
from tests.gateway.test_executions import created
from tests.gateway.test_yaml import upload

AT_ONCE = 8


def walk(client: httpx.Client, **query: Any) -> list[str]:
    """All runs that fit, page by page."""
    found, cursor = list[str](), None
    while True:
        given = {"limit": 7, "updated_after": 0, **query, **({} if cursor is None else {"cursor": cursor})}
        page = client.get("/runs", params=given).json()
        found += [run["run_id"] for run in page["items"]]
        cursor = page["next_cursor"]
        if cursor is None:
            return found


@pytest.mark.parametrize("route", ["/runs", "/runs with a key", "/runs/yaml", "/runs/batch", "/executions"])
def test_a_run_is_in_the_first_list_after_its_submission(client: httpx.Client, route: str) -> None:
    for _ in range(20):
        match route:
            case "/runs":
                run_id = submit(client, tag=unique("tag"))
            case "/runs with a key":
                answer = client.post("/runs", json={"flow_name": "hello"}, headers={"Idempotency-Key": unique("key")})
                run_id = answer.json()["run_id"]
            case "/runs/yaml":
                run_id = upload(client, tag=unique("tag")).json()["run_id"]
            case "/runs/batch":
                answer = client.post("/runs/batch", json={"runs": [{"flow_name": "hello"}] * 3})
                run_id = answer.json()["results"][-1]["run_id"]
            case _:
                run_id = created(client)
        assert client.get("/runs", params={"run_id_prefix": run_id}).json()[0]["run_id"] == run_id


def test_the_next_list_has_all_accepted_runs(stand: Stand, client: httpx.Client) -> None:
    tag = unique("no-worker")

    def one(_number: int) -> str:
        with stand.client() as mine:
            return submit(mine, tag=tag)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        for sent in (20, 40, 60):
            accepted = [*pool.map(one, range(20))]
            listed = [run["run_id"] for run in client.get("/runs", params={"tag": tag, "limit": 200}).json()]
            assert len(listed) == sent
            assert {*accepted} <= {*listed}


def test_a_walk_that_starts_after_a_submission_sees_it_exactly_once(stand: Stand, client: httpx.Client) -> None:
    """While others submit."""
    tag = unique("no-worker")

    def others(number: int) -> None:
        with stand.client() as mine:
            submit(mine, tag=tag, params={"n": number})

    with ThreadPoolExecutor(AT_ONCE) as pool:
        for _ in range(10):
            going_on = [pool.submit(others, number) for number in range(20)]
            mine = submit(client, tag=tag)
            seen = walk(client, tag=tag)
            assert seen.count(mine) == 1
            assert len(seen) == len({*seen})
            for one in going_on:
                one.result()


def test_a_list_by_status_knows_of_a_cancel(client: httpx.Client) -> None:
    for _ in range(10):
        run_id = submit(client, tag=unique("no-worker"))
        assert client.post(f"/runs/{run_id}/cancel").status_code == 200
        found = client.get("/runs", params={"status": "CANCELLED", "run_id_prefix": run_id}).json()
        assert [run["run_id"] for run in found] == [run_id]


def test_a_cancel_of_all_that_fit_misses_no_run_just_accepted(client: httpx.Client) -> None:
    tag = unique("no-worker")
    accepted = {submit(client, tag=tag) for _ in range(10)}
    results = client.post("/runs/cancel", json={"tag": tag}).json()["results"]
    assert {result["run_id"] for result in results} == accepted
