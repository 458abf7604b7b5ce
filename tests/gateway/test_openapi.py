"""The OpenAPI document describes every route, and the gateway answers nothing that it does not describe.

These tests list all runs with all their fields, so they have a NATS server of their own: on the shared one, other tests
write snapshots that are deliberately not valid.
"""

import importlib
import math
import pkgutil
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import schemathesis
import schemathesis.generation
import schemathesis.python
import schemathesis.specs.openapi.schemas
import schemathesis.transport
import schemathesis.wfc
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import Case, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.schemas import APIOperation
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.gateway.stand import Stand, ended, submit, unique

# What schemathesis would import in the middle of a test is imported here: pytest parses it to rewrite its asserts, and
# Python 3.11 cannot parse while the garbage collector calls hypothesis ("AST constructor recursion depth mismatch").
for _package in (schemathesis.generation, schemathesis.python, schemathesis.transport, schemathesis.wfc):
    for _module in pkgutil.walk_packages(_package.__path__, f"{_package.__name__}."):
        importlib.import_module(_module.name)

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
EXAMPLES = 3  # for each route
WAITS_SEC = {"timeout_sec": 1.0, "wait_sec": 0.1}  # the longest waits


@pytest.fixture
def client(empty_stand: Stand) -> Iterator[httpx.Client]:
    with empty_stand.client() as made:
        yield made


def operations(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield f"{method.upper()} {path}", operation


def test_the_documents_are_served(client: httpx.Client) -> None:
    assert client.get("/openapi.json").json()["openapi"].startswith("3.")
    assert "swagger" in client.get("/docs").text.lower()


def test_every_route_is_described(client: httpx.Client) -> None:
    for name, operation in operations(client.get("/openapi.json").json()):
        assert operation["summary"], name
        assert operation.get("description"), name
        answers = operation["responses"]
        good = [answer for status, answer in answers.items() if status.startswith("2")]
        assert good, name
        if "/wheels" not in name:  # whose answers are described where they are made
            for answer in good:
                assert answer["content"], name
                assert all(content["schema"] for content in answer["content"].values()), name
        if not name.startswith("GET /health"):
            assert {"422", "503", "500"} <= answers.keys() or name == "GET /metrics", name
            assert {"401", "403"} <= answers.keys(), name
        for status, answer in answers.items():
            if status.startswith(("4", "5")) and not name.startswith("GET /health"):
                content = answer["content"]["application/json"]
                assert content["schema"] == {"$ref": "#/components/schemas/ErrorAnswer"}, name
                assert content["examples"], name
        headers = {parameter["name"] for parameter in operation["parameters"] if parameter["in"] == "header"}
        assert {"Accept-Language", "X-Correlation-Id"} <= headers, name


def test_all_twelve_commands_have_a_route(client: httpx.Client) -> None:
    found = {
        operation["summary"] for name, operation in operations(client.get("/openapi.json").json()) if "exec" in name
    }
    assert {
        "CreateExecution",
        "StartExecution",
        "CancelExecution",
        "ArchiveExecution",
        "MarkNodeReady",
        "StartNode",
        "ReportNodeProgress",
        "PutNodeWaiting",
        "RequestResumeNode",
        "ResumeNode",
        "SucceedNode",
        "FailNode",
    } <= found


@pytest.mark.timeout(600)  # hundreds of requests, also on a slow machine
@pytest.mark.spec("004 ERR-PYOCO-0002")
@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=lambda mode: mode.value)
def test_every_answer_of_every_route_is_documented(
    empty_stand: Stand, client: httpx.Client, mode: GenerationMode
) -> None:
    """Send valid and broken requests to every route: no 5xx, and no answer that the document lacks."""
    document = client.get("/openapi.json").json()
    schema = schemathesis.openapi.from_dict(document)
    schema.config.update(base_url=empty_stand.url)
    run_id = submit(client)
    ended(client, run_id)
    pending = submit(client, tag=unique("no-worker"))
    known = {"run_id": [run_id, pending], "execution_id": [run_id, pending], "node_id": ["greet", "start"]}
    found = [result.ok() for result in schema.get_all_operations() if isinstance(result, Ok)]
    assert len(found) == len([*operations(document)])
    for operation in found:
        assert _asked(operation, mode, known), operation.label


def _asked(operation: APIOperation[Any, Any, Any, Any], mode: GenerationMode, known: dict[str, list[str]]) -> int:
    """Ask for one operation in some ways; the number of requests."""
    asked = 0

    @given(case=operation.as_strategy(generation_mode=mode), data=st.data())
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=[*HealthCheck],
    )
    def ask(case: Case[Any], data: st.DataObject) -> None:
        nonlocal asked
        asked += 1
        for name, values in known.items():
            if name in (case.path_parameters or {}) and not case.path.endswith("/watch"):
                case.path_parameters[name] = data.draw(st.sampled_from([*values, case.path_parameters[name]]))
        case.query = _impatient(case.path, case.query or {})
        case.call_and_validate(checks=CHECKS, timeout=60)

    ask()
    return asked


def _impatient(path: str, query: dict[str, Any]) -> dict[str, Any]:
    """Limit the waits of a query: a watch takes minutes, and no worker takes the pending run."""
    given = {"timeout_sec": WAITS_SEC["timeout_sec"], **query} if path.endswith("/watch") else query
    return {name: _at_most(value, WAITS_SEC.get(name, math.inf)) for name, value in given.items()}


def _at_most(value: object, longest: float) -> object:
    """What is no number, or none that can be waited for, is left as it is: it has to be refused."""
    last = value[-1] if isinstance(value, list) and value else value
    try:
        return longest if longest < float(str(last)) < math.inf else value
    except ValueError:
        return value
