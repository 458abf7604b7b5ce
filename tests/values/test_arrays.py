"""Values of numpy and pandas keep type, shape and elements; run where the two are installed."""

import asyncio
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pyoco_server.adapters.memory.registries import MemoryOutputStore
from pyoco_server.app.runtime.outputs import Outputs, ValueOwner
from pyoco_server.values.codec import from_tagged
from pyoco_server.values.errors import ValueCodecError
from pyoco_server.values.lazy import value_of

numpy = pytest.importorskip("numpy")
pandas = pytest.importorskip("pandas")
numpy_strategies = pytest.importorskip("hypothesis.extra.numpy")
pandas_strategies = pytest.importorskip("hypothesis.extra.pandas")
OWNER = ValueOwner("run", "node", "task")


def kept(value: Any, inline_max_bytes: int = 65_536) -> tuple[str, Any]:
    """How a value is kept, and what another worker reads."""

    async def read() -> tuple[str, Any]:
        outputs = Outputs(MemoryOutputStore(), inline_max_bytes=inline_max_bytes, key=b"k" * 32)
        output = msgspec.json.decode(msgspec.json.encode(await outputs.written(OWNER, lambda: "run/1", value)))
        return output["output_kind"], value_of(await outputs.read(OWNER, output))

    return asyncio.run(read())


ARRAYS = {
    "floats": numpy.array([[1.5, float("nan")], [-0.0, float("inf")]]),
    "small": numpy.array([1.1], dtype="float32"),
    "many": numpy.arange(5_000).reshape(50, 100),
    "big endian": numpy.array([1, 2], dtype=">i4"),
    "none": numpy.zeros((0, 3)),
    "single": numpy.array(3),
    "text": numpy.array(["a", "bc"]),
    "times": numpy.array(["2024-01-01", "NaT"], dtype="datetime64[ns]"),
    "long": numpy.array([1.1], dtype="longdouble"),
    "complex": numpy.array([1j, 2]),
}
SCALARS = [numpy.float32(1.1), numpy.int8(3), numpy.bool_(True), numpy.timedelta64(3, "s"), numpy.complex64(1j)]


@pytest.mark.parametrize("name", ARRAYS)
def test_an_array_is_written_with_a_tag(name: str) -> None:
    array = ARRAYS[name]
    kind, found = kept(array)
    assert (kind, type(found), found.dtype, found.shape) == ("tagged", type(array), array.dtype, array.shape)
    assert found.tobytes() == array.tobytes()
    assert found.flags.writeable


_dtypes = st.one_of(
    numpy_strategies.integer_dtypes(),
    numpy_strategies.unsigned_integer_dtypes(),
    numpy_strategies.floating_dtypes(),
    numpy_strategies.complex_number_dtypes(),
    numpy_strategies.boolean_dtypes(),
    numpy_strategies.datetime64_dtypes(),
    numpy_strategies.timedelta64_dtypes(),
    numpy_strategies.unicode_string_dtypes(max_len=5),
    numpy_strategies.byte_string_dtypes(max_len=5),
)
_shapes = numpy_strategies.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)


@given(array=numpy_strategies.arrays(_dtypes, _shapes), inline_max_bytes=st.sampled_from([65_536, 0]))
@settings(max_examples=200, deadline=None)
def test_any_array_keeps_type_shape_and_elements(array: Any, inline_max_bytes: int) -> None:
    _, found = kept(array, inline_max_bytes)
    assert (type(found), found.dtype, found.shape) == (type(array), array.dtype, array.shape)
    numpy.testing.assert_array_equal(found, array, strict=True)  # NaN is the same as NaN, whatever its bits


@given(
    frame=pandas_strategies.data_frames(
        [
            pandas_strategies.column("i", dtype=int),
            pandas_strategies.column("f", dtype=float),
            pandas_strategies.column("b", dtype=bool),
            pandas_strategies.column("t", dtype="datetime64[ns]"),
            pandas_strategies.column("s", elements=st.text(max_size=3)),
        ],
    ),
    inline_max_bytes=st.sampled_from([65_536, 0]),
)
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_table_keeps_columns_types_and_index(frame: Any, inline_max_bytes: int) -> None:
    _, found = kept(frame, inline_max_bytes)
    pandas.testing.assert_frame_equal(found, frame)
    for name in frame.columns:
        _, series = kept(frame[name], inline_max_bytes)
        pandas.testing.assert_series_equal(series, frame[name])


@pytest.mark.parametrize("value", SCALARS, ids=lambda value: type(value).__name__)
def test_a_scalar_keeps_its_type(value: Any) -> None:
    kind, found = kept(value)
    assert (kind, type(found), found) == ("tagged", type(value), value)


def test_other_arrays_are_pickled() -> None:
    for array in (numpy.array([1, "a"], dtype=object), numpy.zeros(2, dtype=[("x", "i4")]), numpy.ma.masked_array([1])):
        kind, found = kept(array)
        assert (kind, type(found), found.tolist()) == ("pickle", type(array), array.tolist())


@pytest.mark.parametrize(
    "body", [["O", [1], [1]], ["<i8", [2], [1]], ["<i8", [-1], [1]], ["<i8", [10**12], {"$bytes": ""}], ["no", [], [1]]]
)
def test_a_forged_array_is_refused(body: Any) -> None:
    with pytest.raises(ValueCodecError):
        from_tagged({"$ndarray": body})


def test_tables_keep_columns_types_and_index() -> None:
    frame = pandas.DataFrame({"a": [1, 2], "b": [1.5, float("nan")]}, index=["x", "y"])
    kind, found = kept(frame)
    assert kind == "tagged"
    pandas.testing.assert_frame_equal(found, frame)
    kind, series = kept(pandas.Series([1, 2], name="n"))
    assert kind == "tagged"
    pandas.testing.assert_series_equal(series, pandas.Series([1, 2], name="n"))
    texts = pandas.DataFrame({"t": ["x", None]})
    kind, found = kept(texts)
    assert kind == "pickle"
    pandas.testing.assert_frame_equal(found, texts)
