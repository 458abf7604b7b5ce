"""Short ways to put wheels into a registry."""

import io
from collections.abc import Callable
from typing import Any

import httpx

from pyoco_server.app.ports.wheels import Read
from tests.wheels.building import make_wheel, wheel_name


def upload(client: httpx.Client, name: str, data: bytes, **form: str) -> httpx.Response:
    return client.post("/wheels", files={"wheel": (name, data, "application/octet-stream")}, data=form)


def uploaded(client: httpx.Client, package: str, version: str = "1.0", **form: str) -> dict[str, Any]:
    """Upload a sound wheel; what the gateway says of it."""
    answer = upload(client, wheel_name(package, version), make_wheel(package, version), **form)
    assert answer.status_code == 200, answer.text
    told: dict[str, Any] = answer.json()
    return told


def reading(data: bytes, then: Callable[[], None] = lambda: None) -> Read:
    """Reads from bytes; ``then`` is called at their end."""
    rest = io.BytesIO(data)

    async def read(size: int) -> bytes:
        piece = rest.read(size)
        if not piece:
            then()
        return piece

    return read
