"""Every route the gateway has, however it came there, and a request for each."""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from fastapi import FastAPI
from starlette.routing import Route

from pyoco_server.app.api_keys.format import KeyScope

GRAPH = {
    "nodes": [
        {"nodeId": "start", "nodeType": "Start"},
        {"nodeId": "work", "nodeType": "Task"},
        {"nodeId": "end", "nodeType": "Success"},
    ],
    "edges": [{"from": "start", "to": "work"}, {"from": "work", "to": "end"}],
}
YAML = "version: 1\nflow:\n  graph: |\n    a\ntasks:\n  a: {callable: 'x:y'}\n"

OPEN = None
ANY = ""


class Row(NamedTuple):
    """How a route is asked, and the scope it needs: OPEN, ANY key, or a scope."""

    scope: KeyScope | str | None
    json: Any = None
    form: dict[str, str] | None = None
    files: dict[str, tuple[str, bytes, str]] | None = None
    query: dict[str, str] | None = None


_NODE = "/executions/{execution_id}/nodes/{node_id:path}"

ROWS: dict[tuple[str, str], Row] = {
    ("GET", "/"): Row(OPEN),
    ("HEAD", "/"): Row(OPEN),
    ("GET", "/static/{path:path}"): Row(OPEN),
    ("HEAD", "/static/{path:path}"): Row(OPEN),
    ("GET", "/health"): Row(OPEN),
    ("GET", "/health/ready"): Row(OPEN),
    ("GET", "/openapi.json"): Row(ANY),
    ("HEAD", "/openapi.json"): Row(ANY),
    ("GET", "/docs"): Row(ANY),
    ("HEAD", "/docs"): Row(ANY),
    ("POST", "/runs"): Row(KeyScope.RUNS, json={"flow_name": "f"}),
    ("POST", "/runs/yaml"): Row(
        KeyScope.YAML, form={"flow_name": "main"}, files={"workflow": ("flow.yaml", YAML.encode(), "text/yaml")}
    ),
    ("POST", "/runs/batch"): Row(KeyScope.RUNS, json={"runs": [{"flow_name": "f"}]}),
    ("GET", "/runs"): Row(KeyScope.RUNS),
    ("GET", "/runs/{run_id}"): Row(KeyScope.RUNS, query={"include": "full"}),
    ("GET", "/runs/{run_id}/tasks"): Row(KeyScope.RUNS),
    ("GET", "/runs/~/watch"): Row(KeyScope.RUNS, query={"timeout_sec": "1"}),
    ("GET", "/runs/{run_id}/watch"): Row(KeyScope.RUNS, query={"timeout_sec": "1"}),
    ("GET", "/runs/{run_id}/events"): Row(KeyScope.RUNS),
    ("GET", "/runs/{run_id}/graph"): Row(KeyScope.RUNS),
    ("GET", "/runs/{run_id}/state"): Row(KeyScope.RUNS),
    ("GET", "/runs/{run_id}/nodes/{node_id:path}/output"): Row(KeyScope.RUNS),
    ("POST", "/runs/{run_id}/nodes/{node_id:path}/resume"): Row(KeyScope.RUNS, json={"input": 1}),
    ("POST", "/runs/{run_id}/cancel"): Row(KeyScope.RUNS, json={}),
    ("POST", "/runs/{run_id}/archive"): Row(KeyScope.OPERATE, json={}),
    ("POST", "/runs/cancel"): Row(KeyScope.RUNS, json={"run_ids": ["{run_id}"]}),
    ("POST", "/executions"): Row(KeyScope.RUNS, json={"graphId": "g"}),
    ("GET", "/executions/{execution_id}"): Row(KeyScope.RUNS),
    ("GET", "/executions/{execution_id}/events"): Row(KeyScope.RUNS),
    ("GET", "/executions/{execution_id}/graph"): Row(KeyScope.RUNS),
    ("POST", "/executions/{execution_id}/start"): Row(KeyScope.RUNS, json={}),
    ("POST", "/executions/{execution_id}/cancel"): Row(KeyScope.RUNS, json={}),
    ("POST", "/executions/{execution_id}/archive"): Row(KeyScope.OPERATE, json={}),
    **{
        ("POST", f"{_NODE}/{verb}"): Row(KeyScope.RUNS, json=body)
        for verb, body in {
            "ready": {},
            "start": {"workerId": "w"},
            "progress": {"progress": 1},
            "wait": {"waitKey": "k"},
            "request-resume": {"resumeKey": "k"},
            "resume": {},
            "succeed": {},
            "fail": {"error": {"code": "X", "message": "x"}},
        }.items()
    },
    ("PUT", "/graphs/{graph_id}"): Row(KeyScope.RUNS, json=GRAPH),
    ("GET", "/graphs/{graph_id}"): Row(KeyScope.RUNS),
    ("GET", "/workers"): Row(KeyScope.OPERATE, query={"scope": "all"}),
    ("PATCH", "/workers/{worker_id}"): Row(KeyScope.OPERATE, json={"hidden": False}),
    ("GET", "/metrics"): Row(KeyScope.OPERATE),
    ("GET", "/dlq"): Row(KeyScope.OPERATE),
    ("GET", "/dlq/{sequence}"): Row(KeyScope.OPERATE),
    ("GET", "/wheels"): Row(KeyScope.WHEELS),
    ("POST", "/wheels"): Row(KeyScope.WHEELS, files={"wheel": ("x.whl", b"x", "application/octet-stream")}),
    ("GET", "/wheels/history"): Row(KeyScope.WHEELS),
    ("GET", "/wheels/{wheel_name}"): Row(KeyScope.WHEELS),
    ("DELETE", "/wheels/{wheel_name}"): Row(KeyScope.WHEELS),
}
"""A new route needs a row here; until it has one, the tests fail."""


def every_route(app: FastAPI) -> list[tuple[str, str]]:
    """Methods and paths of all routes, also of those in routers within routers."""
    found = sorted(set(_routes(app.routes, "")))
    described = {(method.upper(), path) for path, item in app.openapi()["paths"].items() for method in item}
    assert described <= {(method, re.sub(r":path}", "}", path)) for method, path in found}
    return found


def _routes(routes: Any, prefix: str) -> Iterator[tuple[str, str]]:
    for route in routes:
        if isinstance(route, Route):
            yield from ((method, f"{prefix}{route.path}") for method in route.methods or ())
        elif hasattr(route, "original_router"):
            yield from _routes(route.original_router.routes, f"{prefix}{route.include_context.prefix}")
        else:
            raise AssertionError(f"an unknown kind of route: {route!r}")


def filled(path: str, **values: str) -> str:
    """The path of a route with its parameters filled in."""
    return re.sub(r"{(\w+)(:path)?}", lambda match: values.get(match[1], "x"), path)


def filled_body(body: Any, run_id: str) -> Any:
    """The body with the run it is about."""
    if isinstance(body, dict):
        return {name: filled_body(value, run_id) for name, value in body.items()}
    if isinstance(body, list):
        return [filled_body(value, run_id) for value in body]
    return body.format(run_id=run_id) if isinstance(body, str) and body == "{run_id}" else body
