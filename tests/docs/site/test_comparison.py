"""Every claim of the comparison page has a source."""

import re
from collections.abc import Iterator

import pytest
from tools.pages import DOCS

PAGE = (DOCS / "explanation" / "comparison.md").read_text(encoding="utf-8")
OTHERS = ("Temporal", "Restate", "DBOS", "Hatchet", "Prefect", "Celery")
OURS = "pyoco-server"
HOSTS = {
    "Temporal": ("temporal.io",),
    "Restate": ("restate.dev", "restatedev"),
    "DBOS": ("dbos.dev", "dbos-inc"),
    "Hatchet": ("hatchet.run",),
    "Prefect": ("prefect.io",),
    "Celery": ("celeryq.dev", "celery/celery"),
}


def rows() -> Iterator[tuple[str, str]]:
    """System and claim, row by row."""
    for line in PAGE.splitlines():
        found = re.match(r"\| (?:\*\*)?([\w-]+)(?:\*\*)? \|(.*)", line)
        if found and found[1] in (*OTHERS, OURS):
            yield found[1], found[2]


@pytest.mark.parametrize("system", OTHERS)
def test_claims_about_other_systems_cite_their_pages(system: str) -> None:
    claims = [claim for name, claim in rows() if name == system]
    assert len(claims) >= 4
    for claim in claims:
        sources = re.findall(r"\]\((https://[^)]+)\)", claim)
        assert sources, claim
        assert all(any(host in source for host in HOSTS[system]) for source in sources), claim


def test_claims_about_this_system_link_to_the_page_that_shows_them() -> None:
    claims = [claim for name, claim in rows() if name == OURS]
    assert len(claims) >= 4
    for claim in claims:
        assert re.search(r"\]\((?!https://)[^)]+\.md", claim), claim


def test_every_system_is_in_every_question_but_the_limits() -> None:
    tables = PAGE.count("\n|---")
    for system in (*OTHERS, OURS):
        asked = sum(name == system for name, _ in rows())
        assert asked in {tables, tables - 1}, system
