"""Makes wheels by hand, sound ones and ones that no build tool makes, and uploads them."""

import base64
import hashlib
import io
import stat
import zipfile
from collections.abc import Callable, Mapping
from typing import Any

import httpx

from pyoco_server.app.ports.wheels import Read

WHEEL = "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def wheel_name(package: str = "demo", version: str = "1.0", tag: str = "py3-none-any") -> str:
    return f"{package}-{version}-{tag}.whl"


def record_line(name: str, content: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(content)}"


def contents(
    package: str = "demo",
    version: str = "1.0",
    files: Mapping[str, str | bytes] | None = None,
    *,
    metadata: str | None = None,
    wheel: str = WHEEL,
    requires_python: str = "",
) -> dict[str, bytes]:
    """Return the files of a wheel, RECORD last."""
    text = metadata or f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n"
    if requires_python:
        text += f"Requires-Python: {requires_python}\n"
    folder = f"{package}-{version}.dist-info"
    given = {f"{package}/__init__.py": f"VERSION = {version!r}\n"} if files is None else files
    found = {name: text.encode() if isinstance(text, str) else text for name, text in given.items()}
    found |= {f"{folder}/METADATA": text.encode(), f"{folder}/WHEEL": wheel.encode()}
    lines = [record_line(name, content) for name, content in found.items()]
    found[f"{folder}/RECORD"] = "\n".join([*lines, f"{folder}/RECORD,,", ""]).encode()
    return found


def archive(files: Mapping[str, bytes], *, compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    """The files as a ZIP archive."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", compression) as packed:
        for name, content in files.items():
            packed.writestr(_entry(name, compression), content)
    return data.getvalue()


def _entry(name: str, compression: int) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name, (2024, 1, 1, 0, 0, 0))
    entry.compress_type = compression
    entry.external_attr = (stat.S_IFREG | 0o644) << 16
    return entry


def make_wheel(
    package: str = "demo", version: str = "1.0", files: Mapping[str, str | bytes] | None = None, **more: str
) -> bytes:
    """A sound wheel."""
    return archive(contents(package, version, files, **more))


def flow_files(package: str, answer: str, *, flow: str = "answering") -> dict[str, str]:
    """A package with a flow whose one task returns ``answer``."""
    return {
        f"{package}/__init__.py": "",
        f"{package}/values.py": f"ANSWER = {answer!r}\n",
        f"{package}/flows.py": (
            "from pyoco import task\n"
            "from pyoco.core.models import Flow\n"
            f"from {package}.values import ANSWER\n\n\n"
            "@task\n"
            "def answer():\n"
            "    return ANSWER\n\n\n"
            f"flow = Flow(name={flow!r})\n"
            "flow >> answer\n"
        ),
    }


def upload(client: httpx.Client, name: str, data: bytes, **form: str) -> httpx.Response:
    return client.post("/wheels", files={"wheel": (name, data, "application/octet-stream")}, data=form)


def uploaded(client: httpx.Client, package: str, version: str = "1.0", **form: str) -> dict[str, Any]:
    """Upload a sound wheel, and return the answer of the gateway."""
    answer = upload(client, wheel_name(package, version), make_wheel(package, version), **form)
    assert answer.status_code == 200, answer.text
    wheel: dict[str, Any] = answer.json()
    return wheel


def reading(data: bytes, then: Callable[[], None] = lambda: None) -> Read:
    """Return a function that reads from bytes and calls ``then`` at their end."""
    rest = io.BytesIO(data)

    async def read(size: int) -> bytes:
        piece = rest.read(size)
        if not piece:
            then()
        return piece

    return read
