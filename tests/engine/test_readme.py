"""What the README shows works."""

import re
from pathlib import Path

import pytest

README = Path(__file__).resolve().parents[2] / "README.md"
BLOCKS = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_the_code_in_the_readme_runs(number: int, capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(BLOCKS[number], "README.md", "exec"), {"__name__": "readme"})  # noqa: S102 our own text
    assert capsys.readouterr().out.strip() in {"2026-01: 1204 rows, approved by ann", "COMPLETED"}


def test_there_is_code_in_the_readme() -> None:
    assert len(BLOCKS) == 2
