"""The registry of graphs, for executions that are driven from outside."""

from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Body, Depends, Response

from pyoco_server.core import graph_from_dict, graph_to_dict
from pyoco_server.core.wire import JsonObject
from pyoco_server.gateway.errors import ConflictError, NotFoundError
from pyoco_server.gateway.ids import checked_id
from pyoco_server.gateway.services import Services, services

router = APIRouter(prefix="/graphs", tags=["graphs"])
Given = Annotated[Services, Depends(services)]

_EXAMPLE: JsonObject = {
    "nodes": [
        {"nodeId": "start", "nodeType": "Start"},
        {"nodeId": "work", "nodeType": "Task"},
        {"nodeId": "end", "nodeType": "Success"},
    ],
    "edges": [{"from": "start", "to": "work"}, {"from": "work", "to": "end"}],
}


@router.put("/{graph_id}", summary="Register a graph", status_code=201)
async def put_graph(
    graph_id: str, body: Annotated[dict[str, Any], Body(examples=[_EXAMPLE])], given: Given, response: Response
) -> JsonObject:
    """A graph never changes once it is registered; the same one again is fine, another one needs another id."""
    graph = graph_from_dict({**body, "graphId": checked_id(graph_id, "graphId")})
    written = graph_to_dict(graph)
    encoded = msgspec.json.encode(written, order="sorted")
    if await given.graphs.get(graph_id) == encoded:
        response.status_code = 200
    elif not await given.graphs.put(graph_id, encoded):
        raise ConflictError(f"another graph is registered as '{graph_id}'; give this one another id")
    return written


@router.get("/{graph_id}", summary="A registered graph")
async def get_graph(graph_id: str, given: Given) -> JsonObject:
    """The graph as it was registered."""
    found = await given.graphs.get(checked_id(graph_id, "graphId"))
    if found is None:
        raise NotFoundError(f"no graph is registered as '{graph_id}'")
    graph: JsonObject = msgspec.json.decode(found)
    return graph
