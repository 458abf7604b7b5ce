"""What a log line is about, said once for everything that happens inside."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import Final

_NOTHING: Final[Mapping[str, object]] = MappingProxyType({})
_bound: Final[ContextVar[Mapping[str, object]]] = ContextVar("pyoco_log_context", default=_NOTHING)


@contextmanager
def log_context(**fields: object) -> Iterator[None]:
    """Add fields (``run_id``, ``worker_id``, …) to every line logged inside, also by tasks and threads begun there.

    Those begun with asyncio's ``create_task`` and ``to_thread`` are meant; a bare ``threading.Thread`` or executor does
    not inherit. An inner value replaces an outer one, and ``extra`` of a single call replaces both.
    """
    token = _bound.set(MappingProxyType({**_bound.get(), **fields}))
    try:
        yield
    finally:
        _bound.reset(token)


def bound_fields() -> Mapping[str, object]:
    """The fields that hold here."""
    return _bound.get()
