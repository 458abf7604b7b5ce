"""Reads the output of a node, of any size: into memory, or streamed into a file."""

import dataclasses
import os
import secrets
from collections.abc import Generator
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

import httpx
import msgspec

from pyoco_server.client.errors import UnexpectedAnswerError
from pyoco_server.client.requests import node_path
from pyoco_server.client.sans_io import (
    Call,
    CloseStream,
    OpenStream,
    Pause,
    ReadStream,
    RetryPolicy,
    Sent,
    SingleRequestSteps,
    Step,
    backoff,
    may_pass,
    received,
)
from pyoco_server.errors import InvalidInputError
from pyoco_server.values.codec import OutputKind, from_tagged
from pyoco_server.values.errors import ValueCodecError

OUTPUT_KIND: Final = "X-Pyoco-Output-Kind"


class Output(NamedTuple):
    """An output as it is stored: ``kind`` is ``json``, ``tagged`` or ``pickle``, ``content`` its bytes."""

    kind: str
    content: bytes

    def value(self, *, classes: bool = False) -> Any:  # noqa: ANN401 any value
        """Return the value; InvalidInputError for a pickle, which is never loaded here, and for tags not accepted.

        ``classes=True`` also imports the modules and classes that tagged JSON names: only if you trust the gateway.
        """
        if self.kind == OutputKind.PICKLE:
            raise InvalidInputError(
                "the output is a pickle, which a client never loads; write it to a file, or let the task return a "
                "value that JSON can hold"
            )
        try:
            data = msgspec.json.decode(self.content)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise InvalidInputError(f"output: not JSON, although its kind says so: {error}") from error
        if self.kind != OutputKind.TAGGED:
            return data
        try:
            return from_tagged(data, classes=classes)
        except ValueCodecError as error:
            raise InvalidInputError(f"output{error.at[1:]}: {error.problem}") from error


class SavedOutput(NamedTuple):
    """An output that was written to a file."""

    kind: str
    size: int
    file: Path


@dataclasses.dataclass(frozen=True, slots=True)
class OutputDownload:
    """A request that streams the output into a new file, which gets its name when it is complete."""

    call: Call[Any]
    file: Path

    def steps(self, policy: RetryPolicy) -> SingleRequestSteps[SavedOutput]:
        """Write the file, again from the start after a broken connection or a 503; OSError if it cannot be written."""
        tried = 0
        while True:
            reply: httpx.Response | httpx.RequestError = yield OpenStream(self.call)
            if isinstance(reply, httpx.Response) and reply.is_success:
                end = yield from self._saved(reply)
                if isinstance(end, SavedOutput):
                    return end
                reply = end
            yield CloseStream()
            tried += 1
            if tried > policy.retries or not may_pass(reply):
                saved: SavedOutput = received(self.call, reply, policy)  # raises: there is no answer, or an error
                return saved
            yield Pause(backoff(tried, reply))

    def _saved(self, answer: httpx.Response) -> Generator[Step, Any, SavedOutput | httpx.RequestError]:
        kind = _kind_of(answer)
        part = self.file.with_name(f"{self.file.name}.{secrets.token_hex(4)}.part")
        try:
            with part.open("xb") as content:
                size = yield from _copied(content)
            if isinstance(size, httpx.RequestError):
                return size
            part.replace(self.file)
        finally:
            part.unlink(missing_ok=True)
        return SavedOutput(kind, size, self.file)


def _copied(content: IO[bytes]) -> Generator[Step, Any, int | httpx.RequestError]:
    size = 0
    while True:
        chunk: bytes | httpx.RequestError = yield ReadStream()
        if isinstance(chunk, httpx.RequestError):
            return chunk
        if not chunk:
            return size
        size += content.write(chunk)


def _kind_of(answer: httpx.Response) -> str:
    kind: str | None = answer.headers.get(OUTPUT_KIND)
    if kind is None:
        message = f"the answer has no {OUTPUT_KIND}; is this the address of a pyoco-server?"
        raise UnexpectedAnswerError(answer.status_code, message=message)
    return kind


def _call(run_id: str, node: str) -> Call[Output]:
    path = node_path(run_id, node, "output")
    return Call(method="GET", path=path, read=lambda answer: Output(_kind_of(answer), answer.content))


def output(run_id: str, node: str) -> Sent[Output]:
    """Read the output of a node; ``value()`` decodes it. ApiError 409 if it has none, 410 if it is lost."""
    return Sent(_call(run_id, node))


def save_output(run_id: str, node: str, file: "str | os.PathLike[str]") -> OutputDownload:
    """Write the output of a node, of any size, to a file; an existing file is replaced when all of it is there."""
    return OutputDownload(_call(run_id, node), Path(file))
