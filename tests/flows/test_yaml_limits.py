"""Untrusted YAML files: refused early and cheaply, with a reason."""

import time
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from typing_extensions import override

from pyoco_server.flows.errors import FlowSyntaxError, FlowTooLargeError
from pyoco_server.flows.yaml.document import read_flow_yaml
from pyoco_server.flows.yaml.reader import MAX_BYTES, MAX_DEPTH, MAX_NODES, plain, read_document

LOADERS = [pytest.param(yaml.SafeLoader, id="python")]
if yaml.__with_libyaml__:
    LOADERS.append(pytest.param(yaml.CSafeLoader, id="libyaml"))

PATIENCE = 15.0
"""Seconds of processor time; many times what the slowest takes, even with coverage, and far less than a bomb would."""


def refusal(text: str | bytes, **options: Any) -> FlowSyntaxError:
    with pytest.raises(FlowSyntaxError) as caught:
        read_document(text, **options)
    return caught.value


# --- What is read ----------------------------------------------------------------------------------------------------

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=20),
    st.sampled_from(["yes", "1:30", "0x1F", "1_000", "2024-01-01", "<<", "=", "~", "", "on", "1e3", "a: b", "# x"]),
)
DOCUMENTS = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=20,
)


@pytest.mark.parametrize("loader", LOADERS)
@given(value=DOCUMENTS, flow_style=st.booleans())
@settings(deadline=None)
def test_plain_values_are_read_as_pyyaml_reads_them(loader: Any, value: Any, flow_style: bool) -> None:
    class NoAliases(yaml.SafeDumper):
        @override
        def ignore_aliases(self, data: Any) -> bool:
            return True

    text = yaml.dump(value, Dumper=NoAliases, default_flow_style=flow_style, allow_unicode=True)
    assert plain(read_document(text, loader=loader)) == yaml.safe_load(text)


@pytest.mark.parametrize("loader", LOADERS)
@pytest.mark.parametrize(
    "scalar", ["yes", "Off", "017", "0o17", "0b11", "0x_f", "1:30", "1:30.5", "1e3", "1.5e+3", "_", ".5", "null", "~"]
)
def test_words_that_look_like_something_else(scalar: str, loader: Any) -> None:
    assert plain(read_document(f"x: {scalar}", loader=loader)) == yaml.safe_load(f"x: {scalar}")


# --- What is refused -------------------------------------------------------------------------------------------------

REFUSED = [
    ("a: &x 1", 1, 4, "anchor '&x'"),
    ("a: [&x 1, *x]", 1, 5, "anchor"),
    ("a: *x", 1, 4, "alias '*x'"),
    ("a: !!str 1", 1, 4, "tag"),
    ("a: !!python/object/apply:os.system [ls]", 1, 4, "tag"),
    ("a: !mine {}", 1, 4, "tag"),
    ("b: 1\n<<: { a: 1 }", 2, 1, "merge key"),
    ("b: 1\n2: 3", 2, 1, "key 2 is not text"),
    ("on: 1", 1, 1, "key on is not text"),
    ("? [a]\n: 1", 1, 3, "key that is not text"),
    ("? { a: 1 }\n: 1", 1, 3, "key that is not text"),
    ("a: 1\nb: 2\na: 3", 3, 1, "'a' stands here twice (first in line 1)"),
    ("a: 1\n---\nb: 2", 2, 1, "second document"),
    ("a: 2024-01-01", 1, 4, "is a timestamp"),
    ("a: =", 1, 4, "is a value"),
    ("a: .NaN", 1, 4, "not a finite number"),
    ("a: 1.0e+999", 1, 4, "not a finite number"),
    ("a: 0b_", 1, 4, "not a number"),
    ("a: b: c", 1, 5, "not YAML"),
    ("a: [1", 1, 6, "not YAML"),
    ("a: \x01", 1, 4, "may not stand"),
    ("", 1, 1, "empty"),
    ("# only a comment", 1, 1, "empty"),
]


@pytest.mark.parametrize("loader", LOADERS)
@pytest.mark.parametrize(("text", "line", "column", "message"), REFUSED, ids=[repr(case[0]) for case in REFUSED])
def test_yaml_features_that_a_flow_does_not_need_are_refused(
    text: str, line: int, column: int, message: str, loader: Any
) -> None:
    error = refusal(text, loader=loader)
    assert message in error.message
    assert error.line == line
    if "not YAML" not in message:  # where YAML itself is broken, the two parsers point at slightly different places
        assert error.column == column


def test_a_problem_without_a_place_is_reported_at_the_beginning() -> None:
    class Vague(yaml.SafeLoader):
        @override
        def check_event(self, *_choices: Any) -> bool:
            raise yaml.MarkedYAMLError(problem="something is wrong")

    error = refusal("a: 1", loader=Vague)
    assert (error.line, error.column) == (1, 1)


def test_bytes_must_be_utf8_and_text_must_have_a_utf8_form() -> None:
    assert "UTF-8" in refusal(b"a: \xff").message
    assert "UTF-8" in refusal("a: b".encode("utf-16")).message
    assert "UTF-8" in refusal("a: \ud800").message


# --- Limits ----------------------------------------------------------------------------------------------------------


def test_size_is_limited_in_bytes_and_has_its_own_error() -> None:
    fits = "a: " + "é" * ((MAX_BYTES - 3) // 2)
    read_document(fits)
    for text in (fits + "éé", (fits + "éé").encode(), "a: " + "b" * MAX_BYTES):
        error = refusal(text)
        assert isinstance(error, FlowTooLargeError)
        assert (error.err_id, error.msg_id) == ("ERR-PYOCO-0016", "MSG-PYOCO-0016")
    with pytest.raises(FlowTooLargeError, match="more than 10 bytes"):
        read_flow_yaml("flow: { graph: a }", name="x", max_bytes=10)


def test_depth_is_limited() -> None:
    read_document("[" * MAX_DEPTH + "]" * MAX_DEPTH)
    assert "levels" in refusal("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1)).message


def test_the_number_of_nodes_is_limited() -> None:
    read_document("[" + "a," * (MAX_NODES - 1) + "]")
    assert "keys and values" in refusal("[" + "a," * MAX_NODES + "]").message


BOMBS = {
    "brackets": "[" * MAX_BYTES,
    "braces": "{a: " * (MAX_BYTES // 4),
    "dashes": "- " * (MAX_BYTES // 2),
    "questions": "? " * (MAX_BYTES // 2),
    "billion laughs": "a: &a [x,x]\n" + "".join(f"b{n}: &b{n} [*a,*a]\n" for n in range(1000)),
    "keys": "".join(f"k{n}: 1\n" for n in range(25_000)),
    "one long word": "a: " + "x" * (MAX_BYTES - 10),
    "one long number": "a: " + "1" * (MAX_BYTES - 10),
    "sexagesimal": "a: 1" + ":1" * (MAX_BYTES // 2 - 10),
    "underscores": "a: 1" + "_" * (MAX_BYTES - 10),
    "a long key": "x" * 1000 + ": 1\n" + "y" * 100_000 + ": 1",
    "line breaks": "a: |\n" + "\n" * (MAX_BYTES - 10),
    "an open quote": 'a: "' + "x\n" * (MAX_BYTES // 2 - 10),
    "comments": "#\n" * (MAX_BYTES // 2),
    "documents": "---\n" * (MAX_BYTES // 4),
}


@pytest.mark.parametrize("loader", LOADERS)
@pytest.mark.parametrize("text", BOMBS.values(), ids=BOMBS)
def test_a_yaml_bomb_is_refused_quickly(text: str, loader: Any) -> None:
    started = time.process_time()
    try:
        read_document(text[:MAX_BYTES], loader=loader)
    except FlowSyntaxError as error:
        assert len(str(error)) < 400  # noqa: PT017 some are harmless and are read
    assert time.process_time() - started < PATIENCE


def _flow(graph: str, rest: str = "") -> str:
    return f"flow:\n  graph: |\n    {graph}\n{rest}"


GRAPH_BOMBS = {
    "steps": _flow("a >> " * 25_000 + "a"),
    "arguments": _flow("repeat(" + "a=1," * 32_000 + "count=1){a}"),
    "semicolons": _flow("switch(on=x){" + ";" * 130_000 + "}"),
    "braces": _flow("{" * 130_000),
    "blocks": _flow("repeat(count=1){" * 8_000),
    "parentheses": _flow("(" * 130_000),
    "quotes": _flow("switch(on=x){ a: '" + "\\" * 130_000),
    "pipes doubling": _flow(
        "pipe(p0)",
        "pipes:\n" + "".join(f"  p{n}: pipe(p{n + 1}) >> pipe(p{n + 1})\n" for n in range(100)) + "  p100: a",
    ),
    "pipes in a long chain": _flow("pipe(p0)", "pipes:\n" + "".join(f"  p{n}: pipe(p{n + 1})\n" for n in range(3000))),
    "many pipes that fit": _flow(
        " >> ".join(["pipe(p0)"] * 4000),
        "pipes:\n" + "".join(f"  p{n}: pipe(p{n + 1})\n" for n in range(100)) + "  p100: a",
    ),
    "an unknown pipe among many": _flow("pipe(q)", "pipes:\n" + "".join(f"  p{n}: a\n" for n in range(4000))),
}


@pytest.mark.parametrize("text", GRAPH_BOMBS.values(), ids=GRAPH_BOMBS)
def test_a_graph_bomb_is_refused_quickly(text: str) -> None:
    started = time.process_time()
    try:
        read_flow_yaml(text, name="bomb")
    except FlowSyntaxError as error:
        assert len(str(error)) < 400  # noqa: PT017 some are harmless and are read
    assert time.process_time() - started < PATIENCE
