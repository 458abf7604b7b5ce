"""The durability policy: which side syncs acknowledged data to the disk, and why.

This module alone decides it; others carry it out. The platform confirms only what survives a power loss. The embedded
server leaves syncing to its clients (:mod:`.group_commit`). That is fast, but relies on behaviour that nats-server does
not promise: it writes a message to the file of its stream before it acknowledges it. So clients sync only for versions
that passed the power-loss suite, and only if the self-test agrees; otherwise the server syncs each message itself.
"""

import logging
import re
from typing import ClassVar, Final, Literal, NamedTuple

from nats.js.api import PersistMode, StorageType, StreamConfig

from pyoco_server.adapters.jetstream.durability.file_system import FileSystem
from pyoco_server.errors import PyocoServerError

_log = logging.getLogger(__name__)

Durability = Literal["sync", "fast"]
"""``sync``: acknowledged data is on the disk. ``fast``: it is there within two minutes, the server's default."""

SyncedBy = Literal["server", "clients", "none", "operator"]
"""Which side syncs acknowledged data to the disk: the server, message by message; or its clients, for many messages at
a time, before they rely on it; or neither. ``operator``: the server is not ours, and syncs as it is configured.
Clients read from the name of the embedded server whether they sync: see :mod:`.server_name`.
"""

PASSED_VERSIONS: Final = frozenset({"2.15.1"})
"""The versions of nats-server that passed the power-loss suite (tests/power) with syncs by clients."""

_KEEP_RENAMED_FILES: Final = frozenset({"ext3", "ext4", "btrfs", "zfs"})
"""File systems on which a file that was renamed without a sync has its new or its old content after a power loss.

nats-server replaces blocks of a stream in that way. XFS can leave an empty file; others were not examined.
"""

_BREAK_THAT: Final = frozenset({"noauto_da_alloc", "data=writeback"})
"""Options of ext3 and ext4 with which a renamed file can be empty."""

_IGNORE_SYNCS: Final = frozenset({"nobarrier", "barrier=0"})
"""Options with which a sync does not reach the disk."""

_IN_MEMORY: Final = frozenset({"tmpfs", "ramfs"})
_NETWORK: Final = re.compile(
    r"9p|afs|ceph|cifs|glusterfs|gpfs|lustre|ncpfs|nfs4?|ocfs2|smb3|smbfs|virtiofs|vboxsf"
    r"|fuse\.(ceph|gcsfuse|glusterfs|juicefs|rclone|s3fs|sshfs|vmhgfs).*"
)

LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})

_HOW: Final[dict[SyncedBy, str]] = {
    "clients": "gateways and workers sync before they confirm (group commit)",
    "server": "nats-server syncs every message (sync_interval: always)",
    "none": "nothing is synced before it is confirmed",
    "operator": "the NATS server syncs as its operator configured it",
}


class DurabilityPolicy(NamedTuple):
    """Which side syncs, and why."""

    synced_by: SyncedBy
    why: str
    is_fallback: bool = False
    """Whether it is slower than intended, because something is not as expected."""
    file_system: FileSystem | None = None
    """Where the data is, if it is known."""

    @property
    def line(self) -> str:
        """The policy in one line, for operators."""
        return f"{_HOW[self.synced_by]}: {self.why}"

    def report(self) -> None:
        """Log the policy; as a warning if it is a fallback."""
        level = logging.WARNING if self.is_fallback else logging.INFO
        extra = {"action": "durability_policy", "synced_by": self.synced_by}
        if self.file_system is None:
            _log.log(level, "durability: %s", self.line, extra=extra)
            return
        place = self.file_system.name
        _log.log(level, "durability: %s; the data is on %s", self.line, place, extra={**extra, "file_system": place})
        doubt = doubt_about(self.file_system) if self.synced_by != "none" else None
        if doubt is not None:
            _log.warning(
                "%s; choose a directory on a local disk (PYOCO_DATA_DIR)",
                doubt,
                extra={"action": "file_system_doubtful", "file_system": place},
            )


def policy_of_embedded(durability: Durability, *, host: str, platform: str, version: str | None) -> DurabilityPolicy:
    """Return the policy for a server that this process starts; ``version`` is that of the program, None if unknown."""
    if durability == "fast":
        return DurabilityPolicy("none", "PYOCO_DURABILITY is fast; a power loss can lose the last two minutes")
    if platform != "linux":
        return DurabilityPolicy("server", f"clients can sync its files only on Linux, and this is {platform}")
    if host not in LOOPBACK:
        return DurabilityPolicy("server", f"it listens on {host}, and clients on other machines cannot sync its files")
    if version not in PASSED_VERSIONS:
        return fallback(f"{_named(version)} has not passed the power-loss tests of clients that sync{_passed()}")
    return DurabilityPolicy("clients", f"{_named(version)} has passed the power-loss tests")


def fallback(problem: str) -> DurabilityPolicy:
    """Return the policy for an embedded server whose clients must not sync because of a problem."""
    return DurabilityPolicy("server", f"{problem}; everything is durable, but much slower", is_fallback=True)


def policy_of_connected(*, leaves_syncing: bool, version: str, replicas: int) -> DurabilityPolicy:
    """Return the policy for a server that this process did not start, as far as a client can know it."""
    if leaves_syncing:
        return DurabilityPolicy("clients", f"{_named(version)} says so; a gateway on its machine started it")
    holds = "one node holds" if replicas == 1 else f"{replicas} nodes hold"
    return DurabilityPolicy(
        "operator",
        f"{holds} each message; {_named(version)} syncs only every two minutes unless its configuration has "
        "'jetstream { sync_interval: always }', which a client cannot see",
    )


def keeps_renamed_files(where: FileSystem) -> bool:
    """Return whether a file that was renamed without a sync survives a power loss."""
    return where.name in _KEEP_RENAMED_FILES and not where.options & _BREAK_THAT


def doubt_about(where: FileSystem) -> str | None:
    """Return why a sync may not keep what is stored on a file system; None if it does."""
    data = f"the data is on {where.name} (mounted at {where.mount_point})"
    if where.name in _IN_MEMORY:
        return f"{data}, which is memory: everything is lost when the machine stops"
    if _NETWORK.fullmatch(where.name):
        return f"{data}, whose syncs and locks depend on another machine"
    ignored = where.options & _IGNORE_SYNCS
    if ignored:
        return f"{data} with the option {min(ignored)}: syncs do not reach the disk"
    return None


def _named(version: str | None) -> str:
    return f"nats-server {version}" if version else "a nats-server of unknown version"


def _passed() -> str:
    return f" ({', '.join(sorted(PASSED_VERSIONS))} passed)"


class StreamNotDurableError(PyocoServerError):
    """A stream that holds acknowledged data acknowledges messages before it has written them; nothing was changed."""

    err_id: ClassVar[str | None] = "ERR-PYOCO-0125"
    msg_id: ClassVar[str | None] = "MSG-PYOCO-0125"

    def __init__(self, stream: str) -> None:
        self.stream = stream
        super().__init__(
            f"The stream '{stream}' has persist_mode 'async': NATS confirms a message before it writes it. A "
            "crash loses confirmed runs. NATS cannot change the mode: stop the platform, back the stream up "
            f"('nats stream backup {stream} DIRECTORY'), delete it ('nats stream rm {stream}'), and restore it with a "
            "configuration whose persist_mode is 'default' ('nats stream restore DIRECTORY --config FILE')."
        )


def check_stream(found: StreamConfig) -> None:
    """Refuse a stream that cannot hold acknowledged data; warn of one that loses it when its servers stop."""
    name = str(found.name)
    if found.persist_mode == PersistMode.ASYNC:
        raise StreamNotDurableError(name)
    if found.storage == StorageType.MEMORY:
        _log.warning(
            "the stream '%s' is kept in memory: what it confirmed is lost when all its servers stop",
            name,
            extra={"action": "stream_in_memory", "resource": name},
        )
