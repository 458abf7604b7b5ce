"""Send an exception from the child to the parent with its type, its attributes and its traceback.

Pickling an exception is easy, loading it is not: by default its class is called with ``args``, which fails, or worse
loses something, when the constructor takes something else than what it passed on. So the child tries each way out
by loading the result again, and sends the first that works:

1. the pickle of the exception, which honours its own ``__reduce__``;
2. class, ``args`` and attributes, put together without calling the constructor;
3. no exception at all, just its type's name and its text.
"""

import pickle
import traceback
from typing import Any


def pack_error(error: BaseException) -> bytes:
    """Pickle an exception, in the child: (pickled exception or None, name of its type, its text, its traceback)."""
    described = traceback.TracebackException.from_exception(error)
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    # str() of the description, not of the error: it survives a broken __str__.
    return pickle.dumps((_portable(error), name, str(described), "".join(described.format())))


def load_error(payload: bytes) -> tuple[BaseException | None, str, str, str]:
    """Return what ``pack_error`` packed, in the parent; the exception is None if it cannot be loaded here."""
    pickled, name, text, trace = pickle.loads(payload)  # noqa: S301 (from our own child)
    return (None if pickled is None else _loaded(pickled)), name, text, trace


def _portable(error: BaseException) -> bytes | None:
    for candidate in (error, (type(error), error.args, error.__dict__)):
        pickled = _pickled(candidate)
        if pickled is not None and _is_same(_loaded(pickled), error):
            return pickled
    return None


def _is_same(copy: BaseException | None, error: BaseException) -> bool:
    return copy is not None and type(copy) is type(error) and _text(copy) == _text(error)


def _text(error: BaseException) -> str:
    return str(traceback.TracebackException(type(error), error, None))


def _pickled(candidate: object) -> bytes | None:
    try:
        return pickle.dumps(candidate)
    except Exception:  # noqa: BLE001 (pickling runs the user's code, which may raise anything; there is a next way)
        return None


def _loaded(pickled: bytes) -> BaseException | None:
    try:
        loaded = pickle.loads(pickled)  # noqa: S301 (from our own child)
        return loaded if isinstance(loaded, BaseException) else _rebuilt(*loaded)
    except Exception:  # noqa: BLE001 (loading runs the user's code, which may raise anything; there is a next way)
        return None


def _rebuilt(kind: type[BaseException], args: tuple[Any, ...], attributes: dict[str, Any]) -> BaseException:
    error = kind.__new__(kind, *args)
    # Past the class's own __setattr__, which a frozen dataclass uses to forbid this.
    BaseException.__setattr__(error, "args", args)
    error.__dict__.update(attributes)
    return error
