"""Shared fixtures of the tests of workers."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def own_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Work in an empty folder on the import path; what a test imports is gone afterwards."""
    before = set(sys.modules)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    yield
    for name in set(sys.modules) - before:
        del sys.modules[name]
