"""Which output matches what a page shows, and which does not."""

import pytest

from tests.docs.terminal import pattern_of, plain

RUN = "7c03e1f9-5a5e-4d0c-9b8a-0f1e2d3c4b5a"


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("COMPLETED  hello  b41095dd…  0.0 s\n", f"COMPLETED  hello  {RUN}  12.3 s\n"),
        ("updated: 2026-11-16 09:00:16\n", "updated: 2027-01-01 23:59:59\n"),
        ("    1 09:18:02 EXECUTION_CREATED -\n", "    1 10:00:00 EXECUTION_CREATED -\n"),
        ("at http://127.0.0.1:8000  (API)\n", "at http://127.0.0.1:40001  (API)\n"),
        ("TASK   STATUS\n", "TASK      STATUS\n"),
        ("first\n…\nlast\n", "first\nsomething\nand more\nlast\n"),
        ("first\n…\nlast\n", "first\nlast\n"),
        ("error: … missing 'city'\n", "error: TypeError: f() missing 'city'\n"),
        ("5 passed in 0.9s\n", "5 passed in 12.34s\n"),
    ],
)
def test_ids_times_ports_and_omitted_lines_match(shown: str, printed: str) -> None:
    assert pattern_of(shown).fullmatch(printed)


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("COMPLETED  hello  b41095dd…  0.0 s\n", f"FAILED  hello  {RUN}  0.0 s\n"),
        ("COMPLETED  hello  b41095dd…  0.0 s\n", "COMPLETED  hello  other  0.0 s\n"),
        ("greet  SUCCEEDED  1\n", "greet  SUCCEEDED  2\n"),
        ("first\nlast\n", "first\nsomething\nlast\n"),
        ("first\n…\nlast\n", "first\nlast\nmore\n"),
        ("a (b)\n", "a b\n"),
    ],
)
def test_other_differences_do_not_match(shown: str, printed: str) -> None:
    assert not pattern_of(shown).fullmatch(printed)


def test_control_sequences_are_removed() -> None:
    assert plain("\x1b[1mbold\x1b[0m  \r\n\r\nnext") == "bold\nnext\n"
