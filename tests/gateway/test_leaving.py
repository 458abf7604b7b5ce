"""Clients that disconnect in the middle of a request: no request keeps waiting, and nothing is stored."""

import logging
import socket
from urllib.parse import urlsplit

import httpx
import pytest

from pyoco_server.gateway.services import Services
from tests.gateway.stand import Stand, submit, unique

FORM = "multipart/form-data; boundary=here"
BEGUN_FORM = b'--here\r\nContent-Disposition: form-data; name="workflow"; filename="flow.yaml"\r\n\r\nversion: 1\n'
BEGUN_WHEEL = b'--here\r\nContent-Disposition: form-data; name="wheel"; filename="a-1-py3-none-any.whl"\r\n\r\nPK'


def leave(stand: Stand, path: str, content_type: str, begun: bytes, *headers: str) -> None:
    """Announce more than is sent, and go."""
    address = urlsplit(stand.url)
    assert address.hostname is not None
    assert address.port is not None
    lines = [f"POST {path} HTTP/1.1", f"Host: {address.netloc}", f"Content-Type: {content_type}", *headers]
    lines.append("Content-Length: 1000")
    with socket.create_connection((address.hostname, address.port), timeout=10) as connection:
        connection.sendall("\r\n".join([*lines, "", ""]).encode() + begun)


@pytest.mark.parametrize(
    ("path", "content_type", "begun", "headers"),
    [
        ("/runs", "application/json", b'{"flow_name": "{flow}", "par', ()),
        ("/runs", "application/json", b'{"flow_name": "{flow}", "par', ("Idempotency-Key: half",)),
        ("/runs?wait_sec=5", "application/json", b'{"flow_name": "{flow}", "par', ()),
        ("/runs/batch", "application/json", b'{"runs": [{"flow_name": "{flow}"}', ()),
        ("/runs/yaml", FORM, BEGUN_FORM, ()),
        ("/executions", "application/json", b'{"graphId": "{flow}"', ()),
        ("/wheels", FORM, BEGUN_WHEEL, ()),
    ],
)
def test_a_client_that_disconnects_in_a_request_leaves_nothing_behind(
    stand: Stand,
    client: httpx.Client,
    caplog: pytest.LogCaptureFixture,
    path: str,
    content_type: str,
    begun: bytes,
    headers: tuple[str, ...],
) -> None:
    flow, served = unique("left"), len(client.get("/wheels").json())
    caplog.set_level(logging.INFO)
    leave(stand, path, content_type, begun.replace(b"{flow}", flow.encode()), *headers)

    async def check_no_request_waits(services: Services) -> None:
        assert services.hub.requests.count == 0

    submit(client)  # the gateway works as before
    stand.call(check_no_request_waits)
    assert client.get("/runs", params={"flow": flow}).json() == []
    assert len(client.get("/wheels").json()) == served
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
