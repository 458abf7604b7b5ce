"""The page of licences matches the installed packages."""

import pytest
from packaging.utils import canonicalize_name
from tools import licences_doc
from tools.pages import ROOT


def test_the_page_is_current() -> None:
    assert licences_doc.PAGE.read_text(encoding="utf-8") == licences_doc.page()


def test_all_listed_packages_are_pinned() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = {canonicalize_name(line.partition("==")[0]) for line in lines}
    assert set(licences_doc.closure()) <= pinned


def test_a_package_without_a_licence_is_an_error_until_a_person_has_checked_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(licences_doc, "UNSTATED", {})
    with pytest.raises(ValueError, match="pyoco does not state"):
        licences_doc.page()
