"""Recording never replaces a case unless forced, and writes what is read back."""

from pathlib import Path

import pytest

from tests.golden import record
from tests.golden.files import LOGS, all_cases, load, path_of
from tests.golden.recording import CASES


def test_every_case_is_recorded() -> None:
    assert set(CASES) <= set(all_cases()), "record them: python -m tests.golden.record"


def test_recorded_descriptions_equal_those_of_the_cases() -> None:
    assert {name: load(name).about for name in CASES} == {name: found.about for name, found in CASES.items()}


@pytest.mark.parametrize("case", ["fan", "wait-from-outside", "large-output"])
def test_a_case_can_be_recorded_again(case: str, tmp_path: Path) -> None:
    assert record.main([case], tmp_path) == 0
    new, kept = load(case, tmp_path), load(case)
    assert [moment.after for moment in new.moments] == [moment.after for moment in kept.moments]
    assert len(new.lines) == len(kept.lines)
    assert len(new.stored) == len(kept.stored)


def test_a_recorded_case_is_not_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert record.main(["chain"], tmp_path) == 0
    before = path_of("chain", tmp_path).read_bytes()
    assert record.main(["chain", "fan"], tmp_path) == 1
    assert "recorded already: chain" in capsys.readouterr().err
    assert path_of("chain", tmp_path).read_bytes() == before
    assert not path_of("fan", tmp_path).exists()
    assert record.main(["chain", "--force"], tmp_path) == 0
    assert path_of("chain", tmp_path).read_bytes() != before


def test_documents_are_written_again_without_changing_the_logs(tmp_path: Path) -> None:
    for name in ("chain", "large-output"):
        kept = path_of(name).read_bytes()
        path_of(name, tmp_path).write_bytes(kept.replace(b'"status":"COMPLETED"', b'"status":"DIFFERENT"'))
    assert record.main(["--documents"], tmp_path) == 0
    for name in ("chain", "large-output"):
        assert path_of(name, tmp_path).read_bytes() == path_of(name).read_bytes()


def test_an_unknown_case_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert record.main(["no-such-case"], tmp_path) == 2
    assert "no such case: no-such-case" in capsys.readouterr().err
    assert [*tmp_path.iterdir()] == []


def test_the_folder_of_logs_has_no_other_files() -> None:
    assert {path.suffix for path in LOGS.iterdir()} == {".jsonl"}
