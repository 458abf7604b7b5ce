"""The code of the dashboard: typed, formatted, in small files, and without ways for text to become code."""

import re
from pathlib import Path

import pytest
from tools import dashboard_check

from pyoco_server.gateway.dashboard.serving import PAGE, STATIC

MODULES = sorted(STATIC.rglob("*.js"))
FILES = sorted(path for path in STATIC.rglob("*") if path.suffix in {".js", ".css"})
FORBIDDEN = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|DOMParser|createContextualFragment"
    r"|setAttribute\(\s*[\"'](?:style|on)|new EventSource|sessionStorage|https?://(?!www\.w3\.org/2000/svg)|@import|\burl\("
)


def named(path: Path) -> str:
    return path.relative_to(STATIC).as_posix()


def test_the_types_fit() -> None:
    done = dashboard_check.types()
    assert done.returncode == 0, done.stdout


def test_the_layout_is_prettiers() -> None:
    done = dashboard_check.layout()
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("path", FILES, ids=named)
def test_no_file_is_long(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 400


@pytest.mark.parametrize("path", FILES, ids=named)
def test_text_has_no_way_to_become_code_or_to_leave(path: Path) -> None:
    found = FORBIDDEN.findall(path.read_text(encoding="utf-8"))
    assert not found


def test_the_page_has_no_code_in_it_and_names_files_that_exist() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son\w+=", text)
    named_files = re.findall(r'(?:src|href)="/static/([^"]+)"', text)
    assert all((STATIC / name).is_file() for name in named_files)
    styles = {named(path) for path in FILES if path.suffix == ".css"}
    assert styles <= set(named_files)


def test_every_module_can_be_reached_from_the_first() -> None:
    reached: set[Path] = set()
    waiting = [STATIC / "main.js"]
    while waiting:
        module = waiting.pop()
        if module in reached:
            continue
        reached.add(module)
        text = module.read_text(encoding="utf-8")
        waiting += [(module.parent / name).resolve() for name in re.findall(r'from "(\.[^"]+)"', text)]
    assert reached == set(MODULES)
