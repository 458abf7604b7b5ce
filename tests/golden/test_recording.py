"""Recording: what is there is kept, and what is written down is what is read."""

from pathlib import Path

import pytest

from tests.golden import record
from tests.golden.files import LOGS, all_cases, load, path_of
from tests.golden.recording import CASES


def test_every_case_is_recorded() -> None:
    assert set(CASES) <= set(all_cases()), "record them: python -m tests.golden.record"


def test_what_was_recorded_says_what_its_case_says() -> None:
    assert {name: load(name).about for name in CASES} == {name: found.about for name, found in CASES.items()}


@pytest.mark.parametrize("case", ["fan", "wait-from-outside", "large-output"])
def test_a_case_can_be_recorded_anew(case: str, tmp_path: Path) -> None:
    assert record.main([case], tmp_path) == 0
    new, kept = load(case, tmp_path), load(case)
    assert [moment.after for moment in new.moments] == [moment.after for moment in kept.moments]
    assert len(new.lines) == len(kept.lines)
    assert len(new.stored) == len(kept.stored)


def test_what_is_there_is_not_written_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert record.main(["chain"], tmp_path) == 0
    before = path_of("chain", tmp_path).read_bytes()
    assert record.main(["chain", "fan"], tmp_path) == 1
    assert "recorded already: chain" in capsys.readouterr().err
    assert path_of("chain", tmp_path).read_bytes() == before
    assert not path_of("fan", tmp_path).exists()
    assert record.main(["chain", "--force"], tmp_path) == 0
    assert path_of("chain", tmp_path).read_bytes() != before


def test_documents_are_written_anew_and_logs_left_alone(tmp_path: Path) -> None:
    for name in ("chain", "large-output"):
        kept = path_of(name).read_bytes()
        path_of(name, tmp_path).write_bytes(kept.replace(b'"status":"COMPLETED"', b'"status":"DIFFERENT"'))
    assert record.main(["--documents"], tmp_path) == 0
    for name in ("chain", "large-output"):
        assert path_of(name, tmp_path).read_bytes() == path_of(name).read_bytes()


def test_a_case_nobody_wrote_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert record.main(["no-such-case"], tmp_path) == 2
    assert "no such case: no-such-case" in capsys.readouterr().err
    assert [*tmp_path.iterdir()] == []


def test_nothing_else_lies_among_the_logs() -> None:
    assert {path.suffix for path in LOGS.iterdir()} == {".jsonl"}
