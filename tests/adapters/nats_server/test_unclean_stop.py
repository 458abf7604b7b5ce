"""The mark of an unclean stop, and what it means on file systems that keep or lose renamed files."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyoco_server.adapters.jetstream.durability.file_system import file_system_of
from pyoco_server.adapters.jetstream.durability.policy import keeps_renamed_files
from pyoco_server.adapters.nats_server import NatsServer, PortTakenError
from tests.adapters.nats_server.servers import actions, left_in, other_process, run, store, stored, taken_port

MARK = "unclean-stop"


@pytest.fixture
def in_memory() -> Iterator[Path]:
    """A directory on a file system that does not keep renamed files over a power loss: memory."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        assert not keeps_renamed_files(file_system_of(Path(directory)))
        yield Path(directory)


def killed_while_running(directory: Path) -> None:
    with other_process(directory) as other:
        assert MARK in left_in(directory)
        other.kill()


def test_a_clean_stop_leaves_no_mark(tmp_path: Path, in_memory: Path) -> None:
    async def main() -> None:
        for directory in (tmp_path, in_memory):
            async with NatsServer(directory) as server:
                await store(server.url, b"1")
                assert (directory / MARK).read_bytes().startswith(b"A NATS server is using this directory")
                assert not server.has_doubtful_blocks
            assert MARK not in left_in(directory)
            async with NatsServer(directory) as server:
                assert await stored(server.url) == [b"1"]
                assert not server.has_doubtful_blocks

    run(main)


def test_after_an_unclean_stop_the_blocks_are_doubtful_until_they_are_rebuilt(
    in_memory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    killed_while_running(in_memory)

    async def main() -> None:
        for _ in range(2):  # a stop before the end of the rebuild changes nothing
            async with NatsServer(in_memory) as server:
                assert server.has_doubtful_blocks
            assert MARK in left_in(in_memory)
        async with NatsServer(in_memory) as server:
            server.note_rebuilt()
            assert not server.has_doubtful_blocks
        assert MARK not in left_in(in_memory)
        async with NatsServer(in_memory) as server:
            assert not server.has_doubtful_blocks

    run(main)
    assert actions(caplog).count("unclean_stop") == 3


def test_an_unclean_stop_means_nothing_where_renamed_files_are_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    killed_while_running(tmp_path)
    keeps = keeps_renamed_files(file_system_of(tmp_path))

    async def main() -> None:
        async with NatsServer(tmp_path) as server:
            assert server.has_doubtful_blocks is not keeps
        assert (MARK in left_in(tmp_path)) is not keeps

    run(main)
    assert ("unclean_stop" in actions(caplog)) is not keeps


def test_a_start_that_fails_leaves_the_mark_as_it_was(in_memory: Path) -> None:
    async def fail(port: int) -> None:
        with pytest.raises(PortTakenError):
            await NatsServer(in_memory, port=port).start()

    with taken_port() as port:
        run(lambda: fail(port))
        assert MARK not in left_in(in_memory)
        killed_while_running(in_memory)
        run(lambda: fail(port))
        assert MARK in left_in(in_memory)
