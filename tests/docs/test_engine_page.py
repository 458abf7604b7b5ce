"""The code of docs/engine.md runs: the engine and the core without a server."""

import pytest

from tests.docs.pages import ROOT, Block, blocks

PAGE = blocks(ROOT / "docs" / "engine.md")
PRINTED = ["2026-01: 1204 rows, approved by ann", "COMPLETED"]


@pytest.mark.parametrize(("block", "printed"), list(zip(PAGE, PRINTED, strict=True)), ids=["engine", "core"])
def test_the_code_runs(block: Block, printed: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert block.kind == "python"
    exec(compile(block.text, block.where, "exec"), {"__name__": "page"})  # noqa: S102 our own text
    assert capsys.readouterr().out.strip() == printed
