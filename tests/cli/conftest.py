"""Fixtures for commands in this process: a plain locale, a folder of their own, a scripted gateway."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.client.conftest import gateway, plain_environment, started_gateway

__all__ = ["gateway", "plain_environment", "started_gateway"]


@pytest.fixture(autouse=True)
def _plain_locale(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the developer's locale, which must not change a result."""
    for name in ("LC_ALL", "LC_MESSAGES", "LANG"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working directory for commands in this process; modules imported from it are forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield tmp_path
    for name, module in [*sys.modules.items()]:
        if str(getattr(module, "__file__", None)).startswith(str(tmp_path)):
            del sys.modules[name]
