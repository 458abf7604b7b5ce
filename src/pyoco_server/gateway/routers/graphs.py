"""``/graphs``: the registry of graphs, for executions that are driven from outside."""

from typing import Annotated, Any, Final

import msgspec
from fastapi import APIRouter, Body, Path

from pyoco_server.core import graph_from_dict, graph_to_dict
from pyoco_server.core.json_codec import JsonObject
from pyoco_server.errors import InvalidInputError
from pyoco_server.gateway.errors import ConflictError, NotFoundError
from pyoco_server.gateway.responses import Json, documented
from pyoco_server.gateway.schemas.responses import GraphDocument
from pyoco_server.gateway.schemas.strict_json import StrictRoute
from pyoco_server.gateway.services import ServicesDep
from pyoco_server.gateway.timeouts import in_time
from pyoco_server.identifiers import GRAPH_ID, NODE_ID

router = APIRouter(prefix="/graphs", tags=["graphs"], route_class=StrictRoute)
GraphId = Annotated[str, Path(description="1 to 128 letters, digits, '_' and '-'.")]
_REFUSALS: Final = ("ERR-PYOCO-0002", "ERR-PYOCO-0101", "ERR-PYOCO-0105", "ERR-PYOCO-0003")

_EXAMPLE: JsonObject = {
    "nodes": [
        {"nodeId": "start", "nodeType": "Start"},
        {"nodeId": "work", "nodeType": "Task"},
        {"nodeId": "end", "nodeType": "Success"},
    ],
    "edges": [{"from": "start", "to": "work"}, {"from": "work", "to": "end"}],
}

Nodes = Annotated[dict[str, Any], Body(examples=[_EXAMPLE], description="Nodes and edges.")]


@router.put(
    "/{graph_id}",
    summary="Register a graph",
    status_code=201,
    responses=documented(*_REFUSALS, ok=GraphDocument, created=GraphDocument),
)
async def put_graph(
    graph_id: GraphId, body: Annotated[dict[str, Any], Body(examples=[_EXAMPLE])], services: ServicesDep
) -> Json:
    """A registered graph never changes: the same one may be registered again, another one needs another id."""
    if body.get("graphId", graph_id) != graph_id:
        raise InvalidInputError(f"graphId: the path has '{graph_id:.80}'; send the same, or leave it out")
    graph = graph_from_dict({**body, "graphId": GRAPH_ID.checked(graph_id, "graphId")})
    for number, node_id in enumerate(graph.nodes):
        NODE_ID.checked(node_id, f"nodes.{number}.nodeId")
    written = graph_to_dict(graph)
    encoded = msgspec.json.encode(written, order="sorted")
    if await services.graphs.get(graph_id) == encoded:
        return Json(written)
    if not await in_time(services.graphs.put(graph_id, encoded)):
        raise ConflictError(f"another graph is registered as '{graph_id}'; give this one another id")
    return Json(written, status_code=201)


@router.get(
    "/{graph_id}",
    summary="A registered graph",
    responses=documented("ERR-PYOCO-0104", "ERR-PYOCO-0002", "ERR-PYOCO-0003", ok=GraphDocument),
)
async def get_graph(graph_id: GraphId, services: ServicesDep) -> Json:
    """The graph as it was registered."""
    found = await services.graphs.get(graph_id) if GRAPH_ID.fits(graph_id) else None
    if found is None:
        raise NotFoundError(f"no graph is registered as '{graph_id:.80}'")
    return Json(msgspec.json.decode(found))
