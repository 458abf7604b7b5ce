"""The page of licences says what the installed packages say."""

import pytest
from packaging.utils import canonicalize_name
from tools import licences_doc
from tools.pages import ROOT


def test_the_page_is_current() -> None:
    assert licences_doc.PAGE.read_text(encoding="utf-8") == licences_doc.page()


def test_everything_it_lists_is_pinned_so_that_it_cannot_change_unseen() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = {canonicalize_name(line.partition("==")[0]) for line in lines}
    assert set(licences_doc.closure()) <= pinned


def test_a_package_that_says_nothing_must_be_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(licences_doc, "UNTOLD", {})
    with pytest.raises(ValueError, match="pyoco does not say"):
        licences_doc.page()
