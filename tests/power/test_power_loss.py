"""The power fails below a running platform: every acknowledgement survives, and everything comes to its end.

``python -m tests.power.crash --count 200`` runs the same at full scale.
"""

import asyncio
from pathlib import Path

import pytest
from tools.power_setup import is_available, why_no_real_disks

from tests.power.clones import REAL_FILE_SYSTEMS, clones_under_load
from tests.power.crash import lose_power
from tests.power.disk import EXT4, STRICT, XFS, FileSystem

pytestmark = [
    pytest.mark.skipif(not is_available(), reason="disks cannot be mounted here: FUSE needs root and /dev/fuse"),
    pytest.mark.timeout(300),
]
REFUSAL = why_no_real_disks()


@pytest.mark.parametrize(
    ("system", "seed", "restarts", "sees_store"),
    [(XFS, 57, 1, True), (EXT4, 30, 0, True), (STRICT, 2, 0, False)],
    ids=["xfs, a clean stop, and a crash of the restart", "ext4", "strict, and a worker that cannot see the store"],
)
def test_every_acknowledgement_survives(
    tmp_path: Path, system: FileSystem, seed: int, restarts: int, sees_store: bool
) -> None:
    asyncio.run(lose_power(tmp_path, system, seed, restarts=restarts, sees_store=sees_store)).assert_kept()


def test_without_syncs_acknowledgements_are_lost(tmp_path: Path) -> None:
    outcome = asyncio.run(lose_power(tmp_path, STRICT, 39, durability="fast", missing_sec=12))
    assert outcome.broken


@pytest.mark.skipif(REFUSAL is not None, reason=f"real disks cannot be mounted here: {REFUSAL}")
@pytest.mark.parametrize("kind", REAL_FILE_SYSTEMS)
def test_every_acknowledgement_is_on_a_clone_of_a_real_disk(tmp_path: Path, kind: str) -> None:
    for outcome in asyncio.run(clones_under_load(tmp_path, kind, 7, clones=1, is_large=kind == "xfs")):
        outcome.assert_kept()
