"""Reads and writes golden logs.

A file has one line that says what the case shows, one line for each event (byte for byte as in the log), one line for
each large output that was stored beside the log, and then, for a few moments of the run, the documents that must result
from the events up to there: the state, the snapshot, and at the end also the graph and the results.
"""

import asyncio
import base64
import hashlib
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from pyoco_server.adapters.memory.registries import MemoryOutputStore
from pyoco_server.app.runtime.outputs import Outputs
from pyoco_server.app.runtime.results import results_of
from pyoco_server.app.snapshots.projection import RunProjection
from pyoco_server.core import Event, decode_event, encode_event, fold, graph_from_log, graph_to_dict, state_to_dict
from pyoco_server.values.lazy import Deferred

LOGS: Final = Path(__file__).with_name("logs")
FORMAT: Final = 1
SHOWN_BYTES: Final = 500
"""Results up to this size are in the file, of larger ones only the hash."""


class Recorded(NamedTuple):
    """A recorded run: its log, and the outputs that are stored beside it."""

    events: Sequence[Event]
    stored: Mapping[str, bytes] = {}


class Moment(msgspec.Struct, frozen=True, omit_defaults=True):
    """The documents that must result from the first ``after`` events."""

    after: int
    state: msgspec.Raw
    snapshot: msgspec.Raw
    graph: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    results: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class _Head(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    case: str
    about: str
    format: int


class _Stored(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    stored: str
    zlib: bytes


class Golden(NamedTuple):
    """The content of a file."""

    case: str
    about: str
    lines: Sequence[bytes]
    """The events, as they were recorded."""
    stored: Mapping[str, bytes]
    moments: Sequence[Moment]


def path_of(case: str, folder: Path = LOGS) -> Path:
    """Return the file of a case."""
    return folder / f"{case}.jsonl"


def all_cases(folder: Path = LOGS) -> list[str]:
    """Return all recorded cases."""
    return sorted(path.stem for path in folder.glob("*.jsonl"))


def write(case: str, about: str, recorded: Recorded, folder: Path = LOGS) -> Path:
    """Write a run and its documents to the file of the case."""
    lines = [msgspec.json.encode(_Head(case, about, FORMAT))]
    lines += [encode_event(event) for event in recorded.events]
    lines += [
        msgspec.json.encode({"stored": name, "zlib": base64.b64encode(zlib.compress(body, 9)).decode()})
        for name, body in sorted(recorded.stored.items())
    ]
    lines += [msgspec.json.encode(moment) for moment in moments(recorded.events, recorded.stored)]
    path = path_of(case, folder)
    here = (
        f"{Path(__file__).resolve().parents[2]}/".encode()
    )  # the file must not depend on the directory of the recording
    path.write_bytes(b"\n".join(lines).replace(here, b"") + b"\n")
    return path


def load(case: str, folder: Path = LOGS) -> Golden:
    """Read a case."""
    head, *rest = path_of(case, folder).read_bytes().splitlines()
    about = msgspec.json.decode(head, type=_Head)
    assert (about.case, about.format) == (case, FORMAT)
    stored = [msgspec.json.decode(line, type=_Stored) for line in rest if line.startswith(b'{"stored"')]
    return Golden(
        case,
        about.about,
        [line for line in rest if line.startswith(b'{"eventId"')],
        {output.stored: zlib.decompress(output.zlib) for output in stored},
        [msgspec.json.decode(line, type=Moment) for line in rest if line.startswith(b'{"after"')],
    )


def moments(events: Sequence[Event], stored: Mapping[str, bytes]) -> Iterator[Moment]:
    """Return the documents of a few moments: the first event, three in between, the last."""
    for after in sorted({1, *[max(1, len(events) * quarter // 4) for quarter in (1, 2, 3)], len(events)}):
        yield moment(events, stored, after)


def moment(events: Sequence[Event], stored: Mapping[str, bytes], after: int) -> Moment:
    """Return the documents that result from the first ``after`` events."""
    known = events[:after]
    state = fold(known)
    projection = RunProjection(state.execution_id)
    projection.listen(known, state)
    read = {"state": state_to_dict(state), "snapshot": projection.snapshot(position=after)}
    if after == len(events):
        read |= {"graph": graph_to_dict(graph_from_log(known)), "results": _results(known, stored)}
    return Moment(after, **{name: msgspec.Raw(msgspec.json.encode(document)) for name, document in read.items()})


def decoded(golden: Golden) -> list[Event]:
    """Return the events of a case."""
    return [decode_event(line) for line in golden.lines]


def _results(events: Sequence[Event], stored: Mapping[str, bytes]) -> dict[str, Any]:
    """Return the results a worker has after taking over the run; values the log could not hold are missing."""

    async def read() -> dict[str, Any]:
        store = MemoryOutputStore()
        for name, body in stored.items():
            await store.put(name, body)
        return (await results_of(events, Outputs(store))).raw()

    found = asyncio.run(read()).items()
    return {name: _shown(value) for name, value in sorted(found) if not isinstance(value, Deferred)}


def _shown(value: Any) -> Any:
    encoded = msgspec.json.encode(value)
    if len(encoded) <= SHOWN_BYTES:
        return value
    return {"bytes": len(encoded), "sha256": hashlib.sha256(encoded).hexdigest()}
