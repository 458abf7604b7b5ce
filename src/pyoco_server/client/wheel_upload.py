"""Uploads a wheel. The file is sent as it is read, so that its size does not matter."""

import contextlib
import dataclasses
import io
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Final

from typing_extensions import override

from pyoco_server.client.sans_io import Call, RetryPolicy, SingleRequestSteps, as_object, sending
from pyoco_server.core.json_codec import JsonObject
from pyoco_server.errors import InvalidInputError

Progress = Callable[[int, int], None]
"""Called with how many bytes of the file were sent, and with its size."""

ANSWER_SEC: Final = 300.0
"""The most time for the answer: the gateway checks and stores all of the wheel first."""


@dataclasses.dataclass(frozen=True, slots=True)
class WheelUpload:
    """A request that opens the file and sends it. It is not repeated: the first one may have been stored."""

    wheel: "os.PathLike[str] | bytes"
    name: str
    form: dict[str, str]
    progress: Progress | None

    def steps(self, policy: RetryPolicy) -> SingleRequestSteps[JsonObject]:
        """Send the file; OSError if it cannot be read."""
        with _opened(self.wheel, self.progress) as content:
            files = {"wheel": (self.name, content, "application/octet-stream")}
            call = Call(
                method="POST", path="/wheels", form=self.form, files=files, silence_sec=ANSWER_SEC, read=as_object
            )
            return (yield from sending(call, policy))


class _SentFile(io.FileIO):
    """A file that is being sent and reports its progress."""

    def __init__(self, path: "os.PathLike[str]", progress: Progress | None) -> None:
        super().__init__(Path(path), "rb")
        self._progress = progress
        self._size = os.fstat(self.fileno()).st_size

    @override
    def read(self, size: int | None = -1, /) -> bytes:
        part = super().read(-1 if size is None else size) or b""
        if self._progress is not None:
            self._progress(self.tell(), self._size)
        return part


def _opened(
    wheel: "os.PathLike[str] | bytes", progress: Progress | None
) -> contextlib.AbstractContextManager[bytes | IO[bytes]]:
    return contextlib.nullcontext(wheel) if isinstance(wheel, bytes) else _SentFile(wheel, progress)


def upload_wheel(
    wheel: "os.PathLike[str] | bytes",
    *,
    name: str | None = None,
    tags: Sequence[str] = (),
    replace: bool = True,
    progress: Progress | None = None,
) -> WheelUpload:
    """Upload a wheel for the workers that have one of the tags, or for all; bytes need the ``name`` of their file.

    ``progress`` is called with how many bytes of a file were sent, and with its size.
    """
    called = name or ("" if isinstance(wheel, bytes) else Path(wheel).name)
    if not called:
        raise InvalidInputError("name: bytes have no file name, give one such as demo-1.0-py3-none-any.whl")
    form = {"replace": "true" if replace else "false"} | ({"tags": ",".join(tags)} if tags else {})
    return WheelUpload(wheel, called, form, progress)
