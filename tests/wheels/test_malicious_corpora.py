"""Everything malicious there is, sent to a gateway in a process of its own: refused, nothing kept, memory flat."""

from pathlib import Path

import httpx
import pytest

from tests.cli.serving import free_port, serving
from tests.gateway.test_yaml import BAD_FILES
from tests.wheels.building import make_wheel, upload, wheel_name
from tests.wheels.test_checking import MALICIOUS
from tests.wheels.test_end_to_end import most_memory

ROUNDS = 5
MIB = 1024 * 1024
MOST_GROWTH = 96 * MIB
"""The largest of them unpack to 20 MB, and two may be looked into at a time."""


def _yaml(client: httpx.Client, content: bytes) -> httpx.Response:
    files = {"workflow": ("flow.yaml", content, "application/yaml")}
    return client.post("/runs/yaml", data={"flow_name": "main"}, files=files)


@pytest.mark.spec("004 REQ-0018", "004 REQ-0025", "004 ERR-PYOCO-0002")
def test_nothing_malicious_is_kept_or_makes_the_gateway_grow(tmp_path: Path) -> None:
    port = free_port()
    wheels = {kind: (reason, make()) for kind, (reason, make) in MALICIOUS.items()}
    flows = {
        **BAD_FILES,
        "billion laughs": b"a: &a [x,x]\n" + b"".join(b"b%d: &b%d [*a,*a]\n" % (n, n) for n in range(1_000)),
        "deep mapping": b"".join(b" " * n + b"a:\n" for n in range(500)),
        "long scalar": b"version: 1\nflow: " + b"x" * 200_000,
    }
    with serving(tmp_path, "up", "--port", str(port), "--nats-client-port", "0", port=port) as served:
        with httpx.Client(base_url=served.url, headers={"Accept-Language": "en"}, timeout=60) as client:
            assert upload(client, wheel_name("sound"), make_wheel("sound")).status_code == 200
            before = most_memory(served.process.pid)
            peaks = []
            for _ in range(ROUNDS):
                for kind, (reason, data) in wheels.items():
                    error = upload(client, wheel_name("demo"), data).json()["error"]
                    assert (error["err_id"], error["details"]["reason"]) == ("ERR-PYOCO-0002", reason), kind
                for kind, content in flows.items():
                    answer = _yaml(client, content)
                    assert answer.status_code in {413, 422}, kind
                    assert answer.json()["error"]["err_id"] in {"ERR-PYOCO-0002", "ERR-PYOCO-0016"}, kind
                peaks.append(most_memory(served.process.pid))
            assert [wheel["name"] for wheel in client.get("/wheels").json()] == [wheel_name("sound")]
            assert client.get("/runs").json() == []
            assert client.get("/wheels/history").json()[0]["wheel_name"] == wheel_name("sound")
        code, output = served.stop()
    assert code == 0
    assert "ERR-PYOCO-0106" not in output
    assert peaks[0] - before < MOST_GROWTH, "one round costs what the largest of them costs"
    # When garbage is collected is a matter of chance; if what was sent were kept, each round would cost 20 MiB.
    assert peaks[-1] - peaks[0] < (ROUNDS - 1) * 15 * MIB, "and doing it again costs no more"
