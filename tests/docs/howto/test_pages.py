"""Every block of the how-to guides is run in order."""

import contextlib
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import playwright
import pytest

from tests.adapters.real_nats import NatsServer
from tests.cli.serving import free_port
from tests.docs.pages import ROOT, Block, blocks
from tests.docs.reader import Reader

pytestmark = pytest.mark.timeout(300)  # a page is many processes, one after the other
HOWTO = ROOT / "docs" / "howto"
BY_HAND = frozenset({"backup.md", "migrate.md", "other-languages.md"})
PAGES = sorted(page for page in HOWTO.glob("*.md") if page.name not in BY_HAND and page.name != "index.md")
STOPPED = "# with everything stopped"


@contextlib.contextmanager
def reading(folder: Path, nats_url: str) -> Iterator[Reader]:
    reader = Reader(folder, PYOCO_NATS_URL=nats_url, PYOCO_WORKER_STOP_TIMEOUT_SEC="1")
    try:
        yield reader
    finally:
        reader.leave()


def runs(page: Path) -> bool:
    return any(block.kind == "bash" and block.not_run is None for block in blocks(page))


@pytest.mark.parametrize("page", [page for page in PAGES if runs(page)], ids=lambda page: page.stem)
def test_a_page(page: Path, tmp_path: Path, nats: NatsServer) -> None:
    with reading(tmp_path, nats.url) as reader:
        reader.follow(blocks(page))


def test_most_pages_are_run() -> None:
    assert {page.stem for page in PAGES if not runs(page)} == {"cluster", "containers", "systemd", "upgrade"}


def test_a_worker_in_another_language(tmp_path: Path, nats: NatsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    if shutil.which("node") is None:  # the browser's driver brings one
        driver = Path(playwright.__file__).parent / "driver"
        monkeypatch.setenv("PATH", os.pathsep.join([os.environ["PATH"], str(driver)]))
    with reading(tmp_path, nats.url) as reader:
        reader.follow(blocks(HOWTO / "other-languages.md"))


def test_backing_up_and_restoring(tmp_path: Path) -> None:
    port = str(free_port())
    page = [block._replace(text=block.text.replace("4222", port)) for block in blocks(HOWTO / "backup.md")]
    [stop] = (number for number, block in enumerate(page) if block.text.startswith(STOPPED))
    with killing_nats(tmp_path), reading(tmp_path, f"nats://127.0.0.1:{port}") as reader:
        reader.follow(page[:stop])
        reader.leave()
        reader.follow(page[stop:])


@contextlib.contextmanager
def killing_nats(folder: Path) -> Iterator[None]:
    """The page starts NATS beside its terminals, and leaves it running."""
    try:
        yield
    finally:
        for file in folder.rglob("nats.pid"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(file.read_text()), signal.SIGKILL)


def test_the_reader_reports_a_command_that_fails(tmp_path: Path, nats: NatsServer) -> None:
    wrong = Block("here:1", "bash", "curl -sf 127.0.0.1:8000/health\n", None)
    with reading(tmp_path, nats.url) as reader, pytest.raises(AssertionError, match=r"here:1 ended with exit code"):
        reader.follow([wrong])
