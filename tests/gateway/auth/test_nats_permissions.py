"""NATS with users, as deploy/nats-users.conf sets it up: the platform works, and no user can do more than it must."""

import asyncio
import contextlib
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import msgspec
import nats
import nats.errors
import pytest
from nats.aio.client import Client
from pydantic import SecretStr

from pyoco_server.adapters.jetstream.durability.connection import connect
from pyoco_server.adapters.jetstream.primitives.names import Names
from pyoco_server.adapters.jetstream.stores.work_queue import JetStreamWorkQueue
from pyoco_server.app.ports import UnavailableError
from pyoco_server.app.runs.submit import Submission
from pyoco_server.bootstrap import open_platform
from pyoco_server.bootstrap.gateway import open_gateway, open_key_service
from pyoco_server.core import Actor, ActorKind
from pyoco_server.gateway.app import create_app
from pyoco_server.settings import Settings
from pyoco_server.settings.model import Auth, Nats, Storage
from tests.cli.serving import clean_environment
from tests.gateway.auth.secured import PAGE, Secured, new_nkey
from tests.gateway.auth.world import PEPPER, Open
from tests.gateway.stand import eventually
from tests.waiting import wait_until

FLOW = """
from pyoco import Flow, task

@task
def large() -> str:
    return "x" * 200_000

@task
def size(large: str) -> int:
    return len(large)

flow = Flow("sized") >> large >> size
"""
INBOXES = {"ADMIN": "_INBOX", "GATEWAY": "_INBOX_gateway", "WORKER": "_INBOX_worker"}


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    server = Secured(tmp_path_factory.mktemp("secured"))
    server.start()
    yield server
    server.kill()


def settings_of(secured: Secured, user: str, directory: Path) -> Settings:
    return Settings(
        nats=Nats(
            urls=(secured.url,),
            nkey_seed=SecretStr(secured.nkeys[user].seed),
            tls_ca_file=secured.ca,
            inbox_prefix=INBOXES[user],
        ),
        auth=Auth(mode="api_key", pepper=SecretStr(PEPPER)),
        storage=Storage(data_dir=directory),
    )


@contextlib.contextmanager
def worker_process(secured: Secured, directory: Path) -> Iterator[None]:
    (directory / "sized.py").write_text(FLOW)
    environment = clean_environment(
        PYOCO_NATS_URL=secured.url,
        PYOCO_NATS_NKEY_SEED=secured.nkeys["WORKER"].seed,
        PYOCO_NATS_TLS_CA=str(secured.ca),
        PYOCO_NATS_INBOX_PREFIX=INBOXES["WORKER"],
    )
    command = [sys.executable, "-m", "pyoco_server.cli.worker", "--flows", "sized.py", "--worker-id", "w1"]
    process = subprocess.Popen(  # noqa: S603 our own command
        command, cwd=directory, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        yield
    finally:
        process.terminate()
        output, _ = process.communicate(timeout=20)
    assert process.returncode == 0, output


async def _ended(gateway: Open, key: str, run_id: str) -> dict[str, object]:
    async with gateway.client(key) as client, asyncio.timeout(30):
        while True:
            snapshot: dict[str, object] = (await client.get(f"/runs/{run_id}", params={"include": "full"})).json()
            if snapshot["status"] in {"COMPLETED", "FAILED", "CANCELLED"}:
                return snapshot
            await asyncio.sleep(0.05)


@pytest.mark.spec("004 REQ-0016")
def test_a_run_goes_all_the_way_with_the_users_of_the_documentation(secured: Secured, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with open_key_service(settings_of(secured, "ADMIN", tmp_path)) as desk:
            key = await desk.create("acme")
            async with open_gateway(settings_of(secured, "GATEWAY", tmp_path)) as services:
                app = create_app(lambda: contextlib.nullcontext(services))
                async with app.router.lifespan_context(app):
                    gateway = Open(app, services, desk)
                    async with gateway.client(key) as client:
                        run_id = (await client.post("/runs", json={"flow_name": "sized"})).json()["run_id"]
                        with worker_process(secured, tmp_path):
                            snapshot = await _ended(gateway, key.text, run_id)
                            assert snapshot["status"] == "COMPLETED", snapshot
                            assert (await client.put("/graphs/g", json={"nodes": [], "edges": []})).status_code != 503
                            assert (await client.get(f"/runs/{run_id}/events")).status_code == 200
                            large = await client.get(f"/runs/{run_id}/nodes/large/output")
                            assert large.json() == "x" * 200_000
        assert snapshot["tenant_id"] == "acme"
        assert snapshot["worker_id"] == "w1"

    before = len(secured.violations())
    asyncio.run(scenario())
    assert secured.violations()[before:] == []


def test_a_gateway_may_end_an_exhausted_job(secured: Secured, tmp_path: Path) -> None:
    async def scenario() -> None:
        submission = Submission(flow_name="any", tag="exhausted")
        async with (
            open_platform(settings_of(secured, "ADMIN", tmp_path), name="workers") as workers,
            open_gateway(settings_of(secured, "GATEWAY", tmp_path)) as services,
        ):
            run_id = (await services.submitter.submit(submission, Actor(ActorKind.USER)))["run_id"]
            queue = JetStreamWorkQueue(workers.connection, Names(max_deliver=2))
            for _ in range(2):
                delivery = await queue.pull("exhausted", timeout_sec=5)
                assert delivery is not None
                await delivery.nak(0)
            assert await queue.pull("exhausted", timeout_sec=0.1) is None

            async def is_over() -> bool:
                jobs = await workers.connection.js.stream_info("PYOCO_WORK", subjects_filter="pyoco.work.exhausted")
                return not jobs.state.subjects and await services.dead_letters.count() == 1

            await eventually(is_over)
            stored = await services.snapshots.read(run_id)
            assert stored is not None
            assert msgspec.json.decode(stored.body)["status"] == "FAILED"

    before = len(secured.violations())
    asyncio.run(scenario())
    assert secured.violations()[before:] == []


# --- What each may not do ---------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def client_of(secured: Secured, user: str) -> AsyncIterator[tuple[Client, list[str]]]:
    """Open a plain client, as a thief of the seed would, and the list of errors that the server sends it."""
    errors: list[str] = []

    async def on_error(error: Exception) -> None:
        errors.append(str(error))

    client = await nats.connect(
        secured.url,
        nkeys_seed_str=secured.nkeys[user].seed,
        tls=ssl.create_default_context(cafile=secured.ca),
        inbox_prefix=INBOXES[user],
        error_cb=on_error,
        allow_reconnect=False,
    )
    try:
        yield client, errors
    finally:
        await client.close()


FORBIDDEN_TO_ALL = [
    "$JS.API.STREAM.CREATE.X",
    "$JS.API.STREAM.UPDATE.PYOCO_WORK",
    "$JS.API.STREAM.DELETE.PYOCO_EVENTS",
    "$JS.API.STREAM.PURGE.PYOCO_EVENTS",
    "$JS.API.STREAM.PURGE.KV_pyoco_auth",
    "$JS.API.STREAM.PURGE.OBJ_pyoco_outputs",
    "$JS.API.STREAM.MSG.DELETE.PYOCO_EVENTS",
    "$JS.API.STREAM.MSG.DELETE.PYOCO_DLQ",
    "$JS.API.STREAM.MSG.DELETE.KV_pyoco_auth",
    "$JS.API.CONSUMER.DELETE.PYOCO_WORK.pyoco_workers_default",
    "$JS.API.CONSUMER.PAUSE.PYOCO_WORK.pyoco_workers_default",
    "$JS.API.CONSUMER.CREATE.PYOCO_EVENTS",
    "$JS.API.CONSUMER.CREATE.PYOCO_WORK.x",
    "$JS.API.CONSUMER.CREATE.PYOCO_WORK.x.pyoco.work.default",
    "$JS.API.CONSUMER.CREATE.KV_pyoco_auth.x.>",
    "$JS.API.CONSUMER.DURABLE.CREATE.PYOCO_WORK.x",
    "$JS.API.CONSUMER.MSG.NEXT.PYOCO_WORK.pyoco_workers_gpu",
    "$JS.API.STREAM.SNAPSHOT.KV_pyoco_auth",
    "$JS.API.STREAM.RESTORE.KV_pyoco_auth",
    "$JS.ACK.KV_pyoco_auth.pyoco_workers_default.1.1.1.1.0",
    "$KV.pyoco_auth.k1",
    "_INBOX.x",
    "pyoco.live.x",
]
REFUSED = {
    "WORKER": [
        *FORBIDDEN_TO_ALL,
        "$JS.ACK.PYOCO_WORK.pyoco_workers_gpu.1.1.1.1.0",
        "pyoco.work.gpu",
        "$KV.pyoco_graphs.g",
        "$KV.pyoco_wheel_history.x",
        "$O.pyoco_wheels.M.x",
        "$O.pyoco_wheels.C.x",
        "$JS.API.STREAM.PURGE.OBJ_pyoco_wheels",
        "$JS.API.DIRECT.GET.KV_pyoco_auth",
        "$JS.API.STREAM.MSG.GET.KV_pyoco_auth",
        "$JS.API.DIRECT.GET.PYOCO_WORK",
        "$JS.API.STREAM.MSG.GET.PYOCO_WORK",
        "$JS.API.STREAM.MSG.DELETE.PYOCO_WORK",
    ],
    "GATEWAY": [*FORBIDDEN_TO_ALL, "$JS.API.CONSUMER.MSG.NEXT.PYOCO_WORK.pyoco_workers_default"],
}
DEAF = {
    "WORKER": [
        ">",
        "_INBOX.>",
        "_INBOX_gateway.>",
        "$KV.>",
        "pyoco.events.>",
        "pyoco.work.>",
        "pyoco.live.>",
        "pyoco.live_snapshots.>",
        "$JS.EVENT.>",
    ],
    "GATEWAY": [">", "_INBOX.>", "_INBOX_worker.>", "$KV.>", "pyoco.work.>", "$JS.EVENT.>"],
}


def _was_refused(errors: list[str], action: str, subject: str) -> bool:
    return any(f'permissions violation for {action} "{subject}"'.lower() in text.lower() for text in errors)


@pytest.mark.parametrize("user", ["WORKER", "GATEWAY"])
def test_what_a_user_may_not_do_the_server_refuses(secured: Secured, user: str) -> None:
    async def scenario() -> None:
        async with client_of(secured, user) as (client, errors):
            for subject in REFUSED[user]:
                await client.publish(subject, b"{}")
                await wait_until(lambda s=subject: _was_refused(errors, "publish to", s))  # type: ignore[misc]
            for subject in DEAF[user]:
                await client.subscribe(subject)
                await wait_until(lambda s=subject: _was_refused(errors, "subscription to", s))  # type: ignore[misc]

    asyncio.run(scenario())


def test_a_gateway_may_redeliver_a_dead_workers_job(secured: Secured) -> None:
    async def scenario() -> None:
        async with client_of(secured, "GATEWAY") as (client, errors):
            await client.publish("$JS.ACK.PYOCO_WORK.pyoco_workers_default.1.1.1.1.0", b"-NAK")
            await client.publish("pyoco.live.x", b"")
            await wait_until(lambda: _was_refused(errors, "publish to", "pyoco.live.x"))
            assert len(errors) == 1, errors

    asyncio.run(scenario())


def test_a_worker_cannot_change_its_consumer_to_another_tag(secured: Secured, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with open_key_service(settings_of(secured, "ADMIN", tmp_path)):
            pass  # the streams are there now
        name = "pyoco_workers_default"
        allowed = f"$JS.API.CONSUMER.CREATE.PYOCO_WORK.{name}.pyoco.work.default"
        async with client_of(secured, "WORKER") as (client, _):
            for config in (
                {"durable_name": name, "name": name, "filter_subject": "pyoco.work.gpu", "ack_policy": "explicit"},
                {"durable_name": name, "name": name, "filter_subjects": ["pyoco.work.>"], "ack_policy": "explicit"},
                {"durable_name": "x", "name": "x", "filter_subject": "pyoco.work.default", "ack_policy": "explicit"},
            ):
                body = msgspec.json.encode({"stream_name": "PYOCO_WORK", "config": config})
                answer = msgspec.json.decode((await client.request(allowed, body, timeout=2)).data)
                assert "error" in answer, config

    asyncio.run(scenario())


def test_without_a_known_nkey_or_without_tls_no_client_connects(secured: Secured) -> None:
    async def scenario() -> None:
        stranger = new_nkey()
        with pytest.raises(UnavailableError) as refused:
            await connect(secured.url, name="x", nkeys_seed=stranger.seed, tls_ca=secured.ca, connect_timeout_sec=1)
        assert stranger.seed not in str(refused.value)
        with pytest.raises(UnavailableError):
            await connect(secured.url, name="x", tls_ca=secured.ca, connect_timeout_sec=1)
        known = secured.nkeys["ADMIN"].seed
        with pytest.raises(UnavailableError):  # the certificate is signed by no known authority
            await connect(secured.url, name="x", nkeys_seed=known, connect_timeout_sec=1)
        async with await connect(secured.url, name="x", nkeys_seed=known, tls_ca=secured.ca) as connection:
            assert connection.is_connected
            await connection.js.account_info()

    asyncio.run(scenario())


def test_the_page_says_how_to_make_an_nkey(tmp_path: Path) -> None:
    text = PAGE.read_text(encoding="utf-8")
    script = text.partition("<<'NKEY'\n")[2].partition("\nNKEY")[0]
    done = subprocess.run(  # noqa: S603 from our own page
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=20
    )
    seed, public = done.stdout.split()
    assert seed.startswith("SU")
    assert public.startswith("U")
    assert Nats(nkey_seed=SecretStr(seed)).nkey_seed is not None
