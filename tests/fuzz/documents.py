"""Inputs: arbitrary ones, and valid documents with one thing damaged."""

import copy
import functools
import math
from collections.abc import Sequence
from typing import Any, Final

import msgspec
from hypothesis import strategies as st

from tests.golden.files import all_cases, load

NUMBERS: Final = [0, -1, 1, 2**31, 2**53 + 1, 2**63, -(2**63) - 1, 2**64, 10**40, 0.5, -0.0, 1e308, 5e-324]
TEXTS: Final = [
    "",
    " ",
    "\x00",
    "a" * 300,
    "größe",
    "節点",
    "../..",
    "$ctx.params",
    "{{ x }}",
    "2026-01-01T00:00:00Z",
    "0001-01-01T00:00:00+23:59",
    "9999-12-31T23:59:59-23:59",
    "true",
    "null",
    "NaN",
    "__proto__",
    "\u202e",
]

texts = st.sampled_from(TEXTS) | st.text(max_size=20)
scalars = (
    st.none()
    | st.booleans()
    | st.sampled_from(NUMBERS)
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts
)
values: st.SearchStrategy[Any] = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)
deep = st.builds(
    lambda opening, closing, depth: (opening * depth + closing * depth).encode(),
    st.sampled_from(["[", '{"a":', "{{", "("]),
    st.sampled_from(["]", "}", "}}", ")", ""]),
    st.integers(1, 20_000),
)


def written(value: Any) -> bytes:
    """Return the value as JSON; the reader has to refuse numbers that are too large."""
    return msgspec.json.encode(_writable(value))


def _writable(value: Any) -> Any:
    if isinstance(value, dict):
        return {_writable(key): _writable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_writable(item) for item in value]
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, int) and not isinstance(value, bool) and not -(2**63) <= value < 2**64:
        return msgspec.Raw(str(value).encode())
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _places(document: Any) -> list[tuple[Any, Any]]:
    """Every place in a document: what it is in, and under which key or index."""
    found: list[tuple[Any, Any]] = []
    left = [document]
    while left:
        inner = left.pop()
        keys = list(inner) if isinstance(inner, dict) else list(range(len(inner))) if isinstance(inner, list) else []
        found += [(inner, key) for key in keys]
        left += [inner[key] for key in keys]
    return found


@st.composite
def mutated(draw: st.DrawFn, documents: Sequence[Any]) -> Any:
    """One of these documents with one to four things changed."""
    document = copy.deepcopy(draw(st.sampled_from(documents)))
    for _ in range(draw(st.integers(1, 4))):
        places = _places(document)
        if not places:
            break
        inner, key = places[draw(st.integers(0, len(places) - 1))]
        match draw(st.sampled_from(["replace", "remove", "rename", "swap", "nest", "add"])):
            case "replace":
                inner[key] = draw(values)
            case "remove":
                del inner[key]
            case "rename" if isinstance(inner, dict):
                inner[draw(texts)] = inner.pop(key)
            case "swap":
                other, other_key = places[draw(st.integers(0, len(places) - 1))]
                inner[key], other[other_key] = copy.deepcopy(other[other_key]), copy.deepcopy(inner[key])
            case "nest":
                inner[key] = {"a": inner[key]} if draw(st.booleans()) else [inner[key]]
            case _ if isinstance(inner, dict):
                inner[draw(texts)] = draw(values)
            case _:
                inner.append(draw(values))
    return document


@st.composite
def damaged(draw: st.DrawFn, originals: Sequence[bytes]) -> bytes:
    """One of these texts with parts of it cut out, doubled, overwritten or put elsewhere."""
    data = bytearray(draw(st.sampled_from(originals)))
    for _ in range(draw(st.integers(1, 5))):
        start = draw(st.integers(0, len(data)))
        end = draw(st.integers(start, min(len(data), start + 64)))
        part = bytes(data[start:end])
        match draw(st.sampled_from(["cut", "double", "overwrite", "insert", "truncate"])):
            case "cut":
                del data[start:end]
            case "double":
                data[start:start] = part * draw(st.integers(1, 20))
            case "overwrite":
                data[start:end] = draw(st.binary(min_size=end - start, max_size=end - start))
            case "insert":
                data[start:start] = draw(
                    st.binary(max_size=16) | texts.map(lambda text: text.encode("utf-8", "replace"))
                )
            case _:
                del data[start:]
    return bytes(data)


@functools.cache
def golden_events() -> Sequence[Any]:
    """Events of every kind, as they were once recorded: of each kind a few."""
    kinds: dict[str, list[Any]] = {}
    for case in all_cases():
        for line in load(case).lines:
            event = msgspec.json.decode(line)
            known = kinds.setdefault(event["type"], [])
            if len(known) < 6:
                known.append(event)
    return [event for known in kinds.values() for event in known]


@functools.cache
def golden_graphs() -> Sequence[Any]:
    """Graphs of recorded runs."""
    return [msgspec.json.decode(load(case).moments[-1].graph) for case in all_cases()]  # type: ignore[arg-type]


@functools.cache
def golden_logs(longest: int = 30) -> Sequence[list[Any]]:
    """Whole logs that are not too long."""
    logs = [[msgspec.json.decode(line) for line in load(case).lines] for case in all_cases()]
    return [log for log in logs if len(log) <= longest]
