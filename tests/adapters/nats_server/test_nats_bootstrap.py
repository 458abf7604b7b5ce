"""A server run by ``nats-bootstrap``."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pyoco_server.adapters.nats_server import (
    ExecutableMissingError,
    NatsServer,
    PortTakenError,
    RestartPolicy,
    StartTimeoutError,
    nats_bootstrap_command,
    nats_server_command,
)
from pyoco_server.adapters.nats_server.executables import find_executable
from tests.adapters.nats_server.servers import (
    kill_and_see_it_back,
    left_in,
    other_process,
    run,
    store,
    stored,
    taken_port,
)
from tests.waiting import wait_until

installed = pytest.mark.skipif(
    find_executable("nats-bootstrap", distribution="nats-bootstrap") is None, reason="nats-bootstrap is not installed"
)


@contextmanager
def only_programs_in(folder: Path) -> Iterator[None]:
    """Those of the environment the tests run in are out of sight; the server itself is in the folder too."""
    folder.mkdir(exist_ok=True)
    (folder / "nats-server").symlink_to(nats_server_command().arguments[0])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(folder))
        patch.setattr(sys, "executable", str(folder / "python"))
        patch.setattr(sys, "path", [])
        yield


def test_a_missing_program_is_named_with_the_extra_that_installs_it(tmp_path: Path) -> None:
    with (
        only_programs_in(tmp_path),
        pytest.raises(ExecutableMissingError, match=r"pip install 'pyoco-server\[nats-bootstrap\]'"),
    ):
        nats_bootstrap_command()


def test_nats_bootstrap_without_a_ready_server_is_an_error(tmp_path: Path) -> None:
    program = tmp_path / "bin" / "nats-bootstrap"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho looking around\nexec sleep 60\n")
    program.chmod(0o755)
    with only_programs_in(program.parent):
        command = nats_bootstrap_command()

    async def main() -> None:
        with pytest.raises(StartTimeoutError, match="looking around"):
            await NatsServer(tmp_path / "data", command=command, start_timeout_sec=0.5).start()

    run(main)


@installed
def test_nats_bootstrap_on_a_taken_port_is_an_error(tmp_path: Path) -> None:
    async def main() -> None:
        with taken_port() as port, pytest.raises(PortTakenError, match=f"Port {port} "):
            await NatsServer(tmp_path, port=port, command=nats_bootstrap_command()).start()

    run(main)


@installed
def test_a_kill_of_nats_bootstrap_ends_its_server_and_both_are_restarted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")

    async def main() -> None:
        restarts = RestartPolicy(first_delay_sec=0.01)
        async with NatsServer(tmp_path, command=nats_bootstrap_command(), restarts=restarts) as server:
            url = server.url
            await store(url, b"1")
            await kill_and_see_it_back(server, caplog)
            assert server.url == url
            assert await stored(url) == [b"1"]

    run(main)


@installed
def test_nats_bootstrap_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    async def main() -> None:
        with other_process(tmp_path, "bootstrap") as other:
            await store(other.url, b"1")
            port = int(other.url.rpartition(":")[2])
            other.kill()
            await wait_until(lambda: not list(tmp_path.glob("*.ports")))  # the server removes it when it ends
            async with NatsServer(tmp_path, port=port) as server:
                assert await stored(server.url) == [b"1"]

    run(main)


@installed
def test_a_server_run_by_nats_bootstrap_serves_like_any_other(tmp_path: Path) -> None:
    async def main() -> None:
        async with NatsServer(tmp_path, command=nats_bootstrap_command()) as server:
            await store(server.url, b"1")
        async with NatsServer(tmp_path) as server:
            assert await stored(server.url) == [b"1"]

    run(main)
    assert left_in(tmp_path) == {"jetstream", "nats-server.conf", "nats-server.log", "nats-server.out"}
    assert "Server Exiting" in (tmp_path / "nats-server.log").read_text()
