"""Reads the output of one node as it is stored, without decoding it, for callers outside of the workers.

JSON and tagged JSON are returned as JSON text, a pickle as its bytes. Nothing here loads a pickle or a tag. A stored
output is read twice, piece by piece: first to compare its digest with the log's, so that a missing or damaged object is
an error before the first byte is sent, then to return it. Memory use does not depend on the size.
"""

import hashlib
import logging
from collections.abc import AsyncGenerator, Mapping
from typing import ClassVar, Final, NamedTuple

import msgspec

from pyoco_server.app.ports import OutputPieces, UnavailableError
from pyoco_server.app.runtime.outputs import (
    NO_PLACE,
    VALUE,
    Stored,
    damaged,
    is_stored,
    kind_of,
    stored_place,
    why_lost,
)
from pyoco_server.core import ExecutionState, NodeStatus
from pyoco_server.core.json_codec import JsonObject
from pyoco_server.errors import InvalidInputError, PyocoServerError
from pyoco_server.values.codec import OutputKind

_log = logging.getLogger(__name__)
_NONE_RECORDED: Final = "the node has succeeded, and no output was recorded"


class _NodeOutputError(PyocoServerError):
    """An output cannot be returned; ``details`` names the node and the facts."""

    def __init__(self, node_id: str, text: str, **details: str) -> None:
        super().__init__(f"node '{node_id}': {text}")
        self.details: Mapping[str, str] = {"node_id": node_id, **details}


class NodeUnknownError(_NodeOutputError):
    """The run has no such node."""

    err_id: ClassVar[str | None] = "ERR-PYOCO-0104"
    msg_id: ClassVar[str | None] = "MSG-PYOCO-0104"


class NoOutputError(_NodeOutputError):
    """The node has not succeeded, or has recorded no output."""

    err_id: ClassVar[str | None] = "ERR-PYOCO-0108"
    msg_id: ClassVar[str | None] = "MSG-PYOCO-0108"


class OutputLostError(_NodeOutputError):
    """The node has succeeded, and its value is not stored or can no longer be read."""

    err_id: ClassVar[str | None] = "ERR-PYOCO-0109"
    msg_id: ClassVar[str | None] = "MSG-PYOCO-0109"


class NodeOutput(NamedTuple):
    """An output: its kind, its size in bytes, and the bytes piece by piece."""

    kind: OutputKind
    size: int
    pieces: AsyncGenerator[bytes, None]


async def node_output(state: ExecutionState, node_id: str, store: OutputPieces) -> NodeOutput:
    """Return the output of a node; NodeUnknownError, NoOutputError or OutputLostError if there is none."""
    node = state.nodes.get(node_id)
    if node is None:
        raise NodeUnknownError(node_id, "the run has no such node")
    if node.status is not NodeStatus.SUCCEEDED:
        text = f"it has no output, its status is {node.status.value}"
        raise NoOutputError(node_id, text, status=node.status.value)
    if node.output is None:
        raise NoOutputError(node_id, _NONE_RECORDED, status=node.status.value)
    kind = kind_of(node.output)
    if is_stored(node.output):
        return await _stored_output(state.execution_id, node_id, kind, node.output, store)
    if VALUE not in node.output or kind not in {OutputKind.JSON, OutputKind.TAGGED}:
        raise _lost(node_id, why_lost(node.output))
    encoded = msgspec.json.encode(node.output[VALUE])
    return NodeOutput(kind, len(encoded), _once(encoded))


async def _stored_output(
    run_id: str, node_id: str, kind: OutputKind, output: JsonObject, store: OutputPieces
) -> NodeOutput:
    said = stored_place(run_id, output)
    if said is None:
        raise _lost(node_id, NO_PLACE)
    size = await _checked_size(said, store)
    if size is None:
        _log.warning("%s", damaged(said), extra={"action": "output_lost", "run_id": run_id, "node_id": node_id})
        raise _lost(node_id, damaged(said))
    return NodeOutput(kind, size, _checked(said, store))


async def _checked_size(said: Stored, store: OutputPieces) -> int | None:
    """Return how many bytes are stored; None if they are not those of the log."""
    digest, size = hashlib.sha256(), 0
    try:
        async for piece in store.pieces(said.name):
            digest.update(piece)
            size += len(piece)
    except InvalidInputError:  # nothing can be stored under such a name
        return None
    return size if digest.hexdigest() == said.sha256 else None


async def _checked(said: Stored, store: OutputPieces) -> AsyncGenerator[bytes, None]:
    """Yield the pieces; UnavailableError before the last one if they changed since they were checked."""
    digest, last = hashlib.sha256(), b""
    async for piece in store.pieces(said.name):
        if last:
            yield last
        digest.update(piece)
        last = piece
    if digest.hexdigest() != said.sha256:
        raise UnavailableError(f"{damaged(said)}; it changed while it was read")
    yield last


async def _once(data: bytes) -> AsyncGenerator[bytes, None]:
    yield data


def _lost(node_id: str, reason: str) -> OutputLostError:
    return OutputLostError(node_id, f"its output is lost: {reason}", output_kind=OutputKind.LOST.value, reason=reason)
