"""Parameters of a run: ``--params-file``, then ``--params``, then each ``--param``; the later one wins."""

import argparse
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from pyoco_server.cli.shared.errors import UsageError
from pyoco_server.flows.errors import FlowSyntaxError
from pyoco_server.flows.yaml.reader import plain, read_document

_PAIR_EXAMPLE = """{command} --param name=Ada --param 'tags=["a", "b"]'"""
_OBJECT_EXAMPLE = """{command} --params '{{"name": "Ada", "count": 3}}'"""
_FILE_EXAMPLE = "echo 'name: Ada' > params.yaml && {command} --params-file params.yaml"
_YAML = frozenset({".yaml", ".yml"})
_LONE_SURROGATE = "it has half of a surrogate pair, which is not text"


def read_params(
    pairs: Sequence[str], text: str | None, file: str | None, *, command: str = "pyoco-client run flow.py"
) -> dict[str, Any]:
    """Merge the three forms; UsageError, with an example for ``command``, if one is not valid."""
    try:
        return _read(pairs, text, file)
    except UsageError as error:
        error.example = (error.example or "").format(command=command)
        raise


def add_params_options(parser: argparse.ArgumentParser) -> None:
    """Add the three options."""
    parser.add_argument(
        "--param",
        metavar="K=V",
        action="append",
        default=[],
        help="a parameter: JSON, else text; one that no task takes is noted, not refused",
    )
    parser.add_argument("--params", metavar="JSON", help="parameters as a JSON object")
    parser.add_argument("--params-file", metavar="FILE", help="a file with parameters, JSON or YAML")


def _read(pairs: Sequence[str], text: str | None, file: str | None) -> dict[str, Any]:
    params: dict[str, Any] = {}
    if file is not None:
        params |= _file_object(Path(file))
    if text is not None:
        params |= _object(_json(text, "--params", _OBJECT_EXAMPLE), "--params", _OBJECT_EXAMPLE)
    for pair in pairs:
        name, value = _pair(pair)
        params[name] = value
    return params


def strict_json(text: str) -> Any:  # noqa: ANN401 any JSON value
    """Parse JSON that the log can store; ValueError if it is not valid."""
    return _parsed(text)


def typed_value(text: str) -> Any:  # noqa: ANN401 any JSON value
    """Parse a typed value: as JSON if it is valid JSON, else as text."""
    try:
        return _parsed(text)
    except ValueError:
        return text


def _pair(pair: str) -> tuple[str, Any]:
    if not _is_text(pair):
        raise UsageError(f"--param {pair!r} is not UTF-8 text", example=_PAIR_EXAMPLE)
    name, equals, value = pair.partition("=")
    if not equals or not name.strip():
        raise UsageError(f"--param {pair!r} is not of the form name=value", example=_PAIR_EXAMPLE)
    return name.strip(), typed_value(value)


def _file_object(path: Path) -> dict[str, Any]:
    """Read a file as JSON or YAML: by its suffix, else by its first character."""
    name = f"--params-file {path}"
    text = _content(path, name)
    is_json = path.suffix.lower() == ".json" or (path.suffix.lower() not in _YAML and text.lstrip()[:1] in {"{", "["})
    return _object(_json(text, name, _FILE_EXAMPLE) if is_json else _yaml(text, name), name, _FILE_EXAMPLE)


def _content(path: Path, name: str) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:  # ValueError: not UTF-8, or not a valid file name
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"{name}: {reason}", example=_FILE_EXAMPLE) from error


def _yaml(text: str, name: str) -> Any:  # noqa: ANN401 any plain value
    """Parse YAML as in a flow.yaml: no anchors, no tags, only values that JSON has."""
    try:
        value = plain(read_document(text))
    except FlowSyntaxError as error:
        raise UsageError(f"{name}: {error}", example=_FILE_EXAMPLE) from error
    if not _is_text(json.dumps(value, ensure_ascii=False)):
        raise UsageError(f"{name}: {_LONE_SURROGATE}", example=_FILE_EXAMPLE)
    return value


def _json(text: str, name: str, example: str) -> Any:  # noqa: ANN401 any JSON value
    try:
        return _parsed(text)
    except ValueError as error:
        raise UsageError(f"{name} is not JSON: {error}", example=example) from error


def _object(value: object, name: str, example: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise UsageError(f'{name} must be an object, such as {{"count": 3}}', example=example)
    return value


def _parsed(text: str) -> Any:  # noqa: ANN401 any JSON value
    """Parse strict JSON: Python's parser also takes NaN and makes 1e999 infinite, which the log cannot store."""
    try:
        value = json.loads(text, parse_constant=_refuse, parse_float=_finite)
        if not _is_text(json.dumps(value, ensure_ascii=False)):
            raise ValueError(_LONE_SURROGATE)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    return value


def _is_text(text: str) -> bool:
    """Whether the text can be encoded; bytes that are not UTF-8 arrive as lone surrogates, which cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _finite(digits: str) -> float:
    value = float(digits)
    return value if math.isfinite(value) else _refuse(digits)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a JSON value")
