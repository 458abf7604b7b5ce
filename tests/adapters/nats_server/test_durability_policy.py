"""Which side syncs, by the version of the server that runs, and what is reported about it."""

import asyncio
import shutil
import tempfile
from pathlib import Path

import pytest
from nats.js.api import StreamConfig

from pyoco_server.adapters.jetstream.durability.connection import connect
from pyoco_server.adapters.jetstream.durability.file_system import file_system_of
from pyoco_server.adapters.jetstream.durability.policy import (
    PASSED_VERSIONS,
    Durability,
    SyncedBy,
    policy_of_connected,
    policy_of_embedded,
)
from pyoco_server.adapters.jetstream.durability.self_test import SCRATCH_PREFIX, SCRATCH_SUBJECTS
from pyoco_server.adapters.jetstream.durability.server_name import CONFIGURATION, leaves_syncing, name_for_store
from pyoco_server.adapters.jetstream.primitives.names import Names
from pyoco_server.adapters.jetstream.primitives.provisioning import provision
from pyoco_server.adapters.nats_server import NatsServer, ServerCommand, nats_server_command
from pyoco_server.app.ports import UnavailableError
from tests.adapters.nats_server.servers import actions, left_in, run, store, stored

PASSED = max(PASSED_VERSIONS)


def server_that_says(version: str, directory: Path) -> ServerCommand:
    """Return the real server behind a script that answers ``--version`` with another one."""
    return _wrapped(directory, f'if [ "$1" = --version ]; then echo "nats-server: {version}"; exit; fi')


def server_that_stores_in(other: Path, directory: Path) -> ServerCommand:
    """Return the real server behind a script that gives it another directory for its store."""
    keep = f"""if [ "$1" = -c ]; then
  sed 's#  store_dir: .*#  store_dir: "{other}"#' "$2" > "{other}.conf" && set -- -c "{other}.conf"
fi"""
    return _wrapped(directory, keep)


def _wrapped(directory: Path, before: str) -> ServerCommand:
    script = directory / "nats-server"
    script.write_text(f'#!/bin/sh\n{before}\nexec "{nats_server_command().arguments[0]}" "$@"\n')
    script.chmod(0o755)
    return nats_server_command(script)


def reports(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    """Return the level and the text of every report of a policy."""
    found = [record for record in caplog.records if record.__dict__.get("action") == "durability_policy"]
    return [(record.levelname, record.getMessage()) for record in found]


def test_the_installed_server_has_passed_the_power_loss_suite() -> None:
    assert asyncio.run(nats_server_command().server_version()) in PASSED_VERSIONS


@pytest.mark.parametrize(
    ("durability", "host", "platform", "version", "synced_by", "is_fallback"),
    [
        ("sync", "127.0.0.1", "linux", PASSED, "clients", False),
        ("sync", "::1", "linux", PASSED, "clients", False),
        ("sync", "127.0.0.1", "linux", "2.12.0", "server", True),
        ("sync", "127.0.0.1", "linux", None, "server", True),
        ("sync", "127.0.0.1", "darwin", PASSED, "server", False),
        ("sync", "0.0.0.0", "linux", PASSED, "server", False),  # noqa: S104 (no server is started)
        ("sync", "192.0.2.1", "linux", "2.12.0", "server", False),
        ("fast", "127.0.0.1", "linux", "2.12.0", "none", False),
        ("fast", "0.0.0.0", "linux", None, "none", False),  # noqa: S104 (no server is started)
    ],
)
def test_the_policy_of_an_embedded_server(
    durability: Durability, host: str, platform: str, version: str | None, synced_by: SyncedBy, is_fallback: bool
) -> None:
    policy = policy_of_embedded(durability, host=host, platform=platform, version=version)
    assert (policy.synced_by, policy.is_fallback) == (synced_by, is_fallback)
    assert policy.why
    assert "\n" not in policy.line


def test_the_policy_of_another_server_says_what_its_operator_has_to_set() -> None:
    line = policy_of_connected(leaves_syncing=False, version="2.15.1", replicas=1).line
    assert "one node holds each message" in line
    assert "'jetstream { sync_interval: always }'" in line
    assert "3 nodes hold" in policy_of_connected(leaves_syncing=False, version="2.15.1", replicas=3).line
    assert policy_of_connected(leaves_syncing=True, version="2.15.1", replicas=1).synced_by == "clients"


def test_clients_sync_for_a_version_that_passed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")

    async def main() -> None:
        async with NatsServer(tmp_path) as server:
            assert server.policy.synced_by == "clients"

    run(main)
    [(level, text)] = reports(caplog)
    assert level == "INFO"
    assert "group commit" in text
    assert PASSED in text
    assert f"the data is on {file_system_of(tmp_path).name}" in text


@pytest.mark.parametrize("version", ["v2.15.99", "v2.11.0", "who knows"])
def test_a_version_that_has_not_passed_syncs_every_message_itself(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, version: str
) -> None:
    command = server_that_says(version, tmp_path)

    async def main() -> None:
        async with NatsServer(tmp_path / "data", command=command) as server:
            assert server.policy.synced_by == "server"
            assert "sync_interval: always" in (tmp_path / "data" / "nats-server.conf").read_text()
            async with await connect(server.url, name="test") as connection:
                assert not leaves_syncing(connection.nc.server_name)

    run(main)
    [(level, text)] = reports(caplog)
    assert level == "WARNING"
    assert "sync_interval: always" in text
    assert (version.removeprefix("v") if version.startswith("v") else "unknown version") in text


def test_a_program_replaced_while_it_runs_is_judged_at_the_next_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    command = server_that_says(f"v{PASSED}", tmp_path)

    async def main() -> None:
        server = NatsServer(tmp_path / "data", command=command)
        async with server:
            first = server.policy
        server_that_says("v2.15.99", tmp_path)
        async with server:
            assert (first.synced_by, server.policy.synced_by) == ("clients", "server")

    run(main)
    assert [level for level, _ in reports(caplog)] == ["INFO", "WARNING"]


def test_a_server_that_keeps_its_files_elsewhere_syncs_every_message_itself(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    command = server_that_stores_in(tmp_path / "other", tmp_path)

    async def main() -> None:
        async with NatsServer(tmp_path / "data", command=command) as server:
            assert server.policy.synced_by == "server"
            await store(server.url, b"durable")
            assert await stored(server.url) == [b"durable"]

    run(main)
    [(level, text)] = reports(caplog)
    assert level == "WARNING"
    assert f"a message that it acknowledged is not in its files below {tmp_path / 'data'}" in text
    assert "sync_interval: always" in (tmp_path / "other.conf").read_text()
    assert left_in(tmp_path / "other" / "jetstream" / "$G" / "streams") == {"EV"}


def test_the_self_test_leaves_no_stream(tmp_path: Path) -> None:
    left = tmp_path / "jetstream" / "$G" / "streams" / f"{SCRATCH_PREFIX}of-a-crash" / "msgs"
    left.mkdir(parents=True)
    (left / "1.blk").write_bytes(b"x")

    async def main() -> None:
        async with NatsServer(tmp_path) as server, await connect(server.url, name="test") as connection:
            assert await connection.js.streams_info() == []
            await provision(connection, Names())
            before = {str(info.config.name) for info in await connection.js.streams_info()}
            await connection.sync("PYOCO_EVENTS")
            assert {str(info.config.name) for info in await connection.js.streams_info()} == before

    run(main)


def test_a_client_that_reads_the_files_of_another_server_confirms_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A copy of a data directory at the same path has the name of the server and streams of the right names."""

    async def main() -> None:
        async with NatsServer(tmp_path / "here") as first, await connect(first.url, name="test") as connection:
            await provision(connection, Names())
        shutil.copytree(tmp_path / "here", tmp_path / "copy")
        name = name_for_store(tmp_path / "copy")
        (tmp_path / "copy" / CONFIGURATION).write_text(name)
        misled = NatsServer(tmp_path / "here", synced_by="server", server_name=name)
        async with misled, await connect(misled.url, name="test") as connection:
            with pytest.raises(UnavailableError, match="no gateway syncs the store"):
                await connection.sync("PYOCO_EVENTS")
            await connection.serve_syncs()
            with pytest.raises(UnavailableError, match="the store of the NATS server cannot be read"):
                await connection.sync("PYOCO_EVENTS")

    run(main)
    assert actions(caplog).count("durability_self_test_failed") == 1


def test_a_server_whose_data_is_in_memory_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    async def main(directory: Path) -> None:
        async with NatsServer(directory) as server:
            assert server.policy.synced_by == "clients"

    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        run(lambda: main(Path(directory)))
    [warning] = [record for record in caplog.records if record.__dict__.get("action") == "file_system_doubtful"]
    assert "the data is on tmpfs (mounted at /dev/shm), which is memory" in warning.getMessage()


def test_a_refused_self_test_is_repeated(tmp_path: Path) -> None:
    """A full disk, for example, refuses new streams: when there is room again, nothing has to be restarted."""

    async def main() -> None:
        async with NatsServer(tmp_path) as server, await connect(server.url, name="test") as connection:
            await provision(connection, Names())
            in_the_way = StreamConfig(name="ROOM", subjects=[f"{SCRATCH_SUBJECTS}.*"])
            await connection.js.add_stream(in_the_way)
            with pytest.raises(UnavailableError, match="the self-test of the store was refused: subjects overlap"):
                await connection.sync("PYOCO_EVENTS")
            await connection.js.delete_stream("ROOM")
            await connection.sync("PYOCO_EVENTS")

    run(main)
