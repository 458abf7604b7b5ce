"""Servers that die, and supervisors that die."""

import asyncio
import os
import signal
import subprocess
from pathlib import Path

import pytest

from pyoco_server.adapters.nats_server import (
    DirectoryInUseError,
    NatsServer,
    PortTakenError,
    RestartPolicy,
    RestartsExhaustedError,
    StoreDamagedError,
    directory,
)
from tests.adapters.executor.leaks import is_gone
from tests.adapters.executor.test_process_parents import is_zombie
from tests.adapters.nats_server.servers import (
    actions,
    kill_and_see_it_back,
    left_in,
    other_process,
    run,
    signal_to,
    store,
    stored,
    taken_port,
)
from tests.waiting import wait_until

EAGER = RestartPolicy(max_quick_deaths=10, first_delay_sec=0.01)


def test_a_server_killed_three_times_comes_back_with_its_data(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")

    async def main() -> None:
        async with NatsServer(tmp_path, restarts=EAGER) as server:
            url = server.url
            await store(url, b"0")
            for count in range(1, 4):
                await kill_and_see_it_back(server, caplog)
                assert server.url == url
                await store(url, str(count).encode())
            assert await stored(url) == [b"0", b"1", b"2", b"3"]

    run(main)
    again = ["nats_server_died", "nats_server_restarted"]
    started = ["durability_policy", "nats_server_started"]
    assert actions(caplog) == [*started, *again, *again, *again, "nats_server_stopped"]


def test_a_server_that_dies_repeatedly_is_not_restarted_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        server = NatsServer(tmp_path, restarts=RestartPolicy(max_quick_deaths=3, first_delay_sec=0.2))
        await server.start()
        port = int(server.url.rpartition(":")[2])
        signal_to(server, signal.SIGKILL)
        await wait_until(lambda: "nats_server_died" in actions(caplog))
        with taken_port(port), pytest.raises(RestartsExhaustedError) as caught:
            await server.wait()
        assert caught.value.deaths == 3
        assert "address already in use" in str(caught.value)
        assert isinstance(caught.value.__cause__, PortTakenError)
        assert server.pid is None
        await server.stop()

    run(main)
    assert actions(caplog) == ["nats_server_died", "nats_server_died", "nats_server_given_up"]
    assert not list(tmp_path.glob("*.lock"))


def test_a_temporary_obstacle_delays_a_restart(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")

    async def main() -> None:
        restarts = RestartPolicy(max_quick_deaths=20, first_delay_sec=0.2, max_delay_sec=0.2)
        async with NatsServer(tmp_path, restarts=restarts) as server:
            await store(server.url, b"1")
            signal_to(server, signal.SIGKILL)
            await wait_until(lambda: "nats_server_died" in actions(caplog))
            with taken_port(int(server.url.rpartition(":")[2])):
                await wait_until(lambda: actions(caplog).count("nats_server_died") == 2)
            await wait_until(lambda: "nats_server_restarted" in actions(caplog))
            assert await stored(server.url) == [b"1"]

    run(main)


def test_a_damaged_store_ends_the_restarts(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        server = NatsServer(tmp_path, restarts=RestartPolicy(first_delay_sec=0.2))
        await server.start()
        await store(server.url, b"1")
        signal_to(server, signal.SIGKILL)
        await wait_until(lambda: "nats_server_died" in actions(caplog))
        (tmp_path / "jetstream" / "$G" / "streams" / "EV" / "meta.inf").write_bytes(b"{")
        with pytest.raises(StoreDamagedError, match="the streams EV cannot be read"):
            await server.wait()
        await server.stop()

    run(main)
    assert actions(caplog)[-1] == "nats_server_given_up"


def test_a_stop_does_not_wait_for_a_restart(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        server = NatsServer(tmp_path, restarts=RestartPolicy(first_delay_sec=3600, max_delay_sec=3600))
        await server.start()
        signal_to(server, signal.SIGKILL)
        await wait_until(lambda: "nats_server_died" in actions(caplog))
        async with asyncio.timeout(2):
            await server.stop()

    run(main)
    assert not list(tmp_path.glob("*.lock"))


def test_pauses_grow_up_to_a_limit() -> None:
    policy = RestartPolicy(first_delay_sec=0.1, max_delay_sec=0.5)
    assert [policy.delay_sec(deaths) for deaths in (1, 2, 3, 4, 1000)] == [0.1, 0.2, 0.4, 0.5, 0.5]


def test_a_server_that_was_up_long_enough_starts_with_a_clean_record(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")

    async def main() -> None:
        restarts = RestartPolicy(max_quick_deaths=2, stable_sec=0, first_delay_sec=0.01)
        async with NatsServer(tmp_path, restarts=restarts) as server:
            for _ in range(3):
                await kill_and_see_it_back(server, caplog)
            await store(server.url)

    run(main)
    assert "nats_server_given_up" not in actions(caplog)


def test_a_server_ends_with_the_process_that_started_it_and_the_next_one_takes_over(tmp_path: Path) -> None:
    async def main() -> None:
        with other_process(tmp_path) as other:
            await store(other.url, b"1")
            other.kill()
            # At once: the server that was left behind may still be on its way out.
            async with NatsServer(tmp_path) as server:
                assert is_gone(other.server_pid) or is_zombie(other.server_pid)
                assert await stored(server.url) == [b"1"]

    run(main)
    assert left_in(tmp_path) == {"jetstream", "nats-server.conf", "nats-server.log", "nats-server.out"}


def test_files_of_a_killed_server_and_supervisor_do_not_prevent_a_start(tmp_path: Path) -> None:
    async def main() -> None:
        with other_process(tmp_path, "orphanable") as other:
            await store(other.url, b"1")
            other.kill()
            os.kill(other.server_pid, signal.SIGKILL)
            assert {"supervisor.lock", "nats-server.lock"} <= left_in(tmp_path)
            assert any(name.endswith(".ports") for name in left_in(tmp_path))
            async with NatsServer(tmp_path) as server:
                assert await stored(server.url) == [b"1"]

    run(main)


def test_a_server_that_outlives_its_supervisor_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory, "ORPHAN_WAIT_SEC", 0.5)

    async def main() -> None:
        with other_process(tmp_path, "orphanable") as other:
            await store(other.url, b"1")
            other.kill()
            with pytest.raises(DirectoryInUseError, match=f"End it \\('kill {other.server_pid}'\\)") as caught:
                await NatsServer(tmp_path).start()
            assert caught.value.is_orphan
            assert (caught.value.supervisor_pid, caught.value.server_pid) == (other.pid, other.server_pid)
            assert await stored(other.url) == [b"1"]  # and not harmed by the attempt
            os.kill(other.server_pid, signal.SIGTERM)
            async with NatsServer(tmp_path) as server:
                assert await stored(server.url) == [b"1"]

    run(main)


def test_a_process_forked_off_does_not_keep_the_directory(tmp_path: Path) -> None:
    """A stop releases the directory even if a child process inherited our open files by accident."""

    async def main() -> None:
        server = NatsServer(tmp_path)
        await server.start()
        held = (server._directory.lock_fd, server._directory._supervisor_lock.fd)
        with subprocess.Popen(["sleep", "60"], pass_fds=held) as heir:  # noqa: ASYNC220, S607
            await server.stop()
            async with NatsServer(tmp_path):
                pass
            heir.kill()

    run(main)
