"""The self-test of group commit: nats-server writes a message to the file of its stream before it acknowledges it.

It stores messages in a scratch stream and looks for each in the files, where clients would sync them. It fails if
the server writes later, encrypts, keeps its files elsewhere, or if the directory is that of another server.
"""

import secrets
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import msgspec

from pyoco_server.app.ports import UnavailableError

SCRATCH_PREFIX: Final = "PYOCO_SELFTEST_"
"""Streams of this name are deleted after the test, and after a crash at the next start of the server."""

SCRATCH_SUBJECTS: Final = "pyoco.selftest"

_MESSAGES: Final = 8
"""A server that writes a little later could have written a single one by chance."""

_MARKER_BYTES: Final = 32

Request = Callable[[str, bytes], Awaitable[bytes]]
"""Sends a message to a subject and returns the answer."""


class _StreamError(msgspec.Struct):
    description: str = "unknown error"


class _StreamAnswer(msgspec.Struct):
    error: _StreamError | None = None


async def find_problem(request: Request, streams: Path) -> str | None:
    """Return why clients must not sync the files below ``streams``; None if they hold what the server acknowledged.

    UnavailableError if the server refuses the test, for example because its disk is full; errors of ``request`` are
    raised. Then nothing is known.
    """
    number = secrets.token_hex(8)
    name, subject = f"{SCRATCH_PREFIX}{number}", f"{SCRATCH_SUBJECTS}.{number}"
    config = {"name": name, "subjects": [subject], "storage": "file", "num_replicas": 1}
    await _ask(request, f"$JS.API.STREAM.CREATE.{name}", msgspec.json.encode(config))
    try:
        for _ in range(_MESSAGES):
            marker = secrets.token_bytes(_MARKER_BYTES)
            await _ask(request, subject, marker)
            if not _is_stored(marker, streams / name):
                return f"a message that it acknowledged is not in its files below {streams}"
    finally:
        await _ask(request, f"$JS.API.STREAM.DELETE.{name}", b"")
    return None


async def _ask(request: Request, subject: str, payload: bytes) -> None:
    error = msgspec.json.decode(await request(subject, payload), type=_StreamAnswer).error
    if error is not None:
        raise UnavailableError(f"the self-test of the store was refused: {error.description}")


def _is_stored(marker: bytes, stream: Path) -> bool:
    try:
        return any(marker in block.read_bytes() for block in stream.glob("msgs/*.blk"))
    except OSError:  # they cannot be read here, so they cannot be synced here
        return False
