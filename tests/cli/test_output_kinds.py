"""How the command line shows outputs that are not plain JSON."""

import io
from typing import Any

import pytest
from rich.console import Console

from pyoco_server.cli.client.snapshot_view import snapshot_view
from pyoco_server.cli.shared.descriptions import LONGEST, result

OUTPUTS: dict[str, tuple[dict[str, Any], str]] = {
    "json": ({"value": [1]}, "[1]"),
    "nothing": ({"value": None}, ""),
    "tagged": ({"value": {"$tuple": [1]}, "output_kind": "tagged"}, '{"$tuple": [1]} [tagged]'),
    "pickle": ({"stored": {}, "output_kind": "pickle", "repr": "<Plain>"}, "<Plain> [pickle]"),
    "lost": ({"output_kind": "lost", "repr": "<lock>"}, "<lock> [lost]"),
    "large": ({"stored": {}, "output_kind": "tagged"}, "[tagged]"),
}


@pytest.mark.parametrize("name", OUTPUTS)
def test_an_output_says_how_it_is_kept(name: str) -> None:
    output, shown = OUTPUTS[name]
    assert result(output) == shown


def test_a_long_output_still_says_how_it_is_kept() -> None:
    text = result({"output_kind": "lost", "repr": "x" * 1_000})
    assert text.endswith("… [lost]")
    assert len(text) <= LONGEST


def test_records_say_how_outputs_are_kept() -> None:
    records = {
        "a": {"status": "SUCCEEDED", "attempt": 1, "output": {"$set": [1]}, "output_kind": "tagged"},
        "b": {"status": "SUCCEEDED", "attempt": 2, "output_kind": "lost", "output_repr": "<lock>"},
    }
    screen = Console(file=io.StringIO(), width=120)
    screen.print(snapshot_view({"run_id": "r", "status": "COMPLETED", "tasks": {}, "task_records": records}))
    assert isinstance(screen.file, io.StringIO)
    text = screen.file.getvalue()
    assert '{"$set": [1]} [tagged]' in text
    assert "<lock> [lost]" in text
