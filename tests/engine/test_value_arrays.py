"""Values of numpy and pandas keep type, shape and elements; run where the two are installed."""

import asyncio
from typing import Any

import msgspec
import pytest

from pyoco_server.adapters.memory.outputs import MemoryOutputStore
from pyoco_server.app.outputs import Outputs, Owner
from pyoco_server.values.codec import from_tagged
from pyoco_server.values.errors import ValueCodecError
from pyoco_server.values.lazy import value_of

numpy = pytest.importorskip("numpy")
OWNER = Owner("run", "node", "task")


def kept(value: Any) -> tuple[str, Any]:
    """How a value is kept, and what another worker reads."""

    async def read() -> tuple[str, Any]:
        outputs = Outputs(MemoryOutputStore(), key=b"k" * 32)
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
def test_an_array_that_somebody_made_up_is_refused(body: Any) -> None:
    with pytest.raises(ValueCodecError):
        from_tagged({"$ndarray": body})


def test_tables_keep_columns_types_and_index() -> None:
    pandas = pytest.importorskip("pandas")
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
