"""Every route that reads one run, as the gateway documents them: none may fail because of what a log says."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final
from urllib.parse import quote

import httpx

_OF_A_RUN: Final = ("{run_id}", "{execution_id}")
_OF_A_NODE: Final = "{node_id}"
_NO_OUTPUT: Final = {409, 410}
"""What the route of an output answers for a node without one, or with one that is lost."""


def paths_of(openapi: Mapping[str, Any], run_id: str, nodes: Collection[str]) -> Iterator[tuple[str, bool]]:
    """The paths of all documented GET routes of a run, and whether each is about one node."""
    for template, methods in openapi["paths"].items():
        if "get" not in methods or not any(each in template for each in _OF_A_RUN):
            continue
        path = template
        for each in _OF_A_RUN:
            path = path.replace(each, run_id)
        if _OF_A_NODE in path:
            yield from ((path.replace(_OF_A_NODE, quote(node_id)), True) for node_id in nodes)
        else:
            yield path, False


async def read_all_routes(client: httpx.AsyncClient, run_id: str, nodes: Collection[str]) -> dict[str, Any]:
    """Read every route of a run; return the answers that are JSON, by path. AssertionError if one fails."""
    openapi = (await client.get("/openapi.json")).raise_for_status().json()
    answers: dict[str, Any] = {}
    for path, is_of_node in paths_of(openapi, run_id, nodes):
        if path.endswith("/watch"):
            async with client.stream("GET", path) as answer:
                first = await anext(answer.aiter_lines())
            assert answer.is_success, f"GET {path}: {answer.status_code}"
            assert first, f"GET {path}: no event"
            continue
        answer = await client.get(path)
        assert answer.is_success or (is_of_node and answer.status_code in _NO_OUTPUT), f"GET {path}: {answer.text}"
        if answer.is_success and answer.headers["content-type"].startswith("application/json"):
            answers[path] = answer.json()
    assert answers, "the gateway documents no route of a run"
    return answers
