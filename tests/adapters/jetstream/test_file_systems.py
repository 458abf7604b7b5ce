"""Which file system is below a directory, and what a power loss does to it."""

import shutil
import subprocess
from pathlib import Path

import pytest

from pyoco_server.adapters.jetstream.durability.file_system import UNKNOWN, FileSystem, file_system_of
from pyoco_server.adapters.jetstream.durability.policy import DurabilityPolicy, doubt_about, keeps_renamed_files

MOUNTS = """\
21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw,errors=remount-ro
22 21 0:21 / /proc rw - proc proc rw
30 21 8:2 / /srv rw,noatime - xfs /dev/sda2 rw,attr2,inode64
31 30 0:40 / /srv/with\\040a\\040space rw shared:5 master:2 - btrfs /dev/sdb rw,space_cache
32 21 0:41 / /srvices rw - nfs4 server:/export rw,vers=4.2
33 21 0:42 / /run rw - tmpfs tmpfs rw,size=1g
34 21 0:43 / /covered rw - ext4 /dev/sdc rw
35 34 0:44 / /covered rw - fuse.sshfs me@there:/ rw,user_id=0
36 21 8:9 / /old rw - ext4 /dev/sdd rw,noauto_da_alloc
37 21 8:10 / /quick rw - ext4 /dev/sde rw,nobarrier
38 21 0:45 / / rw - overlay overlay rw,lowerdir=/l,upperdir=/u
not a line of this file
"""


@pytest.mark.parametrize(
    ("path", "name", "keeps", "doubt"),
    [
        ("/srv/data", "xfs", False, None),
        ("/srv", "xfs", False, None),
        ("/srv/with a space/data", "btrfs", True, None),
        ("/srvices/data", "nfs4", False, "depend on another machine"),
        ("/run/data", "tmpfs", False, "everything is lost when the machine stops"),
        ("/covered/data", "fuse.sshfs", False, "depend on another machine"),
        ("/old/data", "ext4", False, None),
        ("/quick/data", "ext4", True, "option nobarrier: syncs do not reach the disk"),
        ("/home/data", "overlay", False, None),  # mounted over the first one
    ],
)
def test_a_directory_is_on_the_last_mount_with_the_longest_path(
    tmp_path: Path, path: str, name: str, keeps: bool, doubt: str | None
) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(MOUNTS)
    found = file_system_of(Path(path), mounts=mounts)
    assert found.name == name
    assert keeps_renamed_files(found) is keeps
    said = doubt_about(found)
    assert said is None if doubt is None else doubt in str(said)


def test_without_a_table_of_mounts_the_file_system_is_unknown(tmp_path: Path) -> None:
    found = file_system_of(tmp_path, mounts=tmp_path / "missing")
    assert found.name == UNKNOWN
    assert not keeps_renamed_files(found)
    assert doubt_about(found) is None


def test_the_file_system_of_this_directory_is_the_one_that_the_system_names(tmp_path: Path) -> None:
    program = shutil.which("df")
    assert program is not None
    named = subprocess.run(  # noqa: S603 a program of the system
        [program, "--output=fstype", str(tmp_path)], capture_output=True, text=True, check=True
    )
    found = file_system_of(tmp_path / "missing").name
    assert named.stdout.split()[-1] in {found, found.partition(".")[0]}


@pytest.mark.parametrize("synced_by", ["clients", "server"])
def test_memory_is_reported_unless_nothing_is_to_be_durable(caplog: pytest.LogCaptureFixture, synced_by: str) -> None:
    caplog.set_level("INFO")
    memory = FileSystem("tmpfs", "/run", frozenset())
    DurabilityPolicy("none", "it is asked for", file_system=memory).report()
    assert [record.levelname for record in caplog.records] == ["INFO"]
    caplog.clear()
    DurabilityPolicy("clients" if synced_by == "clients" else "server", "it works", file_system=memory).report()
    policy, warning = caplog.records
    assert policy.__dict__["file_system"] == "tmpfs"
    assert "the data is on tmpfs" in policy.getMessage()
    assert (warning.levelname, warning.__dict__["action"]) == ("WARNING", "file_system_doubtful")
    assert "PYOCO_DATA_DIR" in warning.getMessage()
