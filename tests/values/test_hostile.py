"""Forged values are refused with the place and the reason, and without running anything."""

import asyncio
import logging
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typing_extensions import override

from pyoco_server.adapters.memory.registries import MemoryOutputStore
from pyoco_server.app.runs.commands import check_command
from pyoco_server.app.runs.job import check_params
from pyoco_server.app.runtime.attempt import describe
from pyoco_server.app.runtime.outputs import STORED, Outputs, ValueOwner
from pyoco_server.core import Command, DecodeError, decode_command
from pyoco_server.errors import InvalidInputError
from pyoco_server.values import arrays, classes, tags
from pyoco_server.values.codec import carried, from_tagged, received
from pyoco_server.values.errors import ValueCodecError
from pyoco_server.values.lazy import LostValue, PickledValue
from tests.values.samples import Plain

KEY = b"k" * 32
OWNER = ValueOwner("run", "node", "task")


def nested(depth: int, tag: str | None) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value] if tag is None else {tag: [value]}
    return value


HERE = "tests.values.samples"
BAD: dict[str, tuple[Any, str]] = {
    "unknown": ({"a": [{"$evil": 1}]}, r"'\$evil' is not a tag.*\$\.a\[0\]"),
    "deep": (nested(500, None), "nested too deeply"),
    "deep tuples": (nested(500, "$tuple"), "nested too deeply"),
    "integer": (10**5000, "the integer is too large"),
    "fraction": ({"$fraction": ["1e999999999", 1]}, "two integers"),
    "zero": ({"$fraction": [1, 0]}, "cannot be read"),
    "timedelta": ({"$timedelta": [10**12, 0, 0]}, "cannot be read"),
    "times": ({"$datetime": {"at": "2024-01-01T00:00:00", "zone": "../../etc/passwd"}}, "cannot be read"),
    "zone": ({"$datetime": {"at": "2024-01-01T00:00:00", "zone": "No/Where"}}, "cannot be read"),
    "fold": ({"$time": {"at": "00:00", "fold": 7}}, "cannot be read"),
    "field": ({"$time": {"at": "00:00", "x": 7}}, "unknown field 'x'"),
    "unhashable": ({"$set": [[1]]}, "cannot be read"),
    "key": ({"$dict": [[[1], 2]]}, "cannot be read"),
    "pair": ({"$dict": [[1, 2, 3]]}, "cannot be read"),
    "no list": ({"$tuple": {"a": 1}}, "expected a list"),
    "bytes": ({"$bytes": "not base64!"}, "cannot be read"),
    "text": ({"$str": "\\N{BULLET}"}, "escapes"),
    "float": ({"$float": "1e5"}, "expected one of"),
    "range": ({"$range": [0, 1, 0]}, "cannot be read"),
    "function": ({"$dataclass": ["os:system", {"command": "x"}]}, "no class 'system'"),
    "class": ({"$dataclass": ["subprocess:Popen", {"args": "x"}]}, "not a dataclass"),
    "method": ({"$enum": [f"{HERE}:Plain.__init__", "X"]}, "no class"),
    "plain class": ({"$enum": [f"{HERE}:Plain", "X"]}, "not an Enum"),
    "member": ({"$enum": [f"{HERE}:Colour", "BLUE"]}, "not an Enum with a member 'BLUE'"),
    "module": ({"$enum": ["no_such_module_anywhere:X", "BLUE"]}, "cannot import"),
    "relative": ({"$enum": [".x:X", "BLUE"]}, "cannot be read"),
    "new field": ({"$dataclass": [f"{HERE}:Open", {"x": 1, "gone": 2}]}, "no field 'gone' any more"),
    "no field": ({"$dataclass": [f"{HERE}:Open", {}]}, "a field 'x' since, without a default"),
    "struct": ({"$struct": [f"{HERE}:Picky", {"a": 1}]}, "not a struct"),
    "no struct": ({"$struct": [f"{HERE}:Open", {"x": 1}]}, "not a struct"),
    "model": ({"$model": [f"{HERE}:Open", {"x": 1}, []]}, "not a pydantic model"),
    "model field": ({"$model": [f"{HERE}:Model", {"b": 1}, []]}, "a field 'a' since"),
}


@pytest.mark.parametrize("name", BAD)
def test_tagged_json_that_is_wrong_is_refused_with_its_place(name: str) -> None:
    value, message = BAD[name]
    with pytest.raises(ValueCodecError, match=message):
        from_tagged(value)


def test_a_folder_of_zones_is_not_a_zone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In Python 3.11, ZoneInfo raises IsADirectoryError for one, where the package tzdata is installed."""
    (tmp_path / "tzdata" / "zoneinfo" / "Folder").mkdir(parents=True)
    for package in ("tzdata", "tzdata/zoneinfo"):
        (tmp_path / package / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in [name for name in sys.modules if name.split(".")[0] == "tzdata"]:
        monkeypatch.delitem(sys.modules, name)
    try:
        with pytest.raises(ValueCodecError, match="cannot be read"):
            from_tagged({"$datetime": {"at": "2024-01-01T00:00:00", "zone": "Folder"}}, classes=False)
    finally:
        for name in [name for name in sys.modules if name.split(".")[0] == "tzdata"]:
            del sys.modules[name]


def test_a_field_that_came_since_takes_its_default() -> None:
    found = from_tagged({"$dataclass": [f"{HERE}:Derived", {"x": 1}]})
    assert (found.x, found.y, found.z) == (1, [], None)


@pytest.mark.parametrize(
    "tag", ["$enum", "$dataclass", "$struct", "$model", "$ndarray", "$numpy", "$series", "$dataframe"]
)
def test_a_value_from_outside_that_names_a_class_is_refused(tag: str) -> None:
    with pytest.raises(ValueCodecError, match="names a class, which is not accepted here"):
        from_tagged({tag: ["this:That", {}]}, classes=False)


EXPENSIVE: dict[str, Any] = {
    "exponent": {"$decimal": "1E999999999"},
    "small exponent": {"$decimal": "1E-999999999"},
    "zero with an exponent": {"$decimal": "0E999999"},
    "digits": {"$decimal": "9" * (tags.MAX_DIGITS + 1)},
    "digits of a NaN": {"$decimal": "NaN" + "9" * (tags.MAX_DIGITS + 1)},
    "integer": 1 << tags.MAX_INT_BITS,
    "fraction": {"$fraction": [1, 1 << tags.MAX_INT_BITS]},
    "range": {"$range": [0, 10**30, 1]},
    "range of texts": {"$range": ["a", "b", "c"]},
    "set": {"$set": [number * (2**61 - 1) for number in range(tags.MOST_EQUAL_HASHES + 2)]},
    "frozenset": {"$frozenset": [number * (2**61 - 1) for number in range(tags.MOST_EQUAL_HASHES + 2)]},
    "keys": {"$dict": [[number * (2**61 - 1), 1] for number in range(tags.MOST_EQUAL_HASHES + 2)]},
    "keys of several types": {
        "$dict": [[{"$tuple": [number * (2**61 - 1)]}, 1] for number in range(tags.MOST_EQUAL_HASHES + 2)]
    },
}


@pytest.mark.parametrize("name", EXPENSIVE)
def test_a_value_that_is_expensive_to_use_is_refused_with_its_place(name: str) -> None:
    with pytest.raises(InvalidInputError, match=r"^params\.x[.:]"):
        received("params", {"params": {"x": EXPENSIVE[name]}, "params_kind": "tagged"})
    with pytest.raises(ValueCodecError):
        from_tagged([EXPENSIVE[name]])


@pytest.mark.parametrize("value", [Decimal("1E999999999"), range(10**30)], ids=repr)
def test_a_value_that_is_too_large_for_a_tag_is_pickled_or_refused(value: object) -> None:
    output = asyncio.run(pickled(MemoryOutputStore(), value))
    assert output["repr"] == repr(value)
    with pytest.raises(DecodeError, match=r"it is too large, or has a part that no tag covers"):
        carried("params", {"x": value})


def test_many_elements_with_different_hashes_are_read() -> None:
    assert from_tagged({"$set": [*range(2_000)]}) == set(range(2_000))


_TAGS = [*tags.READERS, "$tuple", "$dict"]
_OF_CLASSES = [*classes.READERS, *arrays.READERS]
_NAMES = [
    f"{HERE}:{name}" for name in ("Colour", "Open", "Closed", "Struct", "Model", "Picky", "Plain", "EXAMPLES", "no")
]
_plain = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9) | st.just(1 << tags.MAX_INT_BITS)


def _tagged_json(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    fields = st.dictionaries(st.sampled_from(["x", "y", "a", "b", "at", "zone", "fold"]), inner, max_size=3)
    named = st.tuples(st.sampled_from(_NAMES), st.one_of(inner, fields), st.lists(inner, max_size=2)).map(list)
    return st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.text(max_size=3), inner, max_size=3),
        st.builds(lambda tag, body: {tag: body}, st.sampled_from(_TAGS), inner | fields),
        st.builds(
            lambda tag, body: {tag: body}, st.sampled_from(_OF_CLASSES), named | named.map(lambda those: those[:2])
        ),
    )


@given(data=st.recursive(_plain, _tagged_json, max_leaves=12))
@settings(max_examples=500, deadline=None)
def test_any_json_is_read_or_refused_with_its_place(data: Any) -> None:
    for with_classes in (True, False):
        try:
            from_tagged(data, classes=with_classes)
        except ValueCodecError as error:
            assert error.at.startswith("$"), "no place"  # noqa: PT017 whether it is raised is what varies


# --- At the door -----------------------------------------------------------------------------------------------------

COMMANDS: dict[str, tuple[dict[str, Any], str]] = {
    "stored": ({"type": "SucceedNode", "output": {"stored": {"name": "other/1", "sha256": "x"}}}, "output.stored"),
    "pickle": (
        {"type": "SucceedNode", "output": {"output_kind": "pickle", "value": 1}},
        "output.output_kind: 'pickle'",
    ),
    "lost": ({"type": "SucceedNode", "output": {"output_kind": "lost"}}, "output.output_kind"),
    "kind": ({"type": "SucceedNode", "output": {"output_kind": {}, "value": 1}}, "output.output_kind"),
    "class": (
        {"type": "SucceedNode", "output": {"output_kind": "tagged", "value": [{"$enum": ["a:b", "c"]}]}},
        r"output.value\[0\]: '\$enum' names a class",
    ),
    "no value": ({"type": "SucceedNode", "output": {"output_kind": "tagged"}}, "output.value"),
    "decision": (
        {"type": "ReportNodeProgress", "metrics": {"decision": {"key": "over", "value": 1}}},
        "metrics.decision",
    ),
    "input": ({"type": "ResumeNode", "input": {"$enum": ["a:b", "c"]}, "input_kind": "tagged"}, "input: '.enum' names"),
    "input kind": ({"type": "ResumeNode", "input": 1, "input_kind": "pickle"}, "input_kind: 'pickle' is not accepted"),
    "params": (
        {"type": "CreateExecution", "input": {"params": {"x": {"$evil": 1}}, "params_kind": "tagged"}},
        r"params\.x: '\$evil' is not a tag",
    ),
}


def command(fields: dict[str, Any]) -> Command:
    given = {"nodeId": "n", "graphId": "g"} | fields
    return decode_command({**given, "executionId": "e", "actor": {"kind": "external"}})


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_from_outside_cannot_bring_what_a_worker_would_load(name: str) -> None:
    fields, message = COMMANDS[name]
    with pytest.raises(InvalidInputError, match=message):
        check_command(command(fields))


@pytest.mark.parametrize(
    "fields",
    [
        {"type": "SucceedNode", "output": {"pages": 10, "stored": True}},
        {"type": "SucceedNode", "output": {"value": {"$enum": 1}}},
        {"type": "SucceedNode", "output": {"value": {"$tuple": [1]}, "output_kind": "tagged"}},
        {"type": "SucceedNode"},
        {"type": "ResumeNode", "input": {"$ref": "#/a"}},
        {"type": "ReportNodeProgress", "metrics": {"decision": "yes"}},
        {"type": "CreateExecution", "input": {"anything": 1}},
        {"type": "StartNode"},
    ],
)
def test_what_is_a_users_own_is_left_alone(fields: dict[str, Any]) -> None:
    check_command(command(fields))


@pytest.mark.parametrize("params", [{"$dict": [[1, 2]]}, {"$tuple": [1]}])
def test_params_are_an_object_with_text_as_keys(params: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError, match="params: an object was expected"):
        check_params({"params": params, "params_kind": "tagged"})


# --- Stored objects --------------------------------------------------------------------------------------------------


class Bomb:
    """Notes that it was loaded."""

    loaded: list[int] = []  # noqa: RUF012 shared on purpose

    @override
    def __reduce__(self) -> Any:
        return Bomb.loaded.append, (1,)


async def pickled(store: MemoryOutputStore, value: object, owner: ValueOwner = OWNER) -> dict[str, Any]:
    output = await Outputs(store, key=KEY).written(owner, lambda: f"{owner.run_id}/1", value)
    assert output["output_kind"] == "pickle"
    return output


def refused(
    store: MemoryOutputStore, output: dict[str, Any], owner: ValueOwner = OWNER, key: bytes | None = KEY
) -> str:
    """Why a stored pickle is not loaded."""
    found = asyncio.run(Outputs(store, key=key).read(owner, output))
    assert isinstance(found, LostValue)
    assert Bomb.loaded == []
    return found.reason


def test_a_pickle_is_read_where_it_belongs_and_nowhere_else(caplog: pytest.LogCaptureFixture) -> None:
    store = MemoryOutputStore()
    output = asyncio.run(pickled(store, Bomb()))
    assert isinstance(asyncio.run(Outputs(store, key=KEY).read(OWNER, output)), PickledValue)
    with caplog.at_level(logging.WARNING):
        assert "its signature is not valid" in refused(store, output, ValueOwner("run", "other", "task"))
    assert [record.__dict__["action"] for record in caplog.records] == ["output_forged"]
    assert "its signature is not valid" in refused(store, output, ValueOwner("run", "node", None, "over"))
    assert "does not say where" in refused(store, output, ValueOwner("another", "node", "task"))
    assert "its signature is not valid" in refused(store, output, key=b"z" * 32)
    assert "no PYOCO_RESULT_KEY" in refused(store, output, key=None)


@pytest.mark.parametrize("signature", ["", "0" * 64, "ü", None])
def test_a_pickle_with_another_signature_is_not_loaded(signature: str | None) -> None:
    store = MemoryOutputStore()
    output = asyncio.run(pickled(store, Bomb()))
    output[STORED] = {**output[STORED], "hmac": signature}
    if signature is None:
        del output[STORED]["hmac"]
    assert "its signature is not valid" in refused(store, output)


def test_an_object_that_was_exchanged_is_not_loaded() -> None:
    store = MemoryOutputStore()
    output = asyncio.run(pickled(store, Plain(1)))
    (name,) = store._kept
    store._kept[name] = asyncio.run(_bytes_of(Bomb()))
    assert "missing or damaged" in refused(store, output)


async def _bytes_of(value: object) -> bytes:
    store = MemoryOutputStore()
    await pickled(store, value)
    (data,) = store._kept.values()
    return data


def test_without_a_key_what_needs_pickling_is_lost_and_nothing_is_stored() -> None:
    store = MemoryOutputStore()
    output = asyncio.run(Outputs(store).written(OWNER, lambda: "run/1", Plain(1)))
    assert (output["output_kind"], store._kept) == ("lost", {})
    assert "a worker without PYOCO_RESULT_KEY neither stores nor loads" in output["reason"]


class Leaving:
    """Its own code wants to end the process, whatever is asked of it."""

    @override
    def __repr__(self) -> str:
        raise SystemExit("repr")

    @override
    def __getstate__(self) -> object:
        raise KeyboardInterrupt

    @override
    def __reduce__(self) -> str:
        raise LeavingError


class LeavingError(Exception):
    @override
    def __str__(self) -> str:
        raise SystemExit("str")


class LeavingDict(dict[str, int]):
    @override
    def items(self) -> Any:
        raise SystemExit("items")

    @override
    def __iter__(self) -> Any:
        raise KeyboardInterrupt


@pytest.mark.parametrize("value", [Leaving(), LeavingDict(a=1)], ids=["pickle", "dictionary"])
def test_a_value_whose_own_code_wants_to_end_the_process_is_lost(value: object) -> None:
    output = asyncio.run(Outputs(MemoryOutputStore(), key=KEY).written(OWNER, lambda: "run/1", value))
    assert output["output_kind"] in {"lost", "pickle"}


def test_an_error_whose_text_wants_to_end_the_process_is_described() -> None:
    assert describe(LeavingError())["message"] == "a LeavingError that cannot be shown"
