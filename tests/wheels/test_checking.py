"""Which files are accepted as wheels, and what is said of those that are not."""

import io
import os
import stat
import struct
import zipfile
import zlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyoco_server.app.wheels.archive import WheelLimits
from pyoco_server.app.wheels.content import check_wheel
from pyoco_server.app.wheels.errors import WheelRefusedError, WheelTooLargeError
from tests.wheels.building import WHEEL, archive, contents, make_wheel, record_line, wheel_name

LIMITS = WheelLimits(max_bytes=10_000_000)
Make = Callable[[], bytes]


def check(data: bytes, name: str = "demo-1.0-py3-none-any.whl", limits: WheelLimits = LIMITS) -> None:
    check_wheel(io.BytesIO(data), name, limits)


def refused(data: bytes, name: str = "demo-1.0-py3-none-any.whl", limits: WheelLimits = LIMITS) -> WheelRefusedError:
    with pytest.raises(WheelRefusedError) as caught:
        check(data, name, limits)
    assert str(caught.value).startswith("wheel: ")
    assert "; " in str(caught.value), "a remedy follows what is wrong"
    return caught.value


@pytest.mark.spec("004 REQ-0025")
@pytest.mark.parametrize("compression", [zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED])
def test_a_sound_wheel_is_accepted(compression: int) -> None:
    files = {"demo/__init__.py": b"", "demo/data.bin": os.urandom(700_000), "demo/zeros.bin": bytes(1_000_000)}
    data = archive(contents(files=files, requires_python=">=3.11"), compression=compression)
    checked = check_wheel(io.BytesIO(data), wheel_name(), LIMITS)
    assert checked.size_bytes == len(data)
    assert checked.requires_python == ">=3.11"


def test_folders_a_signature_and_models_named_pth_are_accepted() -> None:
    files = contents(files={"demo/__init__.py": "", "demo/weights.pth": b"\x00\x01"})
    files["demo-1.0.dist-info/RECORD.jws"] = b"{}"
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as packed:
        packed.writestr("demo/", b"")
        for name, content in files.items():
            packed.writestr(name, content)
    check(data.getvalue())


@pytest.mark.spec("004 REQ-0025")
@pytest.mark.parametrize(
    "name",
    [
        "",
        "demo.whl",
        "demo-1.0.tar.gz",
        "../demo-1.0-py3-none-any.whl",
        "x/demo-1.0-py3-none-any.whl",
        "x\\demo-1.0-py3-none-any.whl",
        "demo-one-py3-none-any.whl",
        "demo-1.0-py3-none-any.whl\n",
        'demo-1.0-py3-none-any".whl',
        "démo-1.0-py3-none-any.whl",
        "demo-1.0-py3-none-any-x-y.whl",
        f"demo-1.0-py3-none-{'x' * 200}.whl",
    ],
)
def test_a_name_that_is_not_that_of_a_wheel(name: str) -> None:
    assert refused(make_wheel(), name).details["reason"] == "bad_name"


def _with(name: str, content: bytes = b"x") -> bytes:
    return make_wheel(files={"demo/__init__.py": "", name: content})


def _link() -> bytes:
    files, data = contents(files={"demo/link": "/etc/passwd"}), io.BytesIO()
    with zipfile.ZipFile(data, "w") as packed:
        for name, content in files.items():
            entry = zipfile.ZipInfo(name)
            if name == "demo/link":
                entry.external_attr = (stat.S_IFLNK | 0o777) << 16
            packed.writestr(entry, content)
    return data.getvalue()


def _twice() -> bytes:
    files, data = contents(), io.BytesIO()
    with zipfile.ZipFile(data, "w") as packed:
        for name, content in [*files.items(), ("demo/__init__.pz", b"evil()")]:
            packed.writestr(name, content)
    return data.getvalue().replace(b"demo/__init__.pz", b"demo/__init__.py")


def _encrypted() -> bytes:
    data = bytearray(make_wheel())
    data[6] |= 1
    at = data.index(b"PK\x01\x02")
    data[at + 8] |= 1
    return bytes(data)


def _streamed() -> bytes:
    """Written to something that cannot go back, so that sizes stand behind the data."""
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as source, os.fdopen(writing, "wb") as target:
        with zipfile.ZipFile(target, "w") as packed:
            for name, content in contents().items():
                packed.writestr(name, content)
        target.close()
        return source.read()


def _zip64() -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as packed:
        for name, content in contents().items():
            with packed.open(name, "w", force_zip64=True) as entry:
                entry.write(content)
    return data.getvalue()


def _other_name_in_header() -> bytes:
    data = make_wheel(files={"demo/__init__.py": "", "demo/a.py": "1"})
    at = data.index(b"demo/a.py")
    return data[:at] + b"demo/b.py" + data[at + 9 :]


def _other_size_in_header() -> bytes:
    data = bytearray(make_wheel())
    data[22:26] = struct.pack("<L", 7)
    return bytes(data)


def _gap() -> bytes:
    """Something between the files and the directory, with all offsets mended."""
    data = make_wheel()
    at = data.index(b"PK\x01\x02")
    end = data.index(b"PK\x05\x06")
    mended = bytearray(data[:at] + b"hidden" + data[at:])
    mended[end + 6 + 16 : end + 6 + 20] = struct.pack("<L", at + 6)
    return bytes(mended)


def _unlisted() -> bytes:
    files = contents()
    return archive({"demo/more.py": b"evil()", **files})


def _changed() -> bytes:
    files = contents(files={"demo/__init__.py": "good"})
    return archive({**files, "demo/__init__.py": b"evil"})


def _without(name: str) -> bytes:
    files = contents()
    del files[f"demo-1.0.dist-info/{name}"]
    if name != "RECORD":
        record = files["demo-1.0.dist-info/RECORD"].decode().splitlines()
        files["demo-1.0.dist-info/RECORD"] = "\n".join(line for line in record if name not in line).encode()
    return archive(files)


def _record(line: str) -> bytes:
    files = contents()
    files["demo-1.0.dist-info/RECORD"] += line.encode() + b"\n"
    return archive(files)


def _weak_hash() -> bytes:
    files = contents()
    record = files["demo-1.0.dist-info/RECORD"].decode().splitlines()
    files["demo-1.0.dist-info/RECORD"] = "\n".join(["demo/__init__.py,md5=abc,16", *record[1:]]).encode()
    return archive(files)


def _lying_size() -> bytes:
    """A deflated entry that unpacks to more than its headers say."""
    large = b"x" * 1000
    packer = zlib.compressobj(wbits=-15)
    packed = packer.compress(large) + packer.flush()
    files = contents(files={"demo/__init__.py": "x" * 10})
    data = archive(files, compression=zipfile.ZIP_STORED)
    head = struct.pack("<4s5H3L2H", b"PK\x03\x04", 20, 0, 8, 0, 0, zlib.crc32(b"x" * 10), len(packed), 10, 16, 0)
    listed = struct.pack(
        "<4s6H3L5H2L", b"PK\x01\x02", 20, 20, 0, 8, 0, 0, zlib.crc32(b"x" * 10), len(packed), 10, 16, 0, 0, 0, 0, 0, 0
    )
    with zipfile.ZipFile(io.BytesIO(data)) as read:
        rest = {name: read.read(name) for name in read.namelist() if name != "demo/__init__.py"}
    rest_data = archive(rest, compression=zipfile.ZIP_STORED)
    first = head + b"demo/__init__.py" + packed
    at, end = rest_data.index(b"PK\x01\x02"), rest_data.index(b"PK\x05\x06")
    directory = bytearray(rest_data[at:end])
    position = 0
    while position < len(directory):
        name, extra, note = struct.unpack_from("<3H", directory, position + 28)
        offset = struct.unpack_from("<L", directory, position + 42)[0]
        struct.pack_into("<L", directory, position + 42, offset + len(first))
        position += 46 + name + extra + note
    whole = listed + b"demo/__init__.py" + bytes(directory)
    count = len(rest) + 1
    tail = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, count, count, len(whole), len(first) + at, 0)
    return first + rest_data[:at] + whole + tail


MALICIOUS: dict[str, tuple[str, Make]] = {
    "not an archive": ("trailing_data", lambda: b"MZ" + os.urandom(500)),
    "empty": ("not_a_wheel", lambda: b""),
    "parent path": ("unsafe_path", lambda: _with("../../evil.py")),
    "parent path inside": ("unsafe_path", lambda: _with("demo/../../evil.py")),
    "absolute path": ("unsafe_path", lambda: _with("/etc/evil.py")),
    "drive": ("unsafe_path", lambda: _with("C:/evil.py")),
    "backslashes": ("unsafe_path", lambda: _with("demo\\..\\evil.py")),
    "unseen characters": ("unsafe_path", lambda: _with("demo/a\n.py")),
    "link": ("link", _link),
    "duplicate": ("duplicate_entry", _twice),
    "file and folder": ("duplicate_entry", lambda: make_wheel(files={"demo": "", "demo/x.py": ""})),
    "encrypted": ("not_plain", _encrypted),
    "streamed": ("not_plain", _streamed),
    "zip64": ("contradiction", _zip64),
    "trailing data": ("trailing_data", lambda: make_wheel() + b"more"),
    "two archives": ("hidden_data", lambda: make_wheel() + make_wheel()),
    "leading data": ("hidden_data", lambda: b"#!/bin/sh\n" + make_wheel()),
    "gap": ("hidden_data", _gap),
    "other name in the header": ("contradiction", _other_name_in_header),
    "other size in the header": ("contradiction", _other_size_in_header),
    "more than it says": ("damaged_entry", _lying_size),
    "startup file": ("startup_file", lambda: _with("evil.pth", b"import os")),
    "startup file in data": ("startup_file", lambda: _with("demo-1.0.data/purelib/EVIL.PTH", b"import os")),
    "sitecustomize": ("startup_file", lambda: _with("sitecustomize.py", b"import os")),
    "sitecustomize without source": ("startup_file", lambda: _with("sitecustomize.pyc", b"x")),
    "sitecustomize as a package": ("startup_file", lambda: _with("demo-1.0.data/platlib/usercustomize/__init__.py")),
    "no dist-info": ("no_dist_info", lambda: archive({"demo/__init__.py": b""})),
    "two dist-infos": ("no_dist_info", lambda: _with("other-1.0.dist-info/METADATA")),
    "no METADATA": ("file_missing", lambda: _without("METADATA")),
    "no WHEEL": ("file_missing", lambda: _without("WHEEL")),
    "no RECORD": ("file_missing", lambda: _without("RECORD")),
    "other version": ("name_differs", lambda: make_wheel(version="1.1")),
    "other package": ("name_differs", lambda: make_wheel(package="other")),
    "other metadata": ("name_differs", lambda: make_wheel(metadata="Metadata-Version: 2.1\nName: demo\nVersion: 2\n")),
    "name twice": ("name_differs", lambda: make_wheel(metadata="Name: demo\nName: evil\nVersion: 1.0\n")),
    "newer format": ("bad_format", lambda: make_wheel(wheel=WHEEL.replace("1.0", "2.0"))),
    "not listed": ("bad_record", _unlisted),
    "listed but missing": ("bad_record", lambda: _record(record_line("demo/ghost.py", b"x"))),
    "listed twice": ("bad_record", lambda: _record(record_line("demo/__init__.py", b"x"))),
    "odd line": ("bad_record", lambda: _record("demo/x.py")),
    "weak hash": ("bad_record", _weak_hash),
    "wrong hash": ("wrong_hash", _changed),
    "odd python": ("bad_metadata", lambda: make_wheel(requires_python="three")),
    "python of many digits": ("bad_metadata", lambda: make_wheel(requires_python=f">=3.{'1' * 5_000}")),
    "version of many digits": ("name_differs", lambda: make_wheel(metadata=f"Name: demo\nVersion: {'1' * 5_000}\n")),
    "endless fields": ("bad_metadata", lambda: make_wheel(metadata="".join(f"F{n}: x\n" for n in range(250_000)))),
    "endless description": ("file_too_large", lambda: make_wheel(metadata="Name: demo\n\n" + "x" * 5_000_000)),
    "endless RECORD": ("bad_record", lambda: _record("x,,\n" * 3_900_000)),
    "long name": ("bad_entry_name", lambda: _with("demo/" + "x" * 2_000)),
    "deep folders": ("bad_entry_name", lambda: _with("demo/" + "x/" * 300 + "y.py")),
    "bomb": ("bomb", lambda: _with("demo/zeros.bin", bytes(20_000_000))),
}


@pytest.mark.spec("004 REQ-0025", "004 ERR-PYOCO-0002")
@pytest.mark.parametrize("kind", MALICIOUS)
def test_an_unsound_wheel_is_refused(kind: str) -> None:
    reason, make = MALICIOUS[kind]
    assert refused(make()).details["reason"] == reason


def test_more_entries_than_allowed() -> None:
    assert refused(make_wheel(), limits=WheelLimits(max_entries=3)).details["reason"] == "too_many_entries"


def test_more_unpacked_than_allowed() -> None:
    limits = WheelLimits(max_bytes=1_000, max_growth=2)
    assert refused(_with("demo/zeros.bin", bytes(5_000)), limits=limits).details["reason"] == "bomb"


def test_a_wheel_that_is_too_large() -> None:
    with pytest.raises(WheelTooLargeError, match="PYOCO_WHEEL_MAX_BYTES"):
        check(make_wheel(), limits=WheelLimits(max_bytes=100))


def test_startup_files_can_be_allowed() -> None:
    check(_with("demo.pth", b"import os"), limits=WheelLimits(allow_startup_files=True))


@given(st.data())
def test_no_damage_goes_unnoticed_or_ends_in_another_error(data: st.DataObject) -> None:
    """Whatever bytes are changed: the wheel is refused, or only bytes changed that no reader uses (dates …)."""
    sound = make_wheel(files={"demo/__init__.py": "x = 1\n" * 50})
    damaged = bytearray(sound)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(sound) - 1))] = data.draw(st.integers(0, 255))
    try:
        check(bytes(damaged))
    except WheelRefusedError:
        return
    with zipfile.ZipFile(io.BytesIO(damaged)) as read, zipfile.ZipFile(io.BytesIO(sound)) as original:
        assert {name: read.read(name) for name in read.namelist()} == {
            name: original.read(name) for name in original.namelist()
        }


@given(st.binary(max_size=400))
def test_any_bytes_are_refused_and_nothing_else(data: bytes) -> None:
    assert refused(data).details["reason"]
