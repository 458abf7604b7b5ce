"""The file beside the environment."""

from pathlib import Path

import pytest

from pyoco_server.settings import Settings, SettingsError, load_settings


def problems(environ: dict[str, str], directory: Path) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        load_settings(environ, directory=directory)
    return list(caught.value.problems)


def test_the_environment_overrides_the_file(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text(
        "# a comment\n"
        "export PYOCO_HTTP_PORT=1111\n"
        'PYOCO_DEFAULT_TAG="from_file"  # another\n'
        "PYOCO_AUTH_PEPPER='p$${X}#p'\n"
        "OTHER=ignored\n"
        "PYOCO_LOG_LEVEL=DEBUG\n"
        "\n"
    )
    loaded = load_settings({"PYOCO_HTTP_PORT": "2222"}, directory=tmp_path)
    assert loaded.settings.http.port == 2222
    assert loaded.settings.routing.default_tag == "from_file"
    assert loaded.settings.auth.pepper is not None
    assert loaded.settings.auth.pepper.get_secret_value() == "p$${X}#p"
    assert loaded.settings.logs.level == "DEBUG"
    assert loaded.warnings == []


def test_an_empty_variable_of_the_environment_unsets_that_of_the_file(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("PYOCO_HTTP_PORT=1111\n")
    assert load_settings({"PYOCO_HTTP_PORT": ""}, directory=tmp_path).settings.http.port == 8000


def test_another_file_can_be_named(tmp_path: Path) -> None:
    (tmp_path / "prod.env").write_bytes("\ufeffPYOCO_HTTP_PORT=1111\r\nPYOCO_DEFAULT_TAG=x\r\n".encode())
    settings = load_settings({"PYOCO_ENV_FILE": "prod.env"}, directory=tmp_path).settings
    assert (settings.http.port, settings.routing.default_tag) == (1111, "x")
    absolute = load_settings({"PYOCO_ENV_FILE": str(tmp_path / "prod.env")}).settings
    assert absolute.http == settings.http


@pytest.mark.parametrize("name", ["no.env", ".env"])
def test_a_file_that_is_named_must_exist(tmp_path: Path, name: str) -> None:
    assert problems({"PYOCO_ENV_FILE": name}, tmp_path) == [f"PYOCO_ENV_FILE='{name}': there is no such file"]


def test_the_default_file_need_not_exist(tmp_path: Path) -> None:
    assert load_settings({"PYOCO_LOAD_DOTENV": "1"}, directory=tmp_path).settings == Settings()


def test_the_file_is_not_read_when_it_is_switched_off(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("PYOCO_HTTP_PORT=nonsense\n")
    environ = {"PYOCO_LOAD_DOTENV": "off", "PYOCO_ENV_FILE": "no.env"}
    assert load_settings(environ, directory=tmp_path).settings.http.port == 8000


def test_a_file_that_cannot_be_read_is_reported(tmp_path: Path) -> None:
    (tmp_path / "latin.env").write_bytes(b"PYOCO_DEFAULT_TAG=\xe9\n")
    (tmp_path / "folder").mkdir()
    for name in ("latin.env", "folder"):
        (problem,) = problems({"PYOCO_ENV_FILE": name}, tmp_path)
        assert problem.startswith(f"PYOCO_ENV_FILE='{name}': it cannot be read (")


def test_an_invalid_line_is_reported_by_its_number_only(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("PYOCO_HTTP_PORT=1\nPYOCO_AUTH_PEPPER='never closed\n")
    assert problems({}, tmp_path) == [".env, line 2: this is not NAME=value"]


def test_an_invalid_line_without_our_prefix_is_only_a_warning(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("what is this?\nPYOCO_HTTP_PORT=1\n")
    loaded = load_settings({}, directory=tmp_path)
    assert loaded.settings.http.port == 1
    assert [warning.text for warning in loaded.warnings] == [".env, line 1: this is not NAME=value"]


def test_a_problem_says_that_it_is_in_the_file(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("PYOCO_HTTP_PORT=x\nPYOCO_NATS_NKEY_SEED=SUSECRET\n")
    assert problems({"PYOCO_DEFAULT_TAG": "."}, tmp_path) == [
        "PYOCO_NATS_NKEY_SEED (in .env) must be the seed of a user's nkey: 58 characters that begin with SU",
        "PYOCO_DEFAULT_TAG='.' must be a tag: 1 to 128 characters, only letters, digits, '_' and '-'",
        "PYOCO_HTTP_PORT='x' (in .env) must be a port from 1 to 65535, or 0 to let the system choose",
    ]


def test_a_wrong_switch_is_reported_once_with_all_other_problems(tmp_path: Path) -> None:
    found = problems({"PYOCO_LOAD_DOTENV": "maybe", "PYOCO_HTTP_PORT": "x"}, tmp_path)
    assert sorted(problem.partition("=")[0] for problem in found) == ["PYOCO_HTTP_PORT", "PYOCO_LOAD_DOTENV"]


def test_a_file_cannot_set_its_own_variables(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("PYOCO_ENV_FILE=other\nPYOCO_LOAD_DOTENV=0\nPYOCO_HTTP_PROT=1\nPYOCO_HTTP_PORT\n")
    loaded = load_settings({}, directory=tmp_path)
    assert loaded.settings == Settings()
    assert [warning.text for warning in loaded.warnings] == [
        "PYOCO_ENV_FILE has no effect in .env: set it in the environment",
        "PYOCO_LOAD_DOTENV has no effect in .env: set it in the environment",
        "PYOCO_HTTP_PROT is not a setting; did you mean PYOCO_HTTP_PORT?",
    ]


def test_the_process_environment_is_the_default(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYOCO_HTTP_PORT", "1234")
    (tmp_path / ".env").write_text("PYOCO_DEFAULT_TAG=here\n")
    settings = load_settings().settings
    assert (settings.http.port, settings.routing.default_tag) == (1234, "here")
