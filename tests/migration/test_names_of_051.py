"""Programs written for 0.5.1, on the names they import: the gateway by uvicorn, the client, the worker."""

import asyncio
import contextlib
import importlib
import math
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from pyoco import Flow, task  # type: ignore[import-untyped]  # pyoco ships no type information

import pyoco_server
from pyoco_server import NatsBackendConfig, PyocoHttpClient, PyocoNatsWorker
from pyoco_server.errors import InvalidInputError
from tests.adapters.real_nats import NatsServer
from tests.migration.conftest import uvicorn_factory
from tests.plain_http import NO_TLS
from tests.wheels.building import make_wheel

EVERYWHERE = "0.0.0.0"  # noqa: S104 what must not be open
FLOW_YAML = """
version: 1
flow:
  graph: |
    first >> second
  defaults:
    x: 1
tasks:
  first:
    callable: tests.migration.test_names_of_051:root
    inputs: {x: 4}
  second:
    callable: tests.migration.test_names_of_051:root
    inputs: {x: $node.first.output}
"""


def root(x: float) -> float:
    return math.sqrt(x)


@task  # type: ignore[untyped-decorator]
def one() -> int:
    return 1


@task  # type: ignore[untyped-decorator]
def two(ctx: Any) -> int:
    return int(ctx.results["one"]) + 1


def resolve(flow_name: str) -> Flow:
    if flow_name != "main":
        raise KeyError(flow_name)
    return Flow(name="main") >> one >> two


def config(nats: NatsServer, **fields: Any) -> NatsBackendConfig:
    with pytest.deprecated_call(match="NatsBackendConfig"):
        return NatsBackendConfig(nats_url=nats.url, **fields)


async def connected(given: NatsBackendConfig, **more: Any) -> PyocoNatsWorker:
    with pytest.deprecated_call(match="pyoco-worker --flow-resolver"):
        return await PyocoNatsWorker.connect(config=given, flow_resolver=resolve, **more)


@contextlib.contextmanager
def client_of(url: str, **more: Any) -> Iterator[PyocoHttpClient]:
    with pytest.deprecated_call(match="pyoco_server.Client"):
        client = PyocoHttpClient(url, **more)
    try:
        yield client
    finally:
        client.close()


def test_a_program_of_051_serves_submits_works_watches_and_cancels(tmp_path: Path, nats: NatsServer) -> None:
    with uvicorn_factory(tmp_path, nats.url) as served, client_of(served.url) as client:
        submitted = client.submit_run("main", params={"hello": "world"}, tag="hello", tags=["hello"])
        assert submitted["status"] == "PENDING"
        by_yaml = client.submit_run_yaml(FLOW_YAML, flow_name="main", tag="other")["run_id"]
        unknown = client.submit_run("nothing", tag="hello")["run_id"]
        done = asyncio.run(_work(nats, [submitted["run_id"], by_yaml, unknown]))
        assert done == [{submitted["run_id"], by_yaml, unknown}, None]

        snapshot = client.get_run(submitted["run_id"])
        assert (snapshot["status"], snapshot["tasks"]) == ("COMPLETED", {"one": "SUCCEEDED", "two": "SUCCEEDED"})
        assert "task_records" not in snapshot
        assert client.get_run_with_records(submitted["run_id"])["task_records"]["two"]["output"] == 2
        assert client.get_tasks(by_yaml)["tasks"] == {"first": "SUCCEEDED", "second": "SUCCEEDED"}
        assert client.get_run(unknown)["status"] == "FAILED"
        [event] = client.watch_run(submitted["run_id"], timeout_sec=10)
        assert (event["event"], event["data"]["snapshot"]["status"]) == ("snapshot", "COMPLETED")

        waiting = client.submit_run("main", tag="unserved")["run_id"]
        assert client.cancel_run(waiting, wait=True, timeout_sec=10)["status"] == "CANCELLED"
        assert [run["run_id"] for run in client.list_runs(status="CANCELLED")] == [waiting]
        page = client.list_runs_vnext(flow="main", limit=2)
        assert len(page["items"]) == 2
        rest = client.list_runs_vnext(flow="main", limit=2, cursor=page["next_cursor"])
        assert {run["run_id"] for run in [*page["items"], *rest["items"]]} == {submitted["run_id"], by_yaml, waiting}

        [worker] = client.get_workers(scope="all")
        assert (worker["worker_id"], worker["state"]) == ("w1", "STOPPED_GRACEFUL")
        assert client.patch_worker_hidden("w1", hidden=True)["hidden"] is True
        assert client.get_workers(scope="all") == []
        assert len(client.get_workers(scope="all", include_hidden=True)) == 1
        assert "pyoco_" in client.get_metrics()
        assert served.stop()[0] in {0, -signal.SIGTERM}  # uvicorn raises the signal again when it has stopped


async def _work(nats: NatsServer, run_ids: list[str]) -> list[Any]:
    worker = await connected(config(nats), worker_id="w1", tags=["hello", "other"])
    try:
        handled = {await worker.run_once(timeout=10.0) for _ in run_ids}
        return [handled, await worker.run_once(timeout=0.1)]
    finally:
        await worker.close()
        await worker.close()


def test_wheels_by_the_client_of_051(tmp_path: Path, nats: NatsServer) -> None:
    name = "my_ext-0.1.0-py3-none-any.whl"
    data = make_wheel("my_ext", "0.1.0")
    with uvicorn_factory(tmp_path, nats.url) as served, client_of(served.url) as client:
        assert client.upload_wheel(filename=name, data=data, tags=["cpu", " "])["tags"] == ["cpu"]
        with pytest.raises(httpx.HTTPStatusError) as caught:
            client.upload_wheel(filename=name, data=data)
        assert caught.value.response.status_code == 409
        assert [wheel["name"] for wheel in client.list_wheels()] == [name]
        client.delete_wheel(name)
        assert [event["action"] for event in client.list_wheel_history(wheel_name=name)] == ["delete", "upload"]


def test_errors_are_those_of_httpx(tmp_path: Path, nats: NatsServer) -> None:
    with uvicorn_factory(tmp_path, nats.url) as served, client_of(served.url) as client:
        with pytest.raises(httpx.HTTPStatusError) as caught:
            client.get_run("00000000-0000-4000-8000-000000000000")
        assert caught.value.response.status_code == 404
        assert caught.value.response.json()["detail"]
        with pytest.raises(httpx.HTTPStatusError):
            next(client.watch_run("00000000-0000-4000-8000-000000000000"))
        served.stop()
        with pytest.raises(httpx.ConnectError):
            client.submit_run("main")


def test_a_key_is_sent_in_the_header_of_choice(tmp_path: Path, nats: NatsServer) -> None:
    settings = {"PYOCO_HTTP_AUTH_MODE": "api_key", "PYOCO_HTTP_API_KEY_HEADER": "X-Team-Key"}
    with uvicorn_factory(tmp_path, nats.url, **settings) as served:
        for key, status in ((None, 401), ("pyoco_wrong", 403)):
            with (
                client_of(served.url, api_key=key, api_key_header="X-Team-Key") as client,
                pytest.raises(httpx.HTTPStatusError) as caught,
            ):
                client.list_runs()
            assert caught.value.response.status_code == status


def test_the_application_is_not_open_to_a_network_without_keys(tmp_path: Path, nats: NatsServer) -> None:
    outside = _address_of_this_machine()
    with uvicorn_factory(tmp_path, nats.url, "--host", EVERYWHERE) as served:
        assert httpx.get(f"{served.url}/runs", verify=NO_TLS).status_code == 200
        url = served.url.replace("127.0.0.1", outside)
        refused = httpx.post(f"{url}/runs", json={"flow_name": "any"}, verify=NO_TLS)
        assert refused.status_code == 401
        assert "PYOCO_HTTP_AUTH_MODE=api_key" in refused.text
        assert httpx.get(f"{served.url}/runs", verify=NO_TLS).json() == []
    with uvicorn_factory(tmp_path, nats.url, "--host", EVERYWHERE, PYOCO_INSECURE_NO_AUTH="1") as served:
        url = served.url.replace("127.0.0.1", outside)
        assert httpx.get(f"{url}/runs", verify=NO_TLS).status_code == 200


def _address_of_this_machine() -> str:
    """One that is not loopback; nothing is sent to find it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this machine has no address but loopback")
        return str(probe.getsockname()[0])


def test_the_configuration_has_the_fields_and_becomes_our_settings(nats: NatsServer) -> None:
    given = config(nats, consumer_ack_wait_sec=2.0, wheel_sync_enabled=True, dlq_publish_execution_error=False)
    settings = given.settings()
    assert settings.nats.urls == (nats.url,)
    assert (settings.consumer.ack_wait_sec, settings.consumer.ack_progress_interval_sec) == (2.0, 1.0)
    assert (settings.wheels.sync_enabled, settings.dead_letters.publish_execution_error) == (True, False)


def test_the_configuration_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYOCO_LOAD_DOTENV", "0")
    monkeypatch.setenv("PYOCO_NATS_URL", "nats://10.0.0.5:4222,nats://10.0.0.6:4222")
    monkeypatch.setenv("PYOCO_AUTH_PEPPER", "secret")
    monkeypatch.setenv("PYOCO_CONSUMER_MAX_DELIVER", "7")
    with pytest.deprecated_call():
        found = NatsBackendConfig.from_env()
    assert (found.nats_url, found.auth_pepper) == ("nats://10.0.0.5:4222,nats://10.0.0.6:4222", "secret")
    assert found.consumer_max_deliver == 7
    assert "secret" not in repr(found)
    with pytest.deprecated_call():
        defaults = NatsBackendConfig()
    for name in ("PYOCO_NATS_URL", "PYOCO_AUTH_PEPPER", "PYOCO_CONSUMER_MAX_DELIVER"):
        monkeypatch.delenv(name)
    with pytest.deprecated_call():
        assert NatsBackendConfig.from_env() == defaults


def test_a_wrong_value_is_refused_by_its_field(nats: NatsServer) -> None:
    with pytest.raises(InvalidInputError, match="NatsBackendConfig: consumer_max_deliver='0' must be"):
        config(nats, consumer_max_deliver=0).settings()


def test_a_worker_that_was_not_connected_says_so() -> None:
    with pytest.deprecated_call():
        worker = PyocoNatsWorker(flow_resolver=resolve)
    with pytest.raises(RuntimeError, match="connect"):
        asyncio.run(worker.run_once())


@pytest.mark.parametrize(
    ("name", "instead"), [("PyocoNatsClient", "pyoco_server.Client"), ("ensure_resources", "when they start")]
)
def test_names_that_are_gone_say_what_replaced_them(name: str, instead: str) -> None:
    with pytest.raises(ImportError, match=instead):
        exec(f"from pyoco_server import {name}", {})  # noqa: S102 as a program imports it
    assert name not in dir(pyoco_server)


def test_the_command_for_keys_is_a_module_too() -> None:
    assert callable(importlib.import_module("pyoco_server.admin_cli").main)
