"""How a bug is planted, and taken out again."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

Mutation = Callable[[], contextlib.AbstractContextManager[None]]
_Made = Callable[[], Iterator[None]]


def kept_in(mutations: dict[str, Mutation]) -> Callable[[_Made], _Made]:
    """A decorator that keeps a mutation under its function's name."""

    def keep(made: _Made) -> _Made:
        mutations[made.__name__] = contextlib.contextmanager(made)  # keeps the docstring: it is shown in the documents
        return made

    return keep


@contextlib.contextmanager
def replaced(owner: Any, name: str, replacement: Any) -> Iterator[None]:
    """Within it, something else is in the place of an attribute."""
    original = getattr(owner, name)
    setattr(owner, name, replacement)
    try:
        yield
    finally:
        setattr(owner, name, original)
