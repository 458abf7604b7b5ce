"""``GET /runs/{run_id}/nodes/{node_id}/output``: what a node returned, of any size."""

import contextlib
import re
from collections.abc import AsyncIterator
from typing import Any, Final

from fastapi import APIRouter
from fastapi.responses import Response, StreamingResponse

from pyoco_server.app.runs.output_reading import NodeOutput, node_output
from pyoco_server.gateway.responses import Documented, documented
from pyoco_server.gateway.schemas.parameters import NodeId, RunId
from pyoco_server.gateway.services import ServicesDep
from pyoco_server.values.codec import OutputKind

router = APIRouter(prefix="/runs", tags=["runs"])
OUTPUT_KIND: Final = "X-Pyoco-Output-Kind"
"""The header with the kind of the output: ``json``, ``tagged`` or ``pickle``."""
_BYTES: Final = "application/octet-stream"
_LONGEST_NAME: Final = 100
_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9._-]+")
_OUTPUT: Final[dict[str, Any]] = {
    "description": "The output. Tagged JSON keeps Python's types; a pickle is sent as it is stored, and never loaded.",
    "content": {
        "application/json": {"schema": {"description": "Any JSON value."}, "example": ["a", 1]},
        _BYTES: {"schema": {"type": "string", "format": "binary"}},
    },
    "headers": {
        OUTPUT_KIND: {
            "description": "How the output is kept.",
            "schema": {"type": "string", "enum": ["json", "tagged", "pickle"]},
        }
    },
}
_ERRORS: Final = (
    "ERR-PYOCO-0005",
    "ERR-PYOCO-0002",
    "ERR-PYOCO-0104",
    "ERR-PYOCO-0108",
    "ERR-PYOCO-0109",
    "ERR-PYOCO-0003",
)
_ANSWERS: Final[Documented] = {**documented(*_ERRORS), 200: _OUTPUT}


@router.get(
    "/{run_id}/nodes/{node_id:path}/output",
    summary="The output of a node",
    response_class=Response,
    responses=_ANSWERS,
)
async def get_output(run_id: RunId, node_id: NodeId, services: ServicesDep) -> StreamingResponse:
    """The output of any size; the connection breaks if the object store loses it while it is sent."""
    run = await services.run_log.open(run_id)
    found = await node_output(run.execution.state, node_id, services.outputs)
    is_pickle = found.kind is OutputKind.PICKLE
    headers = {OUTPUT_KIND: found.kind.value, "Content-Length": str(found.size)}
    if is_pickle:
        headers["Content-Disposition"] = f'attachment; filename="{_file_name(node_id)}.pickle"'
    return StreamingResponse(_closing(found), media_type=_BYTES if is_pickle else "application/json", headers=headers)


async def _closing(found: NodeOutput) -> AsyncIterator[bytes]:
    """Yield the pieces, and stop reading the store when the client leaves."""
    async with contextlib.aclosing(found.pieces) as pieces:
        async for piece in pieces:
            yield piece


def _file_name(node_id: str) -> str:
    return _NOT_IN_NAMES.sub("_", node_id)[:_LONGEST_NAME]
