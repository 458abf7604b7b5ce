"""The tags of numpy and pandas values, where these are installed.

Small arrays are written as lists, which people can read, large ones as their bytes. Neither library is imported here
unless a value of it is to be read: a value that is to be written has imported it.
"""

import importlib
import math
import sys
from typing import Any, Final

from pyoco_server.values.tags import Encode, Reader, listed, text_of

MOST_LISTED: Final = 1_000
"""Arrays with more elements are written as bytes."""

_LISTED_KINDS: Final = "biufcSU"
"""Element types that Python has values for: truth, integers, floats, complex numbers, bytes, text."""
_BYTES_KINDS: Final = _LISTED_KINDS + "mM"
_NATIVE_FLOATS: Final = 8
"""Bytes of the largest float, or half a complex number, whose digits Python keeps."""


def write(value: Any, part: Encode) -> Any:  # noqa: ANN401 any value
    """Write a value of numpy or pandas; None if it is none, or none that can be written."""
    library = type(value).__module__.partition(".")[0]
    if library == "numpy" and "numpy" in sys.modules:
        return _write_numpy(value, part)
    if library == "pandas" and "pandas" in sys.modules:
        return _write_pandas(value, part)
    return None


# --- numpy -----------------------------------------------------------------------------------------------------------


def _write_numpy(value: Any, part: Encode) -> Any:  # noqa: ANN401
    numpy = sys.modules["numpy"]
    if type(value) is numpy.ndarray:
        body = _array(value, part)
        return None if body is None else {"$ndarray": body}
    if isinstance(value, numpy.generic):
        body = _array(numpy.asarray(value), part)
        return None if body is None or type(numpy.asarray(value)[()]) is not type(value) else {"$numpy": body}
    return None


def _array(array: Any, part: Encode) -> list[Any] | None:  # noqa: ANN401
    kind, dtype = array.dtype.kind, array.dtype
    if dtype.names is not None or dtype.metadata or kind not in _BYTES_KINDS:
        return None
    is_native = kind not in "fc" or dtype.itemsize <= _NATIVE_FLOATS * (1 + (kind == "c"))
    shape = [*map(int, array.shape)]
    if kind in _LISTED_KINDS and is_native and array.size <= MOST_LISTED:
        return [dtype.str, shape, [part(item) for item in array.reshape(-1).tolist()]]
    return [dtype.str, shape, part(array.tobytes())]


def _read_array(body: Any, part: Encode) -> Any:  # noqa: ANN401
    numpy = _library("numpy")
    code, shape, data = listed(body)
    dtype = numpy.dtype(text_of(code))
    if dtype.kind not in _BYTES_KINDS or dtype.names is not None:
        raise TypeError(f"'{code}' is not the type of an array's elements")
    if not all(type(length) is int and length >= 0 for length in listed(shape)):
        raise TypeError("expected the lengths of the axes")
    elements = part(data)
    size = math.prod(shape)
    count = len(elements) if isinstance(elements, list) else len(elements) // max(dtype.itemsize, 1)
    if isinstance(elements, list) and count != size:
        raise ValueError(f"expected {size} elements, not {count}")
    if isinstance(elements, list):
        return numpy.array(elements, dtype=dtype).reshape(shape)
    return numpy.frombuffer(elements, dtype=dtype).reshape(shape).copy()


def _read_scalar(body: Any, part: Encode) -> Any:  # noqa: ANN401
    array = _read_array(body, part)
    if array.shape != ():
        raise ValueError("expected a single value")
    return array[()]


# --- pandas ----------------------------------------------------------------------------------------------------------


def _write_pandas(value: Any, part: Encode) -> Any:  # noqa: ANN401
    """A frame or a series of plain columns; whatever its parts do not say (names, attributes, zones) is not written."""
    pandas = sys.modules["pandas"]
    if type(value) is pandas.Series and _is_bare(value):
        data, index = _column(value), _index(value.index)
        if data is not None and index is not None:
            return {"$series": [part(value.name), part(index), part(data)]}
    if type(value) is pandas.DataFrame and _is_bare(value) and all(type(name) is str for name in value.columns):
        columns = {name: _column(value[name]) for name in value.columns} if value.columns.is_unique else {}
        index = _index(value.index)
        is_whole = len(columns) == len(value.columns) and all(data is not None for data in columns.values())
        if is_whole and columns and index is not None and _index(value.columns) is not None:
            return {"$dataframe": [part(index), [[part(name), part(data)] for name, data in columns.items()]]}
    return None


def _is_bare(value: Any) -> bool:  # noqa: ANN401
    return not value.attrs and value.flags.allows_duplicate_labels


def _column(series: Any) -> Any:  # noqa: ANN401
    """Its elements as an array, or as a list of text; None for types of pandas' own."""
    numpy = sys.modules["numpy"]
    return series.to_numpy() if isinstance(series.dtype, numpy.dtype) and series.dtype.kind in "biufcmM" else None


def _index(index: Any) -> Any:  # noqa: ANN401
    pandas = sys.modules["pandas"]
    if type(index) is pandas.RangeIndex and index.name is None:
        return range(index.start, index.stop, index.step)
    if type(index) is pandas.Index and index.name is None:
        labels = index.tolist()
        is_same = all(type(label) in {str, int} for label in labels) and pandas.Index(labels).dtype == index.dtype
        return labels if is_same else None
    return None


def _index_of(data: Any) -> Any:  # noqa: ANN401
    pandas = _library("pandas")
    if isinstance(data, range):
        return pandas.RangeIndex(data.start, data.stop, data.step)
    return pandas.Index(listed(data))


def _read_series(body: Any, part: Encode) -> Any:  # noqa: ANN401
    name, index, data = part(listed(body))
    return _library("pandas").Series(data, index=_index_of(index), name=name)


def _read_frame(body: Any, part: Encode) -> Any:  # noqa: ANN401
    index, columns = listed(body)
    read = {text_of(part(name)): part(data) for name, data in map(listed, listed(columns))}
    return _library("pandas").DataFrame(read, index=_index_of(part(index)))


def _library(name: str) -> Any:  # noqa: ANN401
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise LookupError(f"'{name}' is not installed here") from error


READERS: Final[dict[str, Reader]] = {
    "$ndarray": _read_array,
    "$numpy": _read_scalar,
    "$series": _read_series,
    "$dataframe": _read_frame,
}
