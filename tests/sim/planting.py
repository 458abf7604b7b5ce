"""Plants a bug for the duration of a ``with`` block."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

Mutation = Callable[[], contextlib.AbstractContextManager[None]]
_Made = Callable[[], Iterator[None]]


def kept_in(mutations: dict[str, Mutation]) -> Callable[[_Made], _Made]:
    """Return a decorator that registers a mutation under the name of its function."""

    def keep(made: _Made) -> _Made:
        mutations[made.__name__] = contextlib.contextmanager(made)  # keeps the docstring: it is shown in the documents
        return made

    return keep


@contextlib.contextmanager
def replaced(owner: Any, name: str, replacement: Any) -> Iterator[None]:
    """Replace an attribute within the ``with`` block."""
    original = getattr(owner, name)
    setattr(owner, name, replacement)
    try:
        yield
    finally:
        setattr(owner, name, original)
