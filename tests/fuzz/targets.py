"""All code that reads input of other programs, as functions of bytes."""

import io
from collections.abc import Mapping
from typing import Final

from pyoco_server.app.api_keys.format import checked_key_id, checked_name, checked_tenant, key_id_of
from pyoco_server.app.runs.job import InvalidJobError, decode_job
from pyoco_server.app.wheels.archive import WheelLimits
from pyoco_server.app.wheels.content import check_wheel
from pyoco_server.app.wheels.errors import WheelRefusedError, WheelTooLargeError
from pyoco_server.app.wheels.names import parse_name, read_tags
from pyoco_server.core import (
    DecodeError,
    GraphError,
    decode_command,
    decode_event,
    encode_command,
    encode_event,
    graph_from_dict,
    graph_to_dict,
)
from pyoco_server.errors import InvalidInputError
from pyoco_server.flows.errors import FlowError
from pyoco_server.flows.plan import plan
from pyoco_server.flows.yaml.document import read_flow_yaml
from pyoco_server.gateway.errors import ListQueryError
from pyoco_server.gateway.schemas.parameters import decode_cursor
from tests.fuzz.bounds import Target

LIMITS: Final = WheelLimits(max_bytes=1_000_000, ratio_from_bytes=100_000)
WHEEL_NAME: Final = "demo-1.0-py3-none-any.whl"


def _event(data: bytes) -> None:
    event = decode_event(data)
    assert decode_event(encode_event(event)) == event


def _command(data: bytes) -> None:
    command = decode_command(data)
    assert decode_command(encode_command(command)) == command


def _graph(data: bytes) -> None:
    graph = graph_from_dict(data)
    assert graph_from_dict(graph_to_dict(graph)) == graph


def _yaml(data: bytes) -> None:
    plan(read_flow_yaml(data, name="fuzzed"))


def _job(data: bytes) -> None:
    job = decode_job(data)
    job.input()
    job.creation()


def _cursor(data: bytes) -> None:
    decode_cursor(data.decode("latin-1"), None)


def _key(data: bytes) -> None:
    text = data.decode("latin-1")
    assert key_id_of(data) is None or checked_key_id(str(key_id_of(data)))
    for checked in (checked_key_id, checked_name, checked_tenant):
        assert checked(text) == text


def _wheel_name(data: bytes) -> None:
    text = data.decode("latin-1")
    read_tags(text)
    parse_name(text)


def _wheel(data: bytes) -> None:
    check_wheel(io.BytesIO(data), WHEEL_NAME, LIMITS)


TARGETS: Final[Mapping[str, Target]] = {
    "event": Target(_event, (DecodeError,)),
    "command": Target(_command, (DecodeError,)),
    "graph": Target(_graph, (DecodeError, GraphError)),
    "yaml": Target(_yaml, (FlowError,)),
    "job": Target(_job, (InvalidJobError,)),
    "cursor": Target(_cursor, (ListQueryError,)),
    "key": Target(_key, (InvalidInputError,)),
    "wheel-name": Target(_wheel_name, (InvalidInputError, WheelRefusedError)),
    "wheel": Target(_wheel, (WheelRefusedError, WheelTooLargeError)),
}
