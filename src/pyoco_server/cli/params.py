"""Parameters of a run as typed: ``--params-file``, then ``--params``, then each ``--param``; the later wins."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from pyoco_server.cli.usage import UsageError

_EXAMPLE = 'pyoco-client run flow.py --param name=Ada --param \'tags=["a", "b"]\' --params \'{"count": 3}\''


def read_params(pairs: Sequence[str], text: str | None, file: str | None) -> dict[str, Any]:
    """Put the three forms together; UsageError if one of them cannot be read."""
    params: dict[str, Any] = {}
    if file is not None:
        params |= _json_object(_content(file), f"--params-file {file}")
    if text is not None:
        params |= _json_object(text, "--params")
    for pair in pairs:
        name, value = _pair(pair)
        params[name] = value
    return params


def typed_value(text: str) -> Any:  # noqa: ANN401 any JSON value
    """What somebody means who types ``text``: JSON if it is JSON, else the text itself."""
    try:
        return _parsed(text)
    except ValueError:
        return text


def _pair(pair: str) -> tuple[str, Any]:
    if not _is_text(pair):
        raise UsageError(f"--param {pair!r} is not UTF-8 text", example=_EXAMPLE)
    name, equals, value = pair.partition("=")
    if not equals or not name.strip():
        raise UsageError(f"--param {pair!r} is not of the form name=value", example=_EXAMPLE)
    return name.strip(), typed_value(value)


def _content(file: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"--params-file {file}: {reason}", example=_EXAMPLE) from error


def _json_object(text: str, name: str) -> dict[str, Any]:
    try:
        value = _parsed(text)
    except ValueError as error:
        raise UsageError(f"{name} is not JSON: {error}", example=_EXAMPLE) from error
    if not isinstance(value, dict):
        raise UsageError(f'{name} must be a JSON object, such as {{"count": 3}}', example=_EXAMPLE)
    return value


def _parsed(text: str) -> Any:  # noqa: ANN401 any JSON value
    """Strict JSON: Python's own reader also takes NaN and makes 1e999 infinite, which no log could hold."""
    try:
        value = json.loads(text, parse_constant=_refuse, parse_float=_finite)
        if not _is_text(json.dumps(value, ensure_ascii=False)):
            raise ValueError("it has half of a surrogate pair, which is not text")
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    return value


def _is_text(text: str) -> bool:
    """Can it be written? Bytes that are no UTF-8 reach us as half surrogates, which cannot."""
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
