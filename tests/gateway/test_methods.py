"""What may be done with a path is told to whoever tries something else."""

import httpx
import pytest

from tests.gateway.stand import Stand, check_error

PATHS = {
    "/runs": "GET, POST",
    "/runs/batch": "GET, POST",
    "/runs/some-run": "GET",
    "/runs/some-run/cancel": "POST",
    "/runs/some-run/nodes/loop/a[3]/output": "GET",
    "/runs/some-run/nodes/loop/a[3]/resume": "POST",
    "/executions": "POST",
    "/graphs/some-graph": "GET, PUT",
    "/wheels": "GET, POST",
    "/wheels/some.whl": "DELETE, GET",
    "/workers/some-worker": "PATCH",
}


@pytest.mark.parametrize(("path", "methods"), PATHS.items(), ids=PATHS.keys())
def test_every_method_of_a_path_is_named(client: httpx.Client, path: str, methods: str) -> None:
    answer = client.request("TRACE", path)
    check_error(answer, 405, "ERR-PYOCO-0002")
    assert answer.headers["Allow"] == methods


def test_of_every_path_that_is_documented(stand: Stand, client: httpx.Client) -> None:
    for path, operations in stand.app.openapi()["paths"].items():
        concrete = path.replace("{", "x").replace("}", "x")
        answer = client.request("TRACE", concrete)
        assert answer.status_code == 405, concrete
        assert {method.upper() for method in operations} <= set(answer.headers["Allow"].split(", ")), concrete
