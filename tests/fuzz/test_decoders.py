"""Decoders accept an input or say what is wrong with it, at a cost in proportion to its size."""

import base64
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyoco_server.app.ports import Cursor
from pyoco_server.core.commands import COMMANDS
from pyoco_server.gateway.schemas.parameters import encode_cursor
from tests.fuzz.bounds import check, examples
from tests.fuzz.documents import damaged, deep, golden_events, golden_graphs, mutated, values, written
from tests.fuzz.targets import TARGETS, WHEEL_NAME
from tests.golden.cases_flows import YAML
from tests.wheels.building import archive, contents, make_wheel

EVERY_TARGET = pytest.mark.parametrize("name", TARGETS)

COMMAND: dict[str, Any] = {
    "executionId": "run-1",
    "actor": {"kind": "user", "id": "ann"},
    "correlationId": "c",
    "graphId": "g",
    "input": {"x": [1, {"y": None}]},
    "nodeId": "a",
    "attempt": 1,
    "progress": 50.5,
    "waitKey": "k",
    "error": {"code": "E", "message": "m", "detail": {}},
    "requestedBy": {"kind": "user", "id": None},
    "more": {"of": "it"},
}
JOB: dict[str, Any] = {
    "run_id": "7f8a2a4e-6b1c-4b5e-9a63-1f0f4f3f7a11",
    "flow_name": "main",
    "tag": "cpu",
    "tags": ["cpu"],
    "params": {"n": 1},
    "submitted_at": 1_893_456_000.5,
    "log_position": 3,
    "created": {
        "eventId": "e",
        "executionId": "7f8a2a4e-6b1c-4b5e-9a63-1f0f4f3f7a11",
        "type": "EXECUTION_CREATED",
        "occurredAt": "2030-01-01T00:00:00Z",
        "actor": {"kind": "user"},
        "schemaVersion": 1,
    },
    "workflow_yaml": "version: 1",
}
DOCUMENTS: dict[str, list[Any]] = {
    "event": [*golden_events()],
    "command": [{"type": name, **COMMAND} for name in COMMANDS],
    "graph": [*golden_graphs()],
    "job": [JOB],
}
ORIGINALS: dict[str, list[bytes]] = {
    **{name: [written(document) for document in documents] for name, documents in DOCUMENTS.items()},
    "yaml": [YAML.encode(), b"version: 1\nflow:\n  graph: |\n    a >> ( b & c >> d )\n"],
    "cursor": [encode_cursor(Cursor(1_893_456_000.5, "run-1"), tenant).encode() for tenant in (None, "acme")],
    "key": [f"pyoco_k{'0' * 16}_{'a' * 64}".encode(), b"acme-eu", b"a name"],
    "wheel-name": [
        WHEEL_NAME.encode(),
        b"a_b-1.0.post1+x.y-1abc-cp311.cp312-abi3-manylinux_2_17_x86_64.whl",
        b"cpu,linux",
    ],
    "wheel": [make_wheel(), make_wheel(files={"demo/__init__.py": "", "demo/zeros.bin": bytes(50_000)})],
}


@EVERY_TARGET
def test_valid_inputs_are_accepted(name: str) -> None:
    """Otherwise the other tests would only try inputs that the first check refuses."""
    accepted = [check(TARGETS[name], data) for data in ORIGINALS[name]]
    assert any(accepted) or name in {"key", "wheel-name"}, "these are several readers in one"


@EVERY_TARGET
@given(data=st.binary(max_size=300) | deep)
@examples(25)
def test_arbitrary_bytes(name: str, data: bytes) -> None:
    check(TARGETS[name], data)


@pytest.mark.parametrize("name", DOCUMENTS)
@given(value=values)
@examples(40)
def test_arbitrary_json(name: str, value: Any) -> None:
    check(TARGETS[name], written(value))


@pytest.mark.parametrize("name", DOCUMENTS)
@given(data=st.data())
@examples(120)
def test_valid_documents_with_one_change(name: str, data: st.DataObject) -> None:
    check(TARGETS[name], written(data.draw(mutated(DOCUMENTS[name]))))


@EVERY_TARGET
@given(data=st.data())
@examples(60)
def test_valid_texts_with_damage(name: str, data: st.DataObject) -> None:
    check(TARGETS[name], data.draw(damaged(ORIGINALS[name])))


@given(value=values)
@examples(100)
def test_arbitrary_cursors(value: Any) -> None:
    packed = msgspec.msgpack.encode(value) if _has_room(value) else written(value)
    check(TARGETS["cursor"], base64.urlsafe_b64encode(packed).rstrip(b"="))


def _has_room(value: Any) -> bool:
    """Can msgpack hold all numbers in the value?"""
    if isinstance(value, dict):
        return all(map(_has_room, value.values()))
    if isinstance(value, list):
        return all(map(_has_room, value))
    return not isinstance(value, int) or -(2**63) <= value < 2**64


@given(data=st.data())
@examples(60)
def test_wheels_with_damaged_metadata(data: st.DataObject) -> None:
    """The archive is valid; the metadata in it is damaged."""
    files = contents()
    for name in data.draw(st.lists(st.sampled_from(sorted(files)), min_size=1, max_size=2)):
        files[name] = data.draw(damaged([files[name]]))
    check(TARGETS["wheel"], archive(files))


@given(text=st.text(alphabet="ab>&|(){}:;,=#$'\"0123 \n\t-[]*%.switchforeachrepeatuntilpipedefault", max_size=200))
@examples(100)
def test_graphs_of_random_tokens(text: str) -> None:
    lines = "\n".join(f"    {line}" for line in text.splitlines())
    check(TARGETS["yaml"], f"version: 1\nflow:\n  graph: |\n{lines}\n".encode())


@given(text=st.text(alphabet="$ctx.params_env'\"()+-*/%<>=!notandorinTrueFalseNone 0123456789[]{}", max_size=120))
@examples(100)
def test_expressions_of_random_tokens(text: str) -> None:
    quoted = text.replace("'", "''")
    check(TARGETS["yaml"], f"flow:\n  graph: 'repeat(count={{{{ {quoted} }}}}){{ a }}'\n".encode())
