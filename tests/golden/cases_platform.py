"""A few runs of the real platform: a nats-server, a gateway asked over HTTP, a worker."""

import tempfile
from collections.abc import Callable
from pathlib import Path

import httpx

from pyoco_server.core import Event
from pyoco_server.gateway.services import Services
from tests.adapters.real_nats import NatsServer
from tests.gateway.stand import Stand, ended, settings_for, submit, until, waiting
from tests.gateway.test_yaml import upload
from tests.golden.files import Recorded
from tests.golden.recording import case


def on_nats(script: Callable[[httpx.Client], str]) -> Recorded:
    """The log of the run whose id the script returns, as NATS has it."""
    with (
        tempfile.TemporaryDirectory(prefix="pyoco-golden-") as folder,
        NatsServer(Path(folder)) as server,
        Stand(settings_for(server.url, Path(folder) / "data")) as stand,
        stand.client() as client,
    ):
        run_id = script(client)

        async def read(services: Services) -> list[Event]:
            return list((await services.log.read(run_id))[0])

        return Recorded(stand.call(read))


@case("the real platform: two tasks")
def platform_completed() -> Recorded:
    def script(client: httpx.Client) -> str:
        run_id = submit(client, params={"name": "ann"})
        ended(client, run_id)
        return run_id

    return on_nats(script)


@case("the real platform: a wait, resumed over HTTP")
def platform_resumed() -> Recorded:
    def script(client: httpx.Client) -> str:
        run_id = submit(client, "ask")
        waiting(client, run_id)
        answer = client.post(f"/runs/{run_id}/nodes/ask/resume", json={"input": {"ok": True}, "key": "approval"})
        assert answer.status_code < 300, answer.text
        ended(client, run_id)
        return run_id

    return on_nats(script)


@case("the real platform: a task that raises, and the run put away afterwards")
def platform_failed() -> Recorded:
    def script(client: httpx.Client) -> str:
        run_id = submit(client, "boom")
        ended(client, run_id)
        assert client.post(f"/runs/{run_id}/archive").status_code < 300
        return run_id

    return on_nats(script)


@case("the real platform: cancelled at work over HTTP")
def platform_cancelled() -> Recorded:
    def script(client: httpx.Client) -> str:
        run_id = submit(client, "long")
        until(client, run_id, lambda snapshot: snapshot["tasks"].get("sleeps") == "RUNNING")
        client.post(f"/runs/{run_id}/cancel", json={"reason": "enough"}, headers={"X-Correlation-Id": "c-1"})
        ended(client, run_id)
        return run_id

    return on_nats(script)


@case("the real platform: a flow.yaml uploaded")
def platform_yaml() -> Recorded:
    def script(client: httpx.Client) -> str:
        run_id: str = upload(client).json()["run_id"]
        ended(client, run_id)
        return run_id

    return on_nats(script)
