"""Convert any Python value to JSON data: by ``repr`` where JSON has no type, of limited size, and without secrets."""

import math
from collections.abc import Mapping
from typing import Any, Final

from pyoco_server.logs.redaction import HIDDEN, is_secret, without_secrets
from pyoco_server.texts import shortened

DEEPEST: Final = 8
MOST_ITEMS: Final = 1000
LONGEST_REPR: Final = 2000
LONGEST_LOGGED: Final = 32_000
LARGEST_INT: Final = 2**256
"""Python refuses to write integers of thousands of digits, and few readers could take them."""


def plain_fields(fields: Mapping[Any, object]) -> dict[str, Any]:
    """Named values as JSON data; those with a secret's name are hidden."""
    return _Converter().members(list(fields.items()), 0)


def safe_repr(value: object) -> str:
    """``repr``, shortened, also of an object that has a broken one."""
    try:
        text = repr(value)
    except Exception as error:  # noqa: BLE001 (a broken __repr__ must not prevent the line)
        return f"<{type(value).__name__} without a repr: {type(error).__name__}>"
    return clean(shortened(text, LONGEST_REPR))


def clean(text: str) -> str:
    """Return a text without secrets that can be encoded, shortened: half a surrogate pair becomes an escape."""
    return shortened(without_secrets(text), LONGEST_LOGGED)


class _Converter:
    """Converts the values of one line; counts their parts, so that shared and circular structures end."""

    def __init__(self) -> None:
        self._items = 0

    def members(self, items: list[tuple[Any, object]], depth: int) -> dict[str, Any]:
        named = ((clean(key) if isinstance(key, str) else safe_repr(key), value) for key, value in items)
        return {name: HIDDEN if is_secret(name) else self.convert(value, depth) for name, value in named}

    def convert(self, value: object, depth: int) -> Any:  # noqa: ANN401 (JSON data)
        if value is None or value is True or value is False:
            return value
        if isinstance(value, str):
            return clean(str.__str__(value))
        if isinstance(value, int):
            number = int.__int__(value)
            return number if -LARGEST_INT < number < LARGEST_INT else safe_repr(value)
        if isinstance(value, float):
            return float.__float__(value) if math.isfinite(value) else safe_repr(value)
        if isinstance(value, Mapping | list | tuple):
            return self._container(value, depth + 1)
        return safe_repr(value)

    def _container(self, value: Mapping[Any, object] | list[Any] | tuple[Any, ...], depth: int) -> Any:  # noqa: ANN401 (JSON data)
        try:
            items: list[Any] = [(key, value[key]) for key in value] if isinstance(value, Mapping) else list(value)
        except Exception:  # noqa: BLE001 (a mapping of any class, perhaps changed by another thread)
            return safe_repr(value)
        self._items += len(items)
        if depth > DEEPEST or self._items > MOST_ITEMS:
            return f"<{type(value).__name__} of {len(items)}>"
        if isinstance(value, Mapping):
            return self.members(items, depth)
        return [self.convert(item, depth) for item in items]
