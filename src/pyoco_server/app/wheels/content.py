"""Checks the content of a wheel: it must be the wheel that its name says, complete, and nothing else."""

import base64
import binascii
import csv
import hashlib
import io
import itertools
from collections.abc import Iterator, Mapping
from typing import BinaryIO, Final, NamedTuple

from packaging.metadata import parse_email
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from pyoco_server.app.wheels.archive import ArchiveEntry, WheelLimits, read_entries, unpacked
from pyoco_server.app.wheels.errors import WheelRefusedError, WheelTooLargeError
from pyoco_server.app.wheels.names import WheelName, parse_name

_HASHES: Final = {"sha256", "sha384", "sha512"}
_UNHASHED: Final = ("RECORD", "RECORD.jws", "RECORD.p7s")
_LARGEST_TEXT: Final = 4 * 1024 * 1024
_LARGEST_RECORD: Final = 16 * 1024 * 1024
_MOST_FIELDS: Final = 4_000
"""Limit for the lines before the first empty one: the parser's time grows with the square of their number."""

_PIECE_BYTES: Final = 1024 * 1024
_AT_START: Final = {"sitecustomize", "usercustomize"}
_REBUILD: Final = "build it again with a standard tool (python -m build)"

_Row = tuple[str, str, str]


class CheckedWheel(NamedTuple):
    """A wheel that may be stored."""

    name: str
    size_bytes: int
    sha256_hex: str
    requires_python: str


def check_wheel(file: BinaryIO, name: str, limits: WheelLimits) -> CheckedWheel:
    """Check everything in the file; WheelRefusedError says what is wrong. Slow: do not call it on the event loop."""
    named = parse_name(name)
    size, sha256_hex = _measure(file, limits.max_bytes)
    entries = {entry.name: entry for entry in read_entries(file, size, limits) if not entry.is_directory}
    if not limits.allow_startup_files:
        _refuse_startup_files(entries)
    folder = _dist_info(entries, named)
    _check_format(_text(file, entries, f"{folder}/WHEEL"))
    requires_python = _check_metadata(_text(file, entries, f"{folder}/METADATA"), named)
    record = _read_record(_text(file, entries, f"{folder}/RECORD", most=_LARGEST_RECORD))
    _check_record(file, entries, record, unhashed={f"{folder}/{name}" for name in _UNHASHED})
    return CheckedWheel(name, size, sha256_hex, requires_python)


def _measure(file: BinaryIO, most: int) -> tuple[int, str]:
    file.seek(0)
    size, digest = 0, hashlib.sha256()
    while piece := file.read(_PIECE_BYTES):
        size += len(piece)
        digest.update(piece)
        if size > most:
            raise WheelTooLargeError(most)
    return size, digest.hexdigest()


def _refuse_startup_files(entries: Mapping[str, ArchiveEntry]) -> None:
    """Refuse files that Python executes when it starts. A ``.pth`` runs beside packages; inside of one it is data."""
    for name in entries:
        *folders, leaf = name.casefold().split("/")
        # What is below the second folder of a ".data" is installed beside the packages.
        is_data = bool(folders) and folders[0].endswith(".data")
        outside = not folders or is_data
        module = ([*folders, leaf][2:] if is_data else [*folders, leaf])[:1]
        if (outside and leaf.endswith(".pth")) or (module and module[0].partition(".")[0] in _AT_START):
            problem = "runs whenever Python starts"
            remedy = "leave it out, or allow such files with PYOCO_WHEEL_ALLOW_STARTUP_FILES=1"
            raise WheelRefusedError("startup_file", problem, remedy, entry=name)


def _dist_info(entries: Mapping[str, ArchiveEntry], named: WheelName) -> str:
    """Return the name of the one folder that describes the wheel."""
    folders = {name.partition("/")[0] for name in entries if "/" in name}
    found = sorted(folder for folder in folders if folder.casefold().endswith(".dist-info"))
    if len(found) != 1:
        problem = f"has {len(found)} folders that end in '.dist-info', not one"
        raise WheelRefusedError("no_dist_info", problem, _REBUILD)
    package, _, version = found[0][: -len(".dist-info")].partition("-")
    if not _is_same(package, version, named):
        raise WheelRefusedError("name_differs", f"has '{found[0]}', which is not what its name says", _REBUILD)
    return found[0]


def _is_same(package: str, version: str, named: WheelName) -> bool:
    try:
        return canonicalize_name(package) == named.package and Version(version) == named.version
    except ValueError:  # no version, or one with a number of thousands of digits
        return False


def _text(file: BinaryIO, entries: Mapping[str, ArchiveEntry], name: str, *, most: int = _LARGEST_TEXT) -> str:
    entry = entries.get(name)
    if entry is None:
        raise WheelRefusedError("file_missing", "is missing", _REBUILD, entry=name)
    if entry.size_bytes > most:
        raise WheelRefusedError("file_too_large", f"has more than {most} bytes", _REBUILD, entry=name)
    try:
        return b"".join(unpacked(file, entry)).decode()
    except UnicodeDecodeError as error:
        raise WheelRefusedError("not_text", "is not UTF-8 text", _REBUILD, entry=name) from error


def _check_format(text: str) -> None:
    versions = [line.partition(":")[2].strip() for line in text.splitlines() if line.startswith("Wheel-Version:")]
    if len(versions) != 1 or versions[0].partition(".")[0] != "1":
        raise WheelRefusedError("bad_format", "is not in version 1 of the wheel format", _REBUILD)


def _check_metadata(text: str, named: WheelName) -> str:
    """Compare the metadata with the wheel's name; return the versions of Python it is for."""
    lines = itertools.takewhile(str.strip, io.StringIO(text, newline=None))
    if sum(1 for _ in itertools.islice(lines, _MOST_FIELDS + 1)) > _MOST_FIELDS:
        raise WheelRefusedError("bad_metadata", f"has metadata of more than {_MOST_FIELDS} lines", _REBUILD)
    fields, _ = parse_email(text)  # a field that occurs twice is left out
    package, version = fields.get("name", ""), fields.get("version", "")
    if not _is_same(package, version, named):
        problem = f"has the metadata of '{package:.80}' '{version:.80}', not of {named.package} {named.version}"
        raise WheelRefusedError("name_differs", problem, "give the file the name the build tool gave it")
    requires = fields.get("requires_python", "")
    try:
        wanted = SpecifierSet(requires)
        wanted.contains("3")  # as workers will call it
    except ValueError as error:  # InvalidSpecifier is one, and a number of thousands of digits
        problem = f"requires the Python versions {requires!r:.80}, which cannot be understood"
        raise WheelRefusedError("bad_metadata", problem, "write it like >=3.11") from error
    return str(wanted)


def _read_record(text: str) -> Iterator[_Row]:
    """Yield the rows one by one: there may be many more of them than files."""
    try:
        for row in csv.reader(io.StringIO(text, newline=""), strict=True):
            if row and len(row) != 3:
                raise WheelRefusedError("bad_record", f"has a RECORD with a line {row!r:.120}", _REBUILD)
            if row:
                yield row[0], row[1], row[2]
    except csv.Error as error:
        raise WheelRefusedError("bad_record", f"has a RECORD that cannot be read ({error})", _REBUILD) from error


def _check_record(
    file: BinaryIO, entries: Mapping[str, ArchiveEntry], record: Iterator[_Row], unhashed: set[str]
) -> None:
    """Refuse the wheel unless RECORD lists every file once with its hash, and nothing else."""
    listed: dict[str, _Row] = {}
    for row in record:
        if row[0] in listed or row[0] not in entries:
            problem = "is listed twice in RECORD" if row[0] in listed else "is listed in RECORD, but not there"
            raise WheelRefusedError("bad_record", problem, _REBUILD, entry=row[0])
        listed[row[0]] = row
    for entry in entries.values():
        if entry.name in unhashed:
            for _ in unpacked(file, entry):  # must unpack without an error
                pass
        elif entry.name not in listed:
            raise WheelRefusedError("bad_record", "is not listed in RECORD", _REBUILD, entry=entry.name)
        else:
            _check_hash(file, entry, listed[entry.name])


def _check_hash(file: BinaryIO, entry: ArchiveEntry, row: _Row) -> None:
    _, hashed, size = row
    kind, _, encoded = hashed.partition("=")
    if kind not in _HASHES:
        problem = f"has no accepted hash in RECORD ({', '.join(sorted(_HASHES))})"
        raise WheelRefusedError("bad_record", problem, _REBUILD, entry=entry.name)
    digest = hashlib.new(kind)
    for piece in unpacked(file, entry):
        digest.update(piece)
    if _decoded(encoded) != digest.digest() or (size and size != str(entry.size_bytes)):
        raise WheelRefusedError("wrong_hash", "is not what RECORD says", _REBUILD, entry=entry.name)


def _decoded(encoded: str) -> bytes:
    try:
        return base64.b64decode(f"{encoded}{'=' * (-len(encoded) % 4)}", altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        return b""
