"""The audit of our code and of our dependencies: what it accepts, and what it does not."""

from pathlib import Path

import pytest
from tools import audit

SOUND = {"name": "sound", "version": "1.0", "vulns": []}
WEAK = {
    "name": "weak",
    "version": "1.0",
    "vulns": [{"id": "PYSEC-1", "fix_versions": ["1.1"], "aliases": ["CVE-1"], "description": "x"}],
}
SKIPPED = {"name": "ours", "skip_reason": "Dependency not found on PyPI"}


def test_a_known_weakness_fails(capsys: pytest.CaptureFixture[str]) -> None:
    assert audit.judge(audit.read([SOUND, WEAK])) == 1
    assert "weak 1.0: PYSEC-1, mended in 1.1" in capsys.readouterr().out


def test_a_dependency_without_data_is_reported_and_accepted(capsys: pytest.CaptureFixture[str]) -> None:
    assert audit.judge(audit.read([SOUND, SKIPPED])) == 0
    assert "no data about ours" in capsys.readouterr().out


@pytest.mark.parametrize("excused", ["PYSEC-1", "CVE-1"])
def test_an_exception_is_reported_with_its_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], excused: str
) -> None:
    monkeypatch.setattr(audit, "EXCEPTIONS", {excused: "we never call it"})
    assert audit.judge(audit.read([WEAK])) == 0
    assert f"{excused} does not affect us: we never call it" in capsys.readouterr().out


@pytest.mark.parametrize("answer", [[], [SKIPPED, SKIPPED]])
def test_an_answer_without_any_known_package_is_no_answer(answer: list[dict[str, str]]) -> None:
    with pytest.raises(audit.UnreachableError):
        audit.read(answer)


def test_an_audit_without_a_service_says_so_and_fails_only_if_strict(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(audit, "SERVICES", ("osv",))
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")  # a closed port
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    pinned = tmp_path / "constraints.txt"
    pinned.write_text("rich==15.0.0\n")
    assert [audit.audit_dependencies(pinned, strict=strict) for strict in (False, True)] == [0, 1]
    assert capsys.readouterr().out.count("NOT CHECKED") == 2


@pytest.mark.parametrize(
    ("comment", "code"),
    [("", 1), ("  # noqa: S307", 1), ("  # noqa: S301 of our own making", 1), ("  # noqa: S307 of our own making", 0)],
)
def test_a_finding_of_bandit_needs_a_reason_beside_it(tmp_path: Path, comment: str, code: int) -> None:
    (tmp_path / "module.py").write_text(f"def f(text):\n    return eval(text){comment}\n")
    assert audit.audit_code(tmp_path) == code
