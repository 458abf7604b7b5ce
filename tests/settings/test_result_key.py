"""The key that signs pickled results: where it comes from, and who may read it."""

import stat
from pathlib import Path

import pytest
from pydantic import SecretStr

from pyoco_server.adapters.result_key import FILE_NAME, create_result_key, result_key
from pyoco_server.errors import InvalidInputError
from pyoco_server.settings import Settings
from pyoco_server.settings.model import Storage, WorkerSettings


def settings(folder: Path, key: str | None = None) -> Settings:
    secret = None if key is None else SecretStr(key)
    return Settings(storage=Storage(data_dir=folder), worker=WorkerSettings(result_key=secret))


def test_the_embedded_platform_makes_a_key_for_its_owner_only_and_keeps_it(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    create_result_key(folder)
    made = result_key(settings(folder))
    assert made is not None
    assert len(made) == 64
    assert stat.S_IMODE((folder / FILE_NAME).stat().st_mode) == 0o600
    assert [path.name for path in folder.iterdir()] == [FILE_NAME]
    create_result_key(folder)
    assert result_key(settings(folder)) == made


def test_the_setting_of_the_key_overrides_the_file(tmp_path: Path) -> None:
    create_result_key(tmp_path)
    assert result_key(settings(tmp_path, "s" * 32)) == b"s" * 32


def test_the_key_is_optional(tmp_path: Path) -> None:
    assert result_key(settings(tmp_path)) is None
    assert result_key(settings(tmp_path, "")) is None


def test_a_file_without_a_key_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_text("short\n")
    with pytest.raises(InvalidInputError, match=r"result\.key: .* has fewer than 32 characters; restore the file"):
        result_key(settings(tmp_path))
    (tmp_path / FILE_NAME).write_bytes(b"\xff" * 40)
    with pytest.raises(InvalidInputError, match="cannot be read"):
        result_key(settings(tmp_path))


def test_a_key_that_is_too_short_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="result_key"):
        settings(tmp_path, "short")
