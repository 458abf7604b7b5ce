"""Submissions: REQ-0002 and REQ-0003."""

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import msgspec
import pytest

from pyoco_server.app.runs.job import decode_job
from pyoco_server.gateway.services import Services
from tests.gateway.stand import Stand, check_error, ended, listed, submit, unique


@pytest.mark.spec("004 REQ-0002", "004 §付録D POST /runs", "004 §付録C run")
def test_a_run_is_numbered_stored_and_queued(stand: Stand, client: httpx.Client) -> None:
    tag = unique("no-worker")
    answer = client.post("/runs", json={"flow_name": "hello", "params": {"name": "Ada"}, "tag": tag})
    assert answer.status_code == 200
    run_id = answer.json()["run_id"]
    assert answer.json() == {"run_id": run_id, "status": "PENDING"}
    snapshot = client.get(f"/runs/{run_id}").json()
    assert (snapshot["status"], snapshot["flow_name"], snapshot["params"]) == ("PENDING", "hello", {"name": "Ada"})
    assert (snapshot["tag"], snapshot["tags"]) == (tag, [tag])

    async def queued(given: Services) -> bytes:
        await given.queue.prepare(tag)
        delivery = await given.queue.pull(tag, timeout_sec=5)
        assert delivery is not None
        return delivery.body

    job = decode_job(stand.call(queued))
    assert (job.run_id, job.flow_name, job.tag, job.params) == (run_id, "hello", tag, {"name": "Ada"})


@pytest.mark.spec("004 REQ-0002", "004 §付録H")
def test_a_field_that_is_left_out_has_its_default(client: httpx.Client) -> None:
    run_id = client.post("/runs", json={"flow_name": "hello"}).json()["run_id"]
    snapshot = ended(client, run_id)
    assert (snapshot["tag"], snapshot["tags"], snapshot["params"]) == ("default", ["default"], {})


@pytest.mark.spec("004 REQ-0002", "004 §付録D POST /runs")
def test_null_is_as_good_as_left_out(client: httpx.Client) -> None:
    answer = client.post("/runs", json={"flow_name": "hello", "params": None, "tag": None, "tags": None})
    assert answer.status_code == 200, answer.text
    snapshot = client.get(f"/runs/{answer.json()['run_id']}").json()
    assert (snapshot["tag"], snapshot["tags"], snapshot["params"]) == ("default", ["default"], {})


@pytest.mark.spec("004 REQ-0002", "004 §付録D POST /runs")
def test_the_same_request_twice_is_two_runs(client: httpx.Client) -> None:
    assert submit(client) != submit(client)


@pytest.mark.spec("004 REQ-0002")
@pytest.mark.parametrize("name", ["a.b", "with space", "日本語", "a/b*>", "x" * 200])
def test_a_flow_may_have_any_name(client: httpx.Client, name: str) -> None:
    tag = unique("no-worker")
    run_id = submit(client, name, tag=tag)
    assert client.get(f"/runs/{run_id}").json()["flow_name"] == name
    assert [run["run_id"] for run in listed(client, 1, flow=name, tag=tag)] == [run_id]


BAD: list[Any] = [
    {},
    {"flow_name": ""},
    {"flow_name": 3},
    {"flow_name": None},
    {"flow_name": "x" * 201},
    {"flow_name": "   "},
    {"flow_name": "\u3000\u00a0"},
    {"flow_name": "a\nb"},
    {"flow_name": "a\x00b"},
    {"flow_name": "f", "params": []},
    {"flow_name": "f", "params": "x"},
    {"flow_name": "f", "tag": "a.b"},
    {"flow_name": "f", "tag": ""},
    {"flow_name": "f", "tag": "a b"},
    {"flow_name": "f", "tag": ">"},
    {"flow_name": "f", "tag": "x" * 129},
    {"flow_name": "f", "tag": "a\n"},
    {"flow_name": "f", "tags": "x"},
    {"flow_name": "f", "tags": [1]},
    {"flow_name": "f", "tags": [""]},
    {"flow_name": "f", "tags": ["ok", " "]},
    {"flow_name": "f", "tags": ["x"] * 33},
    [],
    "text",
    3,
    None,
]


def test_a_blank_name_is_refused_with_the_rule(client: httpx.Client) -> None:
    answer = client.post("/runs", json={"flow_name": "  "})
    check_error(answer, 422, "ERR-PYOCO-0002")
    [problem] = answer.json()["detail"]
    assert problem["loc"] == ["body", "flow_name"]
    assert problem["msg"].startswith("'  ' cannot be used; give 1 to 200 characters, not blanks alone")


@pytest.mark.parametrize("name", ["a\u0085b", "\u200b", "a\u202eb", "\ufeff"])
def test_a_name_with_an_invisible_character_is_refused(client: httpx.Client, name: str) -> None:
    check_error(client.post("/runs", json={"flow_name": name}), 422, "ERR-PYOCO-0002")


@pytest.mark.spec("004 REQ-0002", "004 ERR-PYOCO-0002", "004 MSG-PYOCO-0002", "004 §付録H")
@pytest.mark.parametrize("body", BAD, ids=repr)
def test_bad_input_is_refused(client: httpx.Client, body: Any) -> None:
    error = check_error(client.post("/runs", json=body), 422, "ERR-PYOCO-0002")
    assert error["message"] == "the request is not valid"


NOT_JSON = {
    "nothing": b"",
    "half": b'{"flow_name": "hello"',
    "nan": b'{"flow_name": "hello", "params": {"x": NaN}}',
    "infinity": b'{"flow_name": "hello", "params": {"x": Infinity}}',
    "too large a number": b'{"flow_name": "hello", "params": {"x": 1e999}}',
    "not utf-8": b'{"flow_name": "\xff"}',
    "utf-16": '{"flow_name": "hello"}'.encode("utf-16"),
    "half a surrogate pair": b'{"flow_name": "hello", "params": {"x": "\\ud800 and on"}}',
    "the other half": b'{"flow_name": "hello", "params": {"x": "\\udc00 and on"}}',
    "deep": b'{"flow_name": "hello", "params": {"x": ' + b"[" * 10_000 + b"]" * 10_000 + b"}}",
    "deeper than is kept": b'{"flow_name": "hello", "params": {"x": ' + b"[" * 300 + b"]" * 300 + b"}}",
    "5,000 digits": b'{"flow_name": "hello", "params": {"x": ' + b"1" * 5_000 + b"}}",
    "two values": b'{"flow_name": "hello"} {}',
    "a byte order mark": b'\xef\xbb\xbf{"flow_name": "hello"}',
}


@pytest.mark.spec("004 REQ-0002", "004 ERR-PYOCO-0002")
@pytest.mark.parametrize("body", NOT_JSON.values(), ids=NOT_JSON.keys())
def test_a_body_that_is_not_json_is_refused(client: httpx.Client, body: bytes) -> None:
    answer = client.post("/runs", content=body, headers={"Content-Type": "application/json"})
    check_error(answer, 422, "ERR-PYOCO-0002")


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "nonsense", ""])
def test_a_body_that_does_not_say_that_it_is_json_is_refused_with_a_hint(client: httpx.Client, kind: str) -> None:
    answer = client.post("/runs", content=b'{"flow_name": "hello"}', headers={"Content-Type": kind})
    error = check_error(answer, 422, "ERR-PYOCO-0002")
    assert "application/json" in error["details"]["problems"][0]["msg"]


def test_refused_input_leaves_nothing_behind(stand: Stand, client: httpx.Client) -> None:
    tag = unique("bad")
    deep = {"x": json.loads("[" * 250 + "]" * 250)}
    for params in ({"x": "y" * 1_100_000}, deep):
        assert client.post("/runs", json={"flow_name": "hello", "tag": tag, "params": params}).status_code in {413, 422}
    marker = submit(client, tag=tag)
    assert [run["run_id"] for run in listed(client, 1, tag=tag)] == [marker]

    async def queued(given: Services) -> int:
        return await given.queue.backlog(tag)

    assert stand.call(queued) == 1


def test_odd_but_valid_json_comes_back_as_it_was(client: httpx.Client) -> None:
    raw = b'{"flow_name":"hello","tag":"%s","params":{"n":123456789012345678901234567890,"z":"\\u0000","d":1,"d":2}}'
    tag = unique("no-worker")
    answer = client.post("/runs", content=raw % tag.encode(), headers={"Content-Type": "application/json"})
    params = client.get(f"/runs/{answer.json()['run_id']}").json()["params"]
    assert params == {"n": 123456789012345678901234567890, "z": "\x00", "d": 2}


@pytest.mark.spec("004 REQ-0002")
def test_a_request_that_is_too_large_is_refused_whether_it_says_so_or_not(client: httpx.Client) -> None:
    body = json.dumps({"flow_name": "hello", "params": {"x": "y" * 2_200_000}}).encode()
    headers = {"Content-Type": "application/json"}
    check_error(client.post("/runs", content=body, headers=headers), 413, "ERR-PYOCO-0101")
    pieces = iter([body[:1_000_000], body[1_000_000:2_000_000], body[2_000_000:]])
    check_error(client.post("/runs", content=pieces, headers=headers), 413, "ERR-PYOCO-0101")


# --- Idempotency-Key -------------------------------------------------------------------------------------------------


def with_key(client: httpx.Client, key: str, **fields: Any) -> httpx.Response:
    return client.post("/runs", json={"flow_name": "hello", **fields}, headers={"Idempotency-Key": key})


def test_a_key_stands_for_one_run(client: httpx.Client) -> None:
    key, tag = unique("key"), unique("no-worker")
    first = with_key(client, key, tag=tag, params={"n": 1}).json()
    assert with_key(client, key, tag=tag, params={"n": 1}).json() == first
    assert len(listed(client, 1, tag=tag)) == 1


@pytest.mark.spec("004 §付録D POST /runs")
def test_the_same_request_has_the_same_answer_however_far_the_run_is(client: httpx.Client) -> None:
    key = unique("key")
    first = with_key(client, key).json()
    assert first["status"] == "PENDING"
    ended(client, first["run_id"])
    assert with_key(client, key).json() == first


@pytest.mark.parametrize("other", [{"params": {"n": 2}}, {"flow_name": "boom"}, {"tags": ["x"]}])
def test_a_key_cannot_stand_for_another_request(client: httpx.Client, other: dict[str, Any]) -> None:
    key, tag = unique("key"), unique("no-worker")
    assert with_key(client, key, tag=tag, params={"n": 1}).status_code == 200
    check_error(with_key(client, key, **({"tag": tag, "params": {"n": 1}} | other)), 409, "ERR-PYOCO-0105")


def test_many_at_once_with_one_key_are_one_run(client: httpx.Client) -> None:
    key, tag = unique("key"), unique("no-worker")
    with ThreadPoolExecutor(16) as pool:
        answers = [*pool.map(lambda _: with_key(client, key, tag=tag), range(32))]
    assert {answer.status_code for answer in answers} == {200}
    assert len({answer.json()["run_id"] for answer in answers}) == 1
    assert len(listed(client, 1, tag=tag)) == 1


@pytest.mark.parametrize("key", ["", "x" * 201, "a b"])
def test_a_key_that_cannot_be_one_is_refused(client: httpx.Client, key: str) -> None:
    check_error(with_key(client, key), 422, "ERR-PYOCO-0002")


# --- Many at once ----------------------------------------------------------------------------------------------------


def test_a_batch_has_a_result_for_each_run(client: httpx.Client) -> None:
    tag = unique("no-worker")
    runs: list[Any] = [{"flow_name": f"f{n}", "tag": tag} for n in range(50)]
    runs[7] = {"flow_name": "f7", "tag": tag, "params": {"x": "y" * 1_100_000}}
    results = client.post("/runs/batch", json={"runs": runs}).json()["results"]
    assert len(results) == 50
    assert results[7]["error"]["err_id"] == "ERR-PYOCO-0101"
    good = [result["run_id"] for place, result in enumerate(results) if place != 7]
    assert {run["run_id"] for run in listed(client, 49, tag=tag)} == set(good)
    assert client.get(f"/runs/{results[3]['run_id']}").json()["flow_name"] == "f3"


def test_a_batch_with_a_key_is_submitted_once(client: httpx.Client) -> None:
    tag, headers = unique("no-worker"), {"Idempotency-Key": unique("batch")}
    body = {"runs": [{"flow_name": "hello", "tag": tag}] * 5}
    first = client.post("/runs/batch", json=body, headers=headers).json()
    assert client.post("/runs/batch", json=body, headers=headers).json() == first
    assert len({run["run_id"] for run in first["results"]}) == 5


@pytest.mark.spec("004 REQ-0002", "004 ERR-PYOCO-0002")
def test_a_batch_has_an_error_for_each_entry_that_is_not_valid(client: httpx.Client) -> None:
    tag = unique("no-worker")
    good = {"flow_name": "hello", "tag": tag}
    results = client.post("/runs/batch", json={"runs": [good, *BAD, good]}).json()["results"]
    assert len(results) == len(BAD) + 2
    for place, result in enumerate(results[1:-1], 1):
        assert (result["run_id"], result["status"], result["error"]["err_id"]) == (None, None, "ERR-PYOCO-0002")
        assert result["detail"].startswith(f"runs.{place}")
    assert {run["run_id"] for run in listed(client, 2, tag=tag)} == {results[0]["run_id"], results[-1]["run_id"]}


@pytest.mark.parametrize("body", [{"runs": []}, {"runs": {}}, {"runs": [{"flow_name": "x"}] * 1_001}, {}, []])
def test_a_batch_that_is_not_valid_is_refused_as_a_whole(client: httpx.Client, body: Any) -> None:
    check_error(client.post("/runs/batch", json=body), 422, "ERR-PYOCO-0002")


@pytest.mark.spec("004 REQ-0003")
def test_an_accepted_run_is_in_the_log_the_snapshots_and_the_queue(stand: Stand, client: httpx.Client) -> None:
    tag = unique("no-worker")
    run_id = submit(client, tag=tag)

    async def stored(given: Services) -> tuple[int, Any, int]:
        events, _ = await given.log.read(run_id)
        snapshot = await given.snapshots.read(run_id)
        assert snapshot is not None
        return len(events), msgspec.json.decode(snapshot.body), await given.queue.backlog(tag)

    count, snapshot, backlog = stand.call(stored)
    assert (count, snapshot["status"], backlog) == (1, "PENDING", 1)
