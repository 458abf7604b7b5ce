"""A server from its start to its stop."""

import asyncio
import json
import signal
import stat
import urllib.request
from pathlib import Path
from typing import cast

import nats
import pytest

from pyoco_server.adapters.jetstream.durability.policy import Durability, SyncedBy
from pyoco_server.adapters.jetstream.durability.server_name import leaves_syncing, streams_dir
from pyoco_server.adapters.nats_server import NatsServer, ServerCommand, nats_server_command
from pyoco_server.adapters.nats_server.config import Configuration
from tests.adapters.executor.leaks import is_gone
from tests.adapters.nats_server.servers import announced, left_in, run, signal_to, store, stored, taken_port
from tests.waiting import wait_until


def test_a_server_starts_on_a_free_port_and_leaves_only_its_data_behind(tmp_path: Path) -> None:
    directory = tmp_path / "not" / "there" / "yet"

    async def main() -> int:
        async with NatsServer(directory) as server:
            assert server.pid is not None
            await store(server.url, b"kept")
            assert await stored(server.url) == [b"kept"]
            return server.pid

    pid = run(main)
    assert is_gone(pid)
    assert left_in(directory) == {"jetstream", "nats-server.conf", "nats-server.log", "nats-server.out"}


def test_the_server_listens_on_the_given_port(tmp_path: Path) -> None:
    with taken_port() as port:
        pass

    async def main() -> None:
        server = NatsServer(tmp_path, port=port)
        assert server.url == f"nats://127.0.0.1:{port}"
        async with server:
            await store(f"nats://127.0.0.1:{port}", b"here")

    run(main)


def test_a_server_can_be_stopped_twice_at_once_and_started_again(tmp_path: Path) -> None:
    async def main() -> None:
        server = NatsServer(tmp_path)
        await server.stop()
        await server.start()
        await store(server.url, b"1")
        await asyncio.gather(server.stop(), server.stop())
        assert server.pid is None
        await server.stop()
        async with server:
            assert await stored(server.url) == [b"1"]

    run(main)


def test_a_running_server_is_not_started_a_second_time(tmp_path: Path) -> None:
    async def main() -> None:
        async with NatsServer(tmp_path) as server:
            pid = server.pid
            with pytest.raises(RuntimeError, match="already started"):
                await server.start()
            assert server.pid == pid
            await store(server.url)

    run(main)


def test_there_is_no_url_before_there_is_a_port(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="start it first"):
        _ = NatsServer(tmp_path).url
    with pytest.raises(ValueError, match="port must be from 0 to 65535, not 65536"):
        NatsServer(tmp_path, port=65536)


def test_wait_returns_when_the_server_is_stopped(tmp_path: Path) -> None:
    async def main() -> None:
        server = NatsServer(tmp_path)
        await server.wait()
        async with server:
            waiting = asyncio.create_task(server.wait())
            await asyncio.sleep(0)
            assert not waiting.done()
        await waiting

    run(main)


def test_a_server_that_does_not_listen_to_signals_is_killed(tmp_path: Path) -> None:
    async def main() -> int:
        server = NatsServer(tmp_path, stop_timeout_sec=0.1)
        await server.start()
        pid = signal_to(server, signal.SIGSTOP)
        await server.stop()
        return pid

    assert is_gone(run(main))
    assert not list(tmp_path.glob("*.ports"))
    assert not list(tmp_path.glob("*.lock"))


def test_a_stop_that_is_cancelled_leaves_nothing_behind_either(tmp_path: Path) -> None:
    async def main() -> None:
        server = NatsServer(tmp_path)
        await server.start()
        signal_to(server, signal.SIGSTOP)
        stopping = asyncio.create_task(server.stop())
        await wait_until(lambda: server.pid is None)
        stopping.cancel()
        with pytest.raises(asyncio.CancelledError):
            await stopping
        async with NatsServer(tmp_path):
            pass

    run(main)


def test_two_servers_in_two_directories_are_independent(tmp_path: Path) -> None:
    async def main() -> None:
        async with NatsServer(tmp_path / "a") as a, NatsServer(tmp_path / "b") as b:
            await store(a.url, b"a")
            await store(b.url, b"b")
            assert (await stored(a.url), await stored(b.url)) == ([b"a"], [b"b"])

    run(main)


@pytest.mark.parametrize("name", ["with spaces", "ünïcode データ", 'quote " and \\ back', "$HOME #1 {x}", "new\nline"])
def test_any_path_can_be_the_data_directory(tmp_path: Path, name: str) -> None:
    directory = tmp_path / name

    async def main() -> None:
        async with NatsServer(directory) as server:
            await store(server.url, b"found")
        async with NatsServer(directory) as server:
            assert await stored(server.url) == [b"found"]

    run(main)
    assert left_in(tmp_path) == {name}
    assert (directory / "jetstream" / "$G" / "streams" / "EV").is_dir()


def test_a_relative_path_stays_valid_after_a_change_of_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    server = NatsServer(Path("data"))
    monkeypatch.chdir(tmp_path / "elsewhere")

    async def main() -> None:
        async with server:
            await store(server.url, b"x")

    run(main)
    assert (tmp_path / "data" / "jetstream").is_dir()
    assert not left_in(tmp_path / "elsewhere")


@pytest.mark.parametrize(
    ("durability", "synced_by", "is_synced"),
    [("sync", "server", True), ("sync", "clients", False), ("sync", None, False), ("fast", None, False)],
)
def test_the_durability_of_a_write_can_be_chosen(
    tmp_path: Path, durability: Durability, synced_by: SyncedBy | None, is_synced: bool
) -> None:
    binary, *rest = nats_server_command().arguments
    with_monitoring = ServerCommand((binary, "-m", "-1", *rest), signal.SIGTERM)

    async def main() -> dict[str, object]:
        async with NatsServer(tmp_path, durability=durability, synced_by=synced_by, command=with_monitoring):
            (address,) = announced(tmp_path)["monitoring"]
            answer = await asyncio.to_thread(lambda: urllib.request.urlopen(f"{address}/varz").read())  # noqa: S310
        info: dict[str, object] = json.loads(answer)
        return info

    info = asyncio.run(main())
    config = cast("dict[str, object]", cast("dict[str, object]", info["jetstream"])["config"])
    assert config.get("sync_always", False) is is_synced
    assert config["store_dir"] == str(tmp_path / "jetstream")
    assert ("sync_interval: always" in (tmp_path / "nats-server.conf").read_text()) is is_synced
    by_clients = durability == "sync" and synced_by != "server"
    assert leaves_syncing(str(info["server_name"])) is by_clients


def test_clients_learn_where_to_sync_from_the_name_of_the_server(tmp_path: Path) -> None:
    data_dir = tmp_path / "with a space, % and ü"

    async def main() -> None:
        async with NatsServer(data_dir):
            [line] = [
                line for line in (data_dir / "nats-server.conf").read_text().splitlines() if "server_name" in line
            ]
            name = line.partition('"')[2].rstrip('"')
            assert streams_dir(name) == data_dir / "jetstream" / "$G" / "streams"
            assert streams_dir(name.replace("clients:", "clients:0")) is None  # of another start, or another machine
            assert list(announced(data_dir)) == ["nats"]  # and no monitoring

    run(main)


def test_the_name_of_the_server_has_the_place_of_the_store(tmp_path: Path) -> None:
    async def main() -> None:
        async with NatsServer(tmp_path, server_name="mine", synced_by="server") as server:
            client = await nats.connect(server.url)
            assert client.max_payload == 8 * 1024 * 1024
            assert client._server_info["server_name"] == "mine"
            await client.close()
            assert "Server is ready" in server.log_path.read_text()

    run(main)


def test_only_the_owner_may_read_the_configuration(tmp_path: Path) -> None:
    config = tmp_path / "data" / "nats-server.conf"
    config.parent.mkdir()
    config.write_text("left by another program: {")
    config.chmod(0o666)

    async def main() -> None:
        async with NatsServer(config.parent):
            assert stat.S_IMODE(config.stat().st_mode) == 0o600

    run(main)


def test_a_server_that_listens_everywhere_is_reached_on_loopback(tmp_path: Path) -> None:
    assert NatsServer(tmp_path, host="0.0.0.0", port=1).url == "nats://127.0.0.1:1"  # noqa: S104 (not started)
    assert NatsServer(tmp_path, host="::1", port=1).url == "nats://[::1]:1"


def test_the_log_is_rotated_by_its_size(tmp_path: Path) -> None:
    text = Configuration("127.0.0.1", 1, "server", "x").text(data_dir=tmp_path, log=tmp_path / "log")
    assert "logfile_size_limit: 10485760\nlogfile_max_num: 5\n" in text
