"""Reads the ZIP archive of a wheel strictly, so that every reader sees the same files.

ZIP readers differ in how they treat an archive that contradicts itself: the file that one of them checks need not be
the file that another installs. So an archive that can be read in two ways is refused: the entries must follow each
other without gaps from the first byte on, the header before each file must agree with the directory at the end, and
there may be nothing before, between or behind them. The usual build tools write archives like that.
"""

import stat
import struct
import zlib
from collections.abc import Iterator
from typing import BinaryIO, Final, NamedTuple

import msgspec

from pyoco_server.app.wheels.errors import WheelRefusedError

_END: Final = struct.Struct("<4s4H2LH")
_CENTRAL: Final = struct.Struct("<4s6H3L5H2L")
_LOCAL: Final = struct.Struct("<4s5H3L2H")
_EXTRA: Final = struct.Struct("<2H")
_ZIP64_SIZES: Final = struct.Struct("<2Q")
_STORED: Final = 0
_DEFLATED: Final = 8
_ENCRYPTED: Final = 0x1
_SIZES_BEHIND: Final = 0x8
_UTF8: Final = 0x800
_PATCHED: Final = 0x2060  # compressed patches, strong encryption, hidden headers
_EXTRA_ZIP64: Final = 0x0001
_EXTRA_OTHER_NAME: Final = 0x7075
_LARGEST_32: Final = 0xFFFFFFFF
_DIRECTORY_BYTES: Final = 32 * 1024 * 1024
_PIECE_BYTES: Final = 256 * 1024
_LONGEST_NAME: Final = 1_024
_DEEPEST: Final = 64
_SHOWN_NAME: Final = 100
_REBUILD: Final = "build it again with a standard tool (python -m build)"


class WheelLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How large a wheel may be, packed and unpacked."""

    max_bytes: int = 536_870_912
    max_entries: int = 50_000
    max_growth: int = 4
    """Limit for the unpacked size of all files, as a multiple of ``max_bytes``."""
    max_ratio: int = 200
    """Limit for the unpacked size of all files, as a multiple of the wheel's own size, from ``ratio_from_bytes`` on."""
    ratio_from_bytes: int = 16 * 1024 * 1024
    allow_startup_files: bool = False
    """Whether a wheel may contain files that run whenever Python starts."""


class ArchiveEntry(NamedTuple):
    """One file of the archive; ``start`` is where its data begins."""

    name: str
    start: int
    packed_bytes: int
    size_bytes: int
    crc: int
    is_packed: bool

    @property
    def is_directory(self) -> bool:
        """Whether the entry is a directory."""
        return self.name.endswith("/")


class _Listed(NamedTuple):
    """An entry as the archive's directory has it."""

    raw_name: bytes
    flags: int
    method: int
    crc: int
    packed_bytes: int
    size_bytes: int
    attributes: int
    offset: int


def read_entries(file: BinaryIO, size: int, limits: WheelLimits) -> list[ArchiveEntry]:
    """Return the entries of the archive in the order of their data; WheelRefusedError if it is not sound."""
    listed, directory_at = _read_directory(file, size, limits)
    _check_growth(listed, size, limits)
    entries: list[ArchiveEntry] = []
    names: set[str] = set()
    position = 0
    for item in sorted(listed, key=lambda item: item.offset):
        name = _checked_name(item)
        if name.rstrip("/") in names:
            raise WheelRefusedError("duplicate_entry", "is there twice", _REBUILD, entry=name)
        names.add(name.rstrip("/"))
        _check_kind(item, name)
        if item.offset != position:
            raise WheelRefusedError("hidden_data", "does not follow the entry before it", _REBUILD, entry=name)
        start = _check_local(file, item, name)
        position = start + item.packed_bytes
        packed = item.method == _DEFLATED
        entries.append(ArchiveEntry(name, start, item.packed_bytes, item.size_bytes, item.crc, packed))
    if position != directory_at:
        raise WheelRefusedError("hidden_data", "there is something between its files and its directory", _REBUILD)
    _check_nesting(names, entries)
    return entries


def unpacked(file: BinaryIO, entry: ArchiveEntry) -> Iterator[bytes]:
    """Yield the content of an entry; WheelRefusedError if it is not what the archive says."""
    file.seek(entry.start)
    left, size, crc = entry.packed_bytes, 0, 0
    unpack = zlib.decompressobj(-zlib.MAX_WBITS) if entry.is_packed else None
    while True:
        packed = b"" if unpack is None else unpack.unconsumed_tail
        if not packed:
            packed = file.read(min(left, _PIECE_BYTES))
            left -= len(packed)
        try:
            piece = packed if unpack is None else unpack.decompress(packed, _PIECE_BYTES)
        except zlib.error as error:
            raise _damaged(entry) from error
        if not packed and not piece:
            break
        size += len(piece)
        crc = zlib.crc32(piece, crc)
        if size > entry.size_bytes or (unpack is not None and (unpack.unused_data or (unpack.eof and left))):
            raise _damaged(entry)
        yield piece
    if left or size != entry.size_bytes or crc != entry.crc or (unpack is not None and not unpack.eof):
        raise _damaged(entry)


def _damaged(entry: ArchiveEntry) -> WheelRefusedError:
    return WheelRefusedError("damaged_entry", "is not what the archive says it is", _REBUILD, entry=entry.name)


def _read_directory(file: BinaryIO, size: int, limits: WheelLimits) -> tuple[list[_Listed], int]:
    """Return the entries that the directory lists, and where it begins."""
    if size < _END.size:
        raise WheelRefusedError("not_a_wheel", "is not a ZIP archive", _REBUILD)
    file.seek(size - _END.size)
    signature, disk, first_disk, here, count, length, start, comment = _END.unpack(file.read(_END.size))
    if signature != b"PK\x05\x06" or comment:
        problem = "is not a ZIP archive, or something stands behind its end"
        raise WheelRefusedError("trailing_data", problem, _REBUILD)
    if disk or first_disk or here != count or count == 0xFFFF or _LARGEST_32 in (length, start):
        raise WheelRefusedError("not_plain", "is a ZIP archive in parts, or in the ZIP64 format", _REBUILD)
    if count > limits.max_entries or length > _DIRECTORY_BYTES:
        problem = f"has more than {limits.max_entries} files"
        raise WheelRefusedError("too_many_entries", problem, "split it into several packages")
    if start + length != size - _END.size:
        raise WheelRefusedError("hidden_data", "something stands before its files or behind its directory", _REBUILD)
    file.seek(start)
    directory = memoryview(file.read(length))
    listed, position = list[_Listed](), 0
    for _ in range(count):
        item, position = _listed(directory, position)
        listed.append(item)
    if position != length:
        raise WheelRefusedError("hidden_data", "its directory lists more than it counts", _REBUILD)
    return listed, start


def _listed(directory: memoryview, at: int) -> tuple[_Listed, int]:
    """Return one entry of the directory, and where the next begins."""
    broken = WheelRefusedError("not_a_wheel", "its directory is damaged", _REBUILD)
    if at + _CENTRAL.size > len(directory):
        raise broken
    fields = _CENTRAL.unpack_from(directory, at)
    signature, _, _, flags, method, _, _, crc, packed, size, name_length, extra_length, note_length = fields[:13]
    _, _, attributes, offset = fields[13:]
    name_at = at + _CENTRAL.size
    extra_at = name_at + name_length
    end = extra_at + extra_length + note_length
    if signature != b"PK\x01\x02" or end > len(directory):
        raise broken
    _check_extra(bytes(directory[extra_at : extra_at + extra_length]))
    name = bytes(directory[name_at:extra_at])
    return _Listed(name, flags, method, crc, packed, size, attributes, offset), end


def _check_growth(listed: list[_Listed], size: int, limits: WheelLimits) -> None:
    total = sum(item.size_bytes for item in listed)
    most = limits.max_bytes * limits.max_growth
    if total > most or (total > limits.ratio_from_bytes and total > size * limits.max_ratio):
        problem = f"would unpack to {total} bytes, which is more than a wheel of {size} bytes may"
        raise WheelRefusedError("bomb", problem, "leave such data out of it, and let the flow fetch it")


def _checked_name(item: _Listed) -> str:
    """Return the name of an entry; WheelRefusedError if on any system it leads out of the folder it is unpacked in."""
    name = item.raw_name.decode("utf-8", errors="replace")
    try:
        name = item.raw_name.decode("utf-8" if item.flags & _UTF8 else "ascii")
    except UnicodeDecodeError as error:
        raise WheelRefusedError("bad_entry_name", "has a name that is not UTF-8", _REBUILD, entry=name) from error
    parts = name.removesuffix("/").split("/")
    if len(item.raw_name) > _LONGEST_NAME or len(parts) > _DEEPEST:
        problem = f"has a name of more than {_LONGEST_NAME} bytes, or in more than {_DEEPEST} folders"
        raise WheelRefusedError("bad_entry_name", problem, _REBUILD, entry=name[:_SHOWN_NAME])
    if any(part in {"", ".", ".."} for part in parts) or ":" in name or "\\" in name or not name.isprintable():
        problem = "has a name that leads elsewhere: absolute, with '..', ':', '\\' or characters that cannot be seen"
        raise WheelRefusedError("unsafe_path", problem, _REBUILD, entry=name)
    return name


def _check_kind(item: _Listed, name: str) -> None:
    kind = stat.S_IFMT(item.attributes >> 16)
    if kind not in {0, stat.S_IFREG, stat.S_IFDIR}:
        raise WheelRefusedError("link", "is a link or a device", "put the file itself there", entry=name)
    if item.flags & (_ENCRYPTED | _SIZES_BEHIND | _PATCHED) or item.method not in {_STORED, _DEFLATED}:
        problem = "is encrypted, streamed, or packed in another way than 'stored' or 'deflated'"
        raise WheelRefusedError("not_plain", problem, _REBUILD, entry=name)
    unequal = item.method == _STORED and item.packed_bytes != item.size_bytes
    is_directory = name.endswith("/")
    if unequal or (is_directory and item.size_bytes) or (kind and is_directory != (kind == stat.S_IFDIR)):
        raise WheelRefusedError("damaged_entry", "has a size or a kind it cannot have", _REBUILD, entry=name)


def _check_local(file: BinaryIO, item: _Listed, name: str) -> int:
    """Compare the header before the data with the directory; return where the data begins."""
    file.seek(item.offset)
    header = file.read(_LOCAL.size)
    if len(header) == _LOCAL.size:
        signature, _, flags, method, _, _, crc, packed, size, name_length, extra_length = _LOCAL.unpack(header)
        local = (signature, flags, method, crc, packed, size, file.read(name_length))
        listed = (b"PK\x03\x04", item.flags, item.method, item.crc, item.packed_bytes, item.size_bytes, item.raw_name)
        if local == listed:
            _check_extra(file.read(extra_length), _ZIP64_SIZES.pack(item.size_bytes, item.packed_bytes))
            return item.offset + _LOCAL.size + int(name_length) + int(extra_length)
    problem = "is described in two ways that differ (header and directory)"
    raise WheelRefusedError("contradiction", problem, _REBUILD, entry=name)


def _check_extra(extra: bytes, sizes: bytes = b"") -> None:
    """Refuse extra fields that give an entry a second name or size.

    Some tools repeat the ``sizes`` before the data, in the ZIP64 format, although they are small: that is accepted.
    """
    position = 0
    while position + _EXTRA.size <= len(extra):
        kind, length = _EXTRA.unpack_from(extra, position)
        position += _EXTRA.size
        again = kind == _EXTRA_ZIP64 and extra[position : position + length] == sizes
        if kind == _EXTRA_OTHER_NAME or (kind == _EXTRA_ZIP64 and not again):
            raise WheelRefusedError("not_plain", "has entries with a second name, or in the ZIP64 format", _REBUILD)
        position += length
    if position != len(extra):
        raise WheelRefusedError("not_plain", "has entries with damaged extra fields", _REBUILD)


def _check_nesting(names: set[str], entries: list[ArchiveEntry]) -> None:
    """Refuse a file that is also a directory."""
    files = {entry.name for entry in entries if not entry.is_directory}
    for name in names:
        above = name
        while "/" in above:
            above = above.rpartition("/")[0]
            if above in files:
                raise WheelRefusedError("duplicate_entry", "is a file and a directory", _REBUILD, entry=above)
