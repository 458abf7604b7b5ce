"""The dashboard's routes: REQ-0020. What it does in a browser is shown elsewhere."""

import httpx
import pytest

from tests.gateway.stand import check_error


@pytest.mark.spec("004 REQ-0020", "004 §付録D GET /")
def test_the_page(client: httpx.Client) -> None:
    answer = client.get("/")
    assert answer.status_code == 200
    assert answer.headers["Content-Type"].startswith("text/html")
    assert 'lang="' in answer.text


@pytest.mark.spec("004 REQ-0020", "004 §付録D GET /static/{path}")
def test_its_files(client: httpx.Client) -> None:
    page = client.get("/").text
    found = {piece.split('"')[0] for piece in page.split('="/static/')[1:]}
    assert found
    for name in found:
        assert client.get(f"/static/{name}").status_code == 200, name


@pytest.mark.spec("004 §付録D GET /static/{path}")
@pytest.mark.parametrize("path", ["none.js", "%2e%2e/serving.py", "", "a/b/c"])
def test_a_file_there_is_not(client: httpx.Client, path: str) -> None:
    check_error(client.get(f"/static/{path}"), 404, "ERR-PYOCO-0121")
