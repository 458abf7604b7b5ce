"""The examples of the HTTP reference equal the answers of the current gateway."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.docs.site.http_examples import KEPT, a_stand, record

BY_VALUE = {"status", "type", "state", "kind", "err_id", "nodeType"}
"""Of these fields the value counts, not only its type."""


def shape(value: Any) -> Any:
    """What must stay the same: names, types, and a few words."""
    match value:
        case dict():
            return {name: item if name in BY_VALUE else shape(item) for name, item in value.items()}
        case list():
            return [shape(item) for item in value]
        case bool() | None:
            return value
        case int() | float():
            return "number"
        case _:
            return type(value).__name__


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    with a_stand(tmp_path_factory.mktemp("stand")) as stand:
        return record(stand)


def test_a_gateway_answers_as_the_documentation_says(answers: dict[str, Any]) -> None:
    kept = json.loads(Path(KEPT).read_text(encoding="utf-8"))
    assert [*answers] == [*kept]
    for name, example in kept.items():
        if example["type"] == "application/json":
            assert shape(answers[name]) == shape(example), f"{name}: run python -m tests.docs.site.http_examples"
        else:
            assert (answers[name]["status"], answers[name]["type"]) == (example["status"], example["type"]), name
