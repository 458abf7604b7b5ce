"""``up`` on a file system that loses renamed files, after its end without a stop."""

import signal
import tempfile
from pathlib import Path

import httpx

from tests.cli.serving import free_port, serving
from tests.plain_http import NO_TLS

STREAMS = Path(".pyoco", "nats", "jetstream", "$G", "streams")


def test_runs_in_lost_blocks_are_there_when_the_gateway_answers_again() -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        home, port, nats = Path(name), free_port(), str(free_port())
        with serving(home, "up", "--port", str(port), "--nats-client-port", nats, port=port) as served:
            accepted = [httpx.post(f"{served.url}/runs", json={"flow_name": "any"}, verify=NO_TLS) for _ in range(20)]
            run_ids = {answer.json()["run_id"] for answer in accepted}
            served.stop(signal.SIGKILL)
        for stream in ("KV_pyoco_runs", "PYOCO_WORK"):  # what XFS leaves of a block that NATS has just replaced
            for block in (home / STREAMS / stream / "msgs").glob("*.blk"):
                block.write_bytes(b"")
        with serving(home, "up", "--port", str(port), "--nats-client-port", nats, port=port) as served:
            listed = httpx.get(f"{served.url}/runs", params={"limit": 50}, verify=NO_TLS).json()
            assert {run["run_id"] for run in listed} == run_ids
            code, output = served.stop()
        assert code == 0
        assert output.count('"unclean_stop"') == output.count('"stores_compared"') == 1
        assert not (home / ".pyoco" / "nats" / "unclean-stop").exists()
