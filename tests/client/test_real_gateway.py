"""Client and commands against the whole platform: a real NATS, a real gateway, a real worker."""

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pyoco_server.client import ApiError, AsyncClient, Client
from tests.cli.commands import call
from tests.client.real_platform import Platform, platform

LIMIT_SEC = 60.0
YAML = """\
version: 1
flow:
  graph: |
    greet
  defaults:
    name: Ada
tasks:
  greet:
    callable: flows:greet
"""


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    with platform(tmp_path_factory.mktemp("platform")) as running:
        yield running


@pytest.fixture
def client(started: Platform) -> Iterator[Client]:
    with Client(started.url, lang="en") as opened:
        yield opened


def waiting(client: Client) -> str:
    """A run with a wait."""
    run_id = client.submit("approval")
    for snapshot in client.watch(run_id, timeout=LIMIT_SEC):
        if snapshot["waiting"]:
            return run_id
    raise AssertionError("it never waited")


def test_from_submission_to_the_end(client: Client) -> None:
    run_id = client.submit("hello", {"name": "Ada"}, tags=["a", "b"])
    seen = list(client.watch(run_id, timeout=LIMIT_SEC))
    assert seen[-1]["status"] == "COMPLETED"
    ended = client.wait(run_id, LIMIT_SEC)
    assert ended["task_records"]["greet"]["output"] == "hello Ada"
    assert client.get(run_id)["tasks"] == client.tasks(run_id)["tasks"] == {"greet": "SUCCEEDED"}
    assert "task_records" not in client.get(run_id)
    assert "task_records" in client.get(run_id, "records")


def test_the_log_of_a_run(client: Client) -> None:
    run_id = client.submit("hello")
    client.wait(run_id, LIMIT_SEC)
    events = list(client.events(run_id))
    assert [event["version"] for event in events] == list(range(1, len(events) + 1))
    assert list(client.events(run_id, after=3)) == events[3:]
    assert client.state(run_id)["version"] == len(events)
    assert client.state(run_id, at=1)["version"] == 1
    assert "greet" in {node["nodeId"] for node in client.graph(run_id)["nodes"]}
    assert client.archive(run_id)["archived_at"] is not None
    assert next(iter(client.events(run_id, after=len(events))))["type"] == "EXECUTION_ARCHIVED"


def test_events_are_followed_while_they_happen(client: Client) -> None:
    run_id = waiting(client)
    followed: list[Any] = []

    def follow() -> None:
        with Client(client.server) as other:
            followed.extend(other.events(run_id, follow=True))

    following = threading.Thread(target=follow)
    following.start()
    client.resume(run_id, "approval", "yes")
    following.join(LIMIT_SEC)
    assert followed[-1]["type"] == "EXECUTION_COMPLETED"
    assert followed == list(client.events(run_id))


def test_a_wait_is_resumed(client: Client) -> None:
    run_id = waiting(client)
    client.resume(run_id, "approval", {"ok": True})
    assert client.wait(run_id, LIMIT_SEC)["task_records"]["decide"]["output"] == ["decided", {"ok": True}]
    with pytest.raises(ApiError) as refused:
        client.resume(run_id, "approval", "again")
    assert refused.value.status == 409


def test_a_cancel_wins(client: Client) -> None:
    run_id = client.submit("forever")
    assert next(client.watch(run_id, timeout=LIMIT_SEC))["status"] in {"PENDING", "RUNNING"}
    assert client.cancel(run_id, "enough")["status"] == "CANCELLING"
    assert client.wait(run_id, LIMIT_SEC)["status"] == "CANCELLED"
    assert client.cancel(run_id)["status"] == "CANCELLED"


def test_a_key_gives_one_run(client: Client) -> None:
    key = client.submit("hello")  # any text that was not used before
    first = client.submit("hello", {"name": "Ada"}, idempotency_key=key)
    assert client.submit("hello", {"name": "Ada"}, idempotency_key=key) == first
    with pytest.raises(ApiError) as refused:
        client.submit("hello", {"name": "Bob"}, idempotency_key=key)
    assert refused.value.status == 409


def test_lists_pages_and_a_walk(client: Client) -> None:
    runs = [client.submit("hello", tag="default", tags=["walk"]) for _ in range(5)]
    for run_id in runs:
        client.wait(run_id, LIMIT_SEC)
    listed = {run["run_id"] for run in client.list(flow="hello", limit=200)}
    assert set(runs) <= listed
    page = client.page(flow="hello", limit=2)
    assert len(page.items) == 2
    assert page.next_cursor is not None
    walked = [run["run_id"] for run in client.iterate(flow="hello", limit=2)]
    assert len(walked) == len(set(walked))
    assert set(runs) <= set(walked)


def test_refusals(client: Client) -> None:
    for ask, status, err_id in (
        (lambda: client.get("none"), 404, "ERR-PYOCO-0005"),
        (lambda: list(client.watch("none")), 404, "ERR-PYOCO-0005"),
        (lambda: client.wait("none"), 404, "ERR-PYOCO-0005"),
        (lambda: list(client.events("none")), 404, "ERR-PYOCO-0005"),
        (lambda: client.cancel("none"), 404, "ERR-PYOCO-0005"),
        (lambda: client.submit(""), 422, "ERR-PYOCO-0002"),
        (lambda: client.submit("f", tag="a.b"), 422, "ERR-PYOCO-0002"),
        (lambda: client.submit_yaml("version: [", "f"), 422, "ERR-PYOCO-0002"),
        (lambda: client.list(cursor="none"), 422, "ERR-PYOCO-0017"),
        (lambda: client.workers(limit=9_999), 422, "ERR-PYOCO-0019"),
        (lambda: client.hide_worker("none"), 404, "ERR-PYOCO-0020"),
        (lambda: client.dead_letter(10**6), 404, "ERR-PYOCO-0104"),
        (lambda: client.archive(waiting(client)), 409, "ERR-PYOCO-0103"),
    ):
        with pytest.raises(ApiError) as refused:
            ask()
        assert (refused.value.status, refused.value.err_id) == (status, err_id)


def test_the_platform_itself(client: Client) -> None:
    assert client.health() == {"status": "ok"}
    (worker,) = client.workers()
    worker_id = worker["worker_id"]
    assert client.hide_worker(worker_id)["hidden"] is True
    assert client.workers() == []
    assert [one["worker_id"] for one in client.workers(include_hidden=True)] == [worker_id]
    assert client.show_worker(worker_id)["hidden"] is False
    assert "pyoco_workers_alive_total 1" in client.metrics()


def _letter_of(client: Client, run_id: str) -> dict[str, Any]:
    """It comes a moment after the run is seen to have failed."""
    ends_at = time.monotonic() + LIMIT_SEC
    while True:
        found = [one for one in client.dlq() if one["entry"].get("run_id") == run_id]
        if found or time.monotonic() > ends_at:
            return dict(found[0])
        time.sleep(0.02)


def test_a_run_without_a_flow_is_a_dead_letter(client: Client) -> None:
    run_id = client.submit("there is no such flow")
    assert client.wait(run_id, LIMIT_SEC)["status"] == "FAILED"
    letter = _letter_of(client, run_id)
    assert letter["entry"]["reason"] == "flow_not_found"
    assert client.dead_letter(letter["sequence"]) == letter


def test_many_at_once_with_asyncio(started: Platform) -> None:
    async def one(client: AsyncClient) -> str:
        run_id = await client.submit("hello")
        return str((await client.wait(run_id, LIMIT_SEC))["status"])

    async def go() -> list[str]:
        async with AsyncClient(started.url) as client:
            return await asyncio.gather(*(one(client) for _ in range(10)))

    assert asyncio.run(go()) == ["COMPLETED"] * 10


# --- The commands ----------------------------------------------------------------------------------------------------


def test_the_first_five_minutes_by_commands(started: Platform, tmp_path: Path) -> None:
    def ask(*args: str) -> Any:
        done = call(tmp_path, "--server", started.url, "--lang", "en", *args)
        assert done.returncode == 0, done.stderr + done.stdout
        return [json.loads(line) for line in done.stdout.splitlines()]

    ((submitted),) = ask("submit", "--flow-name", "approval")
    run_id = submitted["run_id"]
    with Client(started.url) as client:
        assert any(snapshot["waiting"] for snapshot in client.watch(run_id, timeout=LIMIT_SEC, until_terminal=False))
        ask("resume", run_id, "approval", "--input", '"yes"')
    seen = ask("watch", run_id, "--until-terminal", "--timeout-sec", "60")
    assert seen[-1]["status"] == "COMPLETED"
    assert ask("get", run_id)[0]["status"] == "COMPLETED"
    assert ask("tasks", run_id)[0]["tasks"]["decide"] == "SUCCEEDED"
    assert run_id in {run["run_id"] for run in ask("list", "--flow", "approval")[0]}
    assert run_id in {run["run_id"] for run in ask("list-vnext", "--flow", "approval")[0]["items"]}
    assert ask("events", run_id, "--follow")[-1]["type"] == "EXECUTION_COMPLETED"
    (replayed,) = ask("replay", run_id)
    assert replayed["agrees"] is True
    assert replayed["differences"] == []
    ((forever),) = ask("submit", "--flow-name", "forever")
    (cancelled,) = ask("cancel", "--run-id", forever["run_id"], "--wait", "--timeout-sec", "60")
    assert cancelled["status"] == "CANCELLED"


def test_a_refusal_by_command(started: Platform, tmp_path: Path) -> None:
    done = call(tmp_path, "get", "none", "--server", started.url, "--lang", "ja")
    assert done.returncode == 1
    first, *rest = done.stderr.splitlines()
    assert first.startswith("error: HTTP 404: runが見つかりません")
    assert first.endswith("[MSG-PYOCO-0005/ERR-PYOCO-0005]")
    assert "action: run_id確認" in rest
    assert rest[-1] == "hint: 'pyoco-client list' で一覧を表示"


def test_a_flow_yaml_by_command(started: Platform, tmp_path: Path) -> None:
    (tmp_path / "flow.yaml").write_text(YAML)
    done = call(tmp_path, "submit-yaml", "--workflow-file", "flow.yaml", "--flow-name", "mine", "--server", started.url)
    assert done.returncode == 0, done.stderr
    with Client(started.url) as client:
        ended = client.wait(json.loads(done.stdout)["run_id"], LIMIT_SEC)
    assert (ended["flow_name"], ended["params"]) == ("mine", {"name": "Ada"})


def test_waiting_clients_survive_a_restart_of_everything(tmp_path: Path) -> None:
    with platform(tmp_path) as running, Client(running.url) as client:
        run_id = waiting(client)
        ended: list[dict[str, Any]] = []
        watching = client.watch(run_id)
        next(watching)
        waits = threading.Thread(target=lambda: ended.append(client.wait(run_id, 100)))
        waits.start()
        running.stop()
        running.start()
        client.resume(run_id, "approval", "yes")
        waits.join(100)
        assert ended[0]["status"] == "COMPLETED"
        assert list(watching)[-1]["status"] == "COMPLETED"


def test_an_answer_that_does_not_fit_the_form_is_refused_by_field(client: Client, started: Platform) -> None:
    form = "flow: { graph: ask }\ntasks: { ask: { wait: { prompt: { fields: { ok: boolean } } } } }\n"
    run_id = client.submit_yaml(form, "form")
    assert next(seen for seen in client.watch(run_id, timeout=LIMIT_SEC) if seen["waiting"])
    with pytest.raises(ApiError, match=r"input\.ok") as refused:
        client.resume(run_id, "ask", {"ok": "maybe"})
    assert (refused.value.status, refused.value.err_id) == (422, "ERR-PYOCO-0002")
    assert [problem["loc"] for problem in refused.value.details["problems"]] == [["input", "ok"]]

    async def asked() -> None:
        async with AsyncClient(started.url, lang="en") as other:
            with pytest.raises(ApiError, match=r"input\.ok"):
                await other.resume(run_id, "ask", {"ok": 1})

    asyncio.run(asked())
    done = call(Path.cwd(), "resume", run_id, "ask", "--input", '{"ok": "maybe"}', "--server", started.url)
    assert done.returncode != 0
    assert "input.ok" in done.stderr
    client.resume(run_id, "ask", {"ok": True})
    assert client.wait(run_id, LIMIT_SEC)["task_records"]["ask"]["output"] == {"ok": True}
