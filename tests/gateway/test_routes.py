"""What holds for routes of all kinds: the methods that a 405 names, and the files of the dashboard (REQ-0020)."""

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


def test_every_method_of_a_documented_path_is_named(stand: Stand, client: httpx.Client) -> None:
    for path, operations in stand.app.openapi()["paths"].items():
        concrete = path.replace("{", "x").replace("}", "x")
        answer = client.request("TRACE", concrete)
        assert answer.status_code == 405, concrete
        assert {method.upper() for method in operations} <= set(answer.headers["Allow"].split(", ")), concrete


# --- Dashboard -------------------------------------------------------------------------------------------------------


@pytest.mark.spec("004 REQ-0020", "004 §付録D GET /")
def test_the_dashboard_is_served(client: httpx.Client) -> None:
    answer = client.get("/")
    assert answer.status_code == 200
    assert answer.headers["Content-Type"].startswith("text/html")
    assert 'lang="' in answer.text


@pytest.mark.spec("004 REQ-0020", "004 §付録D GET /static/{path}")
def test_every_file_that_the_dashboard_loads_is_served(client: httpx.Client) -> None:
    page = client.get("/").text
    found = {piece.split('"')[0] for piece in page.split('="/static/')[1:]}
    assert found
    for name in found:
        assert client.get(f"/static/{name}").status_code == 200, name


@pytest.mark.spec("004 §付録D GET /static/{path}")
@pytest.mark.parametrize("path", ["none.js", "%2e%2e/serving.py", "", "a/b/c"])
def test_an_unknown_file_is_not_found(client: httpx.Client, path: str) -> None:
    check_error(client.get(f"/static/{path}"), 404, "ERR-PYOCO-0121")
