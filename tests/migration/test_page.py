"""The page on migrating from 0.5.1, followed with the real 0.5.1: it in use, ours in its place, and back."""

from pathlib import Path

import pytest

from tests.adapters.real_nats import NatsServer
from tests.docs.pages import ROOT, blocks
from tests.docs.reader import Reader
from tests.migration.installed_051 import install_051

PAGE = ROOT / "docs" / "howto" / "migrate.md"


@pytest.mark.timeout(900)  # the first test waits until 0.5.1 is installed
def test_the_page_is_followed_to_this_version_and_back(tmp_path: Path, nats: NatsServer) -> None:
    reader = Reader(tmp_path, PYOCO_NATS_URL=nats.url, PYOCO_WORKER_STOP_TIMEOUT_SEC="1")
    install_051(tmp_path / "my-flows" / "old")
    # 0.5.1 has no variables for its port and for the address of the gateway.
    port = str(reader.port)
    old = [block._replace(text=block.text.replace("8000", port)) for block in blocks(PAGE)]
    try:
        reader.follow(old)
    finally:
        reader.leave()
