"""Every route the gateway has, however it came there, and a request for each."""

import re
from collections.abc import Iterator
from enum import Enum
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


class Origin(Enum):
    """What a page of another origin is refused."""

    READS = "embedding the answer; a link may lead to it"
    CHANGES = "everything"


class Host(Enum):
    """Under which names a gateway without keys serves the route."""

    KNOWN = "those of this machine, and configured ones"


class Tenant(Enum):
    """What the route has for a tenant that asks for something of another one."""

    HIDDEN = "404, as for something that does not exist"
    OWN = "an answer about its own things"
    SHARED = "the same answer as for all"


READS, CHANGES = Origin.READS, Origin.CHANGES
KNOWN = Host.KNOWN
HIDDEN, OWN, SHARED = Tenant.HIDDEN, Tenant.OWN, Tenant.SHARED


class Row(NamedTuple):
    """Which requests a route accepts, and how it is asked. No column has a default: each is a decision."""

    scope: KeyScope | str | None
    """OPEN, ANY key, or the scope that a key needs."""
    origin: Origin
    host: Host
    tenant: Tenant
    json: Any = None
    form: dict[str, str] | None = None
    files: dict[str, tuple[str, bytes, str]] | None = None
    query: dict[str, str] | None = None


_NODE = "/executions/{execution_id}/nodes/{node_id:path}"

ROWS: dict[tuple[str, str], Row] = {
    ("GET", "/"): Row(OPEN, READS, KNOWN, SHARED),
    ("HEAD", "/"): Row(OPEN, READS, KNOWN, SHARED),
    ("GET", "/static/{path:path}"): Row(OPEN, READS, KNOWN, SHARED),
    ("HEAD", "/static/{path:path}"): Row(OPEN, READS, KNOWN, SHARED),
    ("GET", "/health"): Row(OPEN, READS, KNOWN, SHARED),
    ("GET", "/health/ready"): Row(OPEN, READS, KNOWN, SHARED),
    ("GET", "/openapi.json"): Row(ANY, READS, KNOWN, SHARED),
    ("HEAD", "/openapi.json"): Row(ANY, READS, KNOWN, SHARED),
    ("GET", "/docs"): Row(ANY, READS, KNOWN, SHARED),
    ("HEAD", "/docs"): Row(ANY, READS, KNOWN, SHARED),
    ("POST", "/runs"): Row(KeyScope.RUNS, CHANGES, KNOWN, OWN, json={"flow_name": "f"}),
    ("POST", "/runs/yaml"): Row(
        KeyScope.YAML,
        CHANGES,
        KNOWN,
        OWN,
        form={"flow_name": "main"},
        files={"workflow": ("flow.yaml", YAML.encode(), "text/yaml")},
    ),
    ("POST", "/runs/batch"): Row(KeyScope.RUNS, CHANGES, KNOWN, OWN, json={"runs": [{"flow_name": "f"}]}),
    ("GET", "/runs"): Row(KeyScope.RUNS, READS, KNOWN, OWN),
    ("GET", "/runs/{run_id}"): Row(KeyScope.RUNS, READS, KNOWN, HIDDEN, query={"include": "full"}),
    ("GET", "/runs/{run_id}/tasks"): Row(KeyScope.RUNS, READS, KNOWN, HIDDEN),
    ("GET", "/runs/~/watch"): Row(KeyScope.RUNS, READS, KNOWN, OWN, query={"timeout_sec": "1"}),
    ("GET", "/runs/{run_id}/watch"): Row(KeyScope.RUNS, READS, KNOWN, HIDDEN, query={"timeout_sec": "1"}),
    ("GET", "/runs/{run_id}/events"): Row(KeyScope.RUNS, READS, KNOWN, HIDDEN),
    ("GET", "/runs/{run_id}/graph"): Row(KeyScope.RUNS, READS, KNOWN, HIDDEN),
    ("GET", "/runs/{run_id}/state"): Row(KeyScope.RUNS, READS, KNOWN, HIDDEN),
    ("GET", "/runs/{run_id}/nodes/{node_id:path}/output"): Row(KeyScope.RUNS, READS, KNOWN, HIDDEN),
    ("POST", "/runs/{run_id}/nodes/{node_id:path}/resume"): Row(
        KeyScope.RUNS, CHANGES, KNOWN, HIDDEN, json={"input": 1}
    ),
    ("POST", "/runs/{run_id}/cancel"): Row(KeyScope.RUNS, CHANGES, KNOWN, HIDDEN, json={}),
    ("POST", "/runs/{run_id}/redrive"): Row(KeyScope.RUNS, CHANGES, KNOWN, HIDDEN, json={}),
    ("POST", "/runs/redrive"): Row(KeyScope.RUNS, CHANGES, KNOWN, OWN, json={"filter": {"flow": "f"}}),
    ("POST", "/runs/{run_id}/archive"): Row(KeyScope.OPERATE, CHANGES, KNOWN, HIDDEN, json={}),
    ("POST", "/runs/cancel"): Row(KeyScope.RUNS, CHANGES, KNOWN, OWN, json={"run_ids": ["{run_id}"]}),
    ("POST", "/executions"): Row(KeyScope.RUNS, CHANGES, KNOWN, OWN, json={"graphId": "g"}),
    ("GET", "/executions/{execution_id}"): Row(KeyScope.RUNS, READS, KNOWN, HIDDEN),
    ("GET", "/executions/{execution_id}/events"): Row(KeyScope.RUNS, READS, KNOWN, HIDDEN),
    ("GET", "/executions/{execution_id}/graph"): Row(KeyScope.RUNS, READS, KNOWN, HIDDEN),
    ("POST", "/executions/{execution_id}/start"): Row(KeyScope.RUNS, CHANGES, KNOWN, HIDDEN, json={}),
    ("POST", "/executions/{execution_id}/cancel"): Row(KeyScope.RUNS, CHANGES, KNOWN, HIDDEN, json={}),
    ("POST", "/executions/{execution_id}/archive"): Row(KeyScope.OPERATE, CHANGES, KNOWN, HIDDEN, json={}),
    **{
        ("POST", f"{_NODE}/{verb}"): Row(KeyScope.RUNS, CHANGES, KNOWN, HIDDEN, json=body)
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
    ("PUT", "/graphs/{graph_id}"): Row(KeyScope.RUNS, CHANGES, KNOWN, OWN, json=GRAPH),
    ("GET", "/graphs/{graph_id}"): Row(KeyScope.RUNS, READS, KNOWN, OWN),
    ("GET", "/workers"): Row(KeyScope.OPERATE, READS, KNOWN, SHARED, query={"scope": "all"}),
    ("PATCH", "/workers/{worker_id}"): Row(KeyScope.OPERATE, CHANGES, KNOWN, OWN, json={"hidden": False}),
    ("GET", "/metrics"): Row(KeyScope.OPERATE, READS, KNOWN, OWN),
    ("GET", "/dlq"): Row(KeyScope.OPERATE, READS, KNOWN, OWN),
    ("GET", "/dlq/{sequence}"): Row(KeyScope.OPERATE, READS, KNOWN, HIDDEN),
    ("GET", "/wheels"): Row(KeyScope.WHEELS, READS, KNOWN, SHARED),
    ("POST", "/wheels"): Row(
        KeyScope.WHEELS, CHANGES, KNOWN, SHARED, files={"wheel": ("x.whl", b"x", "application/octet-stream")}
    ),
    ("GET", "/wheels/history"): Row(KeyScope.WHEELS, READS, KNOWN, OWN),
    ("GET", "/wheels/{wheel_name}"): Row(KeyScope.WHEELS, READS, KNOWN, SHARED),
    ("DELETE", "/wheels/{wheel_name}"): Row(KeyScope.WHEELS, CHANGES, KNOWN, SHARED),
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
