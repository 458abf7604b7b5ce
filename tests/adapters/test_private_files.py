"""What the platform keeps on disk is for its owner only: made so, and closed where an earlier version left it open."""

import asyncio
import logging
import os
import stat
from pathlib import Path

import pytest

from pyoco_server.adapters.nats_server import NatsServer
from pyoco_server.adapters.private_files import private_directory
from pyoco_server.adapters.sqlite_index import SqliteRunIndex


def open_to_others(top: Path) -> dict[str, str]:
    """Everything below a directory, and itself, that others have rights to; links have no rights of their own."""
    found = {path: os.lstat(path).st_mode for path in [top, *top.rglob("*")]}
    return {
        str(path.relative_to(top)): oct(stat.S_IMODE(mode))
        for path, mode in found.items()
        if mode & 0o077 and not stat.S_ISLNK(mode)
    }


def test_a_data_directory_of_an_earlier_version_is_closed_with_all_files_and_a_line_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    top = tmp_path / "data"
    (top / "nats" / "jetstream").mkdir(parents=True)
    (top / "index-8000.sqlite").write_text("runs")
    script = top / "nats" / "jetstream" / "1.blk"
    script.write_text("events")
    script.chmod(0o755)
    os.mkfifo(top / "pipe", 0o644)  # is no file: opening it would wait for a writer
    assert open_to_others(top)
    with caplog.at_level(logging.INFO):
        private_directory(top)
        private_directory(top)
    assert open_to_others(top) == {"pipe": "0o644"}
    assert stat.S_IMODE(script.stat().st_mode) == 0o700
    assert [record.__dict__["action"] for record in caplog.records] == ["directory_closed"]
    assert str(top) in caplog.text
    assert caplog.records[0].__dict__["count"] == 5


def test_links_and_second_names_are_left_alone(tmp_path: Path) -> None:
    outside, top = tmp_path / "outside", tmp_path / "data"
    outside.write_text("of another program")
    (tmp_path / "folder").mkdir()
    top.mkdir(mode=0o755)
    (top / "link").symlink_to(outside)
    (top / "folder").symlink_to(tmp_path / "folder")
    os.link(outside, top / "second-name")
    private_directory(top)
    assert stat.S_IMODE(outside.stat().st_mode) & 0o044
    assert stat.S_IMODE((tmp_path / "folder").stat().st_mode) & 0o055
    assert stat.S_IMODE(top.stat().st_mode) == 0o700


@pytest.mark.parametrize("kind", ["sticky", "home"])
def test_a_directory_that_others_need_is_not_closed(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "of-others").write_text("")
    tmp_path.chmod(0o1777 if kind == "sticky" else 0o755)
    if kind == "home":
        monkeypatch.setenv("HOME", str(tmp_path))
    before = open_to_others(tmp_path)
    private_directory(tmp_path)
    assert open_to_others(tmp_path) == before != {}
    assert [record.__dict__["action"] for record in caplog.records] == ["directory_shared"]


def test_the_index_is_private_also_in_a_directory_that_is_not(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    path = tmp_path / "index.sqlite"

    async def opened() -> set[str]:
        async with SqliteRunIndex(path) as index:
            await index.position()
            return set(open_to_others(tmp_path)) - {"."}

    assert asyncio.run(opened()) == set()
    assert path.exists()


def test_everything_that_the_nats_server_writes_is_private(tmp_path: Path) -> None:
    home = tmp_path / "nats"
    home.mkdir(mode=0o755)
    (home / "nats-server.log").write_text("of an earlier version\n")
    (home / "nats-server.log").chmod(0o644)

    async def served() -> dict[str, str]:
        async with NatsServer(home):
            return open_to_others(home)

    assert asyncio.run(served()) == {}
