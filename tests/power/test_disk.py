"""The model of a disk keeps what was synced, and only what its file system allows it to keep of the rest."""

import random
import stat

import pytest

from tests.power.disk import EXT4, PAGE, STRICT, XFS, Disk, FileSystem, Trigger

FILE = stat.S_IFREG | 0o600
FOLDER = stat.S_IFDIR | 0o700


class PowerFailedError(Exception):
    """The power failed."""


def _fail() -> None:
    raise PowerFailedError


def disk(system: FileSystem, seed: int = 1) -> Disk:
    return Disk(system, seed=seed, on_crash=_fail)


def write(on: Disk, path: str, content: bytes, *, sync: bool) -> None:
    node = on.make(path, FILE)
    node.write(content, 0)
    if sync:
        on.sync(node)
        on.sync(on.root)


@pytest.mark.parametrize("system", [XFS, EXT4, STRICT])
def test_synced_content_is_left(system: FileSystem) -> None:
    on = disk(system)
    write(on, "/a", b"synced", sync=True)
    on.find("/a").write(b"more", 6)
    assert on.image()["/a"] in {b"synced", b"syncedmore"}


def test_unsynced_content_is_lost() -> None:
    on = disk(XFS)
    write(on, "/a", b"not synced", sync=False)
    on.sync(on.root)
    assert on.image() == {"/a": b""}


def test_a_name_needs_a_sync_of_its_directory() -> None:
    on = disk(STRICT)
    node = on.make("/a", FILE)
    node.write(b"content", 0)
    on.sync(node)
    assert on.image() == {}
    on.sync(on.root)
    assert on.image() == {"/a": b"content"}


def test_a_journal_makes_all_earlier_names_durable() -> None:
    on = disk(XFS)
    on.make("/folder", FOLDER)
    write(on, "/folder/a", b"1", sync=False)
    node = on.make("/b", FILE)
    on.sync(node)
    assert set(on.image()) == {"/folder", "/folder/a", "/b"}


def test_a_rename_loses_the_content_where_the_file_system_does_not_flush_it() -> None:
    left = {}
    for system in (XFS, EXT4):
        on = disk(system)
        write(on, "/block", b"old", sync=True)
        write(on, "/new", b"copy", sync=False)
        on.rename("/new", "/block")
        on.sync(on.root)
        left[system.name] = on.image()["/block"]
    assert left == {"xfs": b"", "ext4": b"copy"}


def test_a_torn_write_leaves_whole_pages_only() -> None:
    contents = set()
    for seed in range(50):
        on = disk(STRICT, seed)
        write(on, "/a", b"0" * 4 * PAGE, sync=True)
        on.find("/a").write(b"1" * 4 * PAGE, 0)
        content = on.image()["/a"]
        assert content is not None
        pages = [content[start : start + PAGE] for start in range(0, 4 * PAGE, PAGE)]
        assert all(page in {b"0" * PAGE, b"1" * PAGE} for page in pages)
        contents.add(content)
    assert len(contents) > 5


def test_a_truncated_file_forgets_what_was_cut_off() -> None:
    on = disk(XFS)
    write(on, "/a", b"0123456789", sync=True)
    node = on.find("/a")
    node.resize(4)
    node.write(b"x", 8)
    on.sync(node)
    assert on.image()["/a"] == b"0123\0\0\0\0x"


@pytest.mark.parametrize("takes_effect", [True, False])
def test_the_power_fails_at_the_nth_sync(*, takes_effect: bool) -> None:
    on = disk(XFS)
    node = on.make("/a", FILE)
    on.sync(on.root)
    on.arm(Trigger("fsync", 2, takes_effect))
    node.write(b"1", 0)
    on.do("fsync", lambda: on.sync(node))
    node.write(b"2", 1)
    with pytest.raises(PowerFailedError):
        on.do("fsync", lambda: on.sync(node))
    assert on.image()["/a"] == (b"12" if takes_effect else b"1")


def test_only_operations_within_a_path_count() -> None:
    on = disk(XFS)
    on.make("/old", FILE)
    on.arm(Trigger("rename", 1, takes_effect=True, within="/runs/"))
    on.do("rename", lambda: on.rename("/old", "/new"), "/new")
    on.make("/runs", FOLDER)
    with pytest.raises(PowerFailedError):
        on.do("rename", lambda: on.rename("/new", "/runs/1"), "/runs/1")


def test_random_operations_leave_every_synced_byte() -> None:
    chance = random.Random(3)
    on = disk(STRICT)
    synced: dict[str, bytes] = {}
    for step in range(400):
        path = f"/{chance.randrange(5)}"
        node = on.root.names.get(path[1:]) or on.make(path, FILE)
        node.write(bytes([step % 256]) * chance.randint(1, 5000), chance.randrange(20_000))
        if chance.random() < 0.3:
            on.sync(node)
            on.sync(on.root)
            synced[path] = bytes(node.data)
        else:
            synced.pop(path, None)  # its newest content may or may not be there
    left = on.image()
    assert synced
    assert {path: left[path] for path in synced} == synced
