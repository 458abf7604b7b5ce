"""The event envelope: what happened to which execution, who caused it, and when; ``payloads`` holds what happened.

At the end, :func:`order_batch`: the order of events that arrive together (cancel, failure, success, progress).
"""

from collections.abc import Callable, Iterable
from datetime import datetime
from enum import StrEnum, unique
from typing import Annotated, Any, Final, Literal

import msgspec

from pyoco_server.core.json_codec import (
    DecodeError,
    DecodeProblem,
    JsonObject,
    Name,
    Raw,
    as_json,
    parse_object,
    plain,
    read,
    read_extensible,
    timestamp,
)
from pyoco_server.core.payloads import PAYLOADS, Moment, Payload
from pyoco_server.core.transitions import EventType

SCHEMA_VERSION: Final = 1
NewId = Callable[[], object]


@unique
class ActorKind(StrEnum):
    """What kind of party caused an event."""

    SYSTEM = "system"
    USER = "user"
    SCHEDULER = "scheduler"
    EXTERNAL = "external"


class Actor(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True, gc=False):
    """Who caused an event or gave a command."""

    kind: ActorKind
    id: str | None = None


ORCHESTRATOR: Final = Actor(ActorKind.SYSTEM, "orchestrator")


class Event(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A fact: neither it nor its meaning ever changes."""

    event_id: str
    execution_id: str
    occurred_at: datetime
    actor: Actor
    payload: Payload
    correlation_id: str | None = None
    causation_id: str | None = None
    schema_version: int = SCHEMA_VERSION

    @property
    def type(self) -> EventType:
        """Which of the 24 facts this is."""
        return self.payload.type


class _Envelope(msgspec.Struct, kw_only=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True, gc=False):
    """The event's outer shape on the wire; field order is the order written."""

    event_id: Name
    execution_id: Name
    type: str
    occurred_at: Moment
    actor: Actor
    correlation_id: str | None = None
    causation_id: str | None = None
    schema_version: Literal[1]
    version: Annotated[int, msgspec.Meta(ge=1)] | None = None
    """Its position in the log, which a reader of the log may add; it is no part of the fact, so it is read and dropped.
    """
    payload: Annotated[Any, "the payload's own struct when writing, a plain object when reading"]


class Stamp(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What all events of one commit have in common."""

    execution_id: str
    now: datetime
    new_id: NewId
    correlation_id: str | None = None

    def event(self, payload: Payload, actor: Actor, *, causation_id: str | None = None) -> Event:
        """Return ``payload`` as an event with a new id."""
        return Event(
            event_id=str(self.new_id()) or _no_id(),
            execution_id=self.execution_id,
            occurred_at=self.now,
            actor=actor,
            payload=payload,
            correlation_id=self.correlation_id,
            causation_id=causation_id,
        )


def _no_id() -> str:
    raise ValueError("new_id() gave an empty id")


def decode_event(raw: Raw) -> Event:
    """Read one event; a :class:`DecodeError` names the field that is wrong and what is wrong with it."""
    fields = parse_object(raw)
    if "schemaVersion" in fields and fields["schemaVersion"] != SCHEMA_VERSION:
        raise DecodeError(
            DecodeProblem.UNSUPPORTED_SCHEMA_VERSION,
            f"schemaVersion {fields['schemaVersion']!r} is not supported, only {SCHEMA_VERSION}",
            path="$.schemaVersion",
        )
    envelope = read(fields, _Envelope)
    payload_type = PAYLOADS.get(envelope.type)  # type: ignore[call-overload]  # EventType is a str
    if payload_type is None:
        raise DecodeError(
            DecodeProblem.UNKNOWN_TYPE, f"{envelope.type!r:.80} is not one of the 24 event types", path="$.type"
        )
    if not isinstance(envelope.payload, dict):
        raise DecodeError(
            DecodeProblem.ILL_TYPED_FIELD,
            f"expected `object`, got `{type(envelope.payload).__name__}`",
            path="$.payload",
        )
    return Event(
        event_id=envelope.event_id,
        execution_id=envelope.execution_id,
        occurred_at=timestamp(envelope.occurred_at, at="$.occurredAt"),
        actor=envelope.actor,
        payload=read_extensible(envelope.payload, payload_type, at="$.payload"),
        correlation_id=envelope.correlation_id,
        causation_id=envelope.causation_id,
    )


def encode_event(event: Event) -> bytes:
    """Write one event as JSON, field names and times as the specification spells them."""
    return _ENCODER.encode(_envelope(event))


def encode_events(events: Iterable[Event]) -> bytes:
    """Write several events as one JSON array."""
    return _ENCODER.encode([_envelope(event) for event in events])


def event_to_dict(event: Event) -> JsonObject:
    """Return the event as a plain dictionary, as its JSON would be read."""
    return as_json(_envelope(event))


def _envelope(event: Event) -> _Envelope:
    return _Envelope(
        event_id=event.event_id,
        execution_id=event.execution_id,
        type=event.type,
        occurred_at=event.occurred_at,
        actor=event.actor,
        correlation_id=event.correlation_id,
        causation_id=event.causation_id,
        schema_version=1,
        payload=plain(event.payload) if event.payload.extra else event.payload,
    )


_ENCODER: Final = msgspec.json.Encoder()


_CLASSES: Final = (
    # Within a class a request comes before its fulfilment, and a node's end before its execution's.
    (EventType.EXECUTION_CREATED, EventType.NODE_CREATED),
    (
        EventType.EXECUTION_CANCEL_REQUESTED,
        EventType.NODE_CANCEL_REQUESTED,
        EventType.NODE_INTERRUPT_REQUESTED,
        EventType.NODE_CANCELED,
        EventType.EXECUTION_CANCELED,
    ),
    (
        EventType.EXECUTION_FAIL_REQUESTED,
        EventType.NODE_FAIL_REPORTED,
        EventType.NODE_FAILED,
        EventType.EXECUTION_FAILED,
    ),
    (EventType.NODE_SUCCEEDED, EventType.EXECUTION_COMPLETED),
)
PROGRESS_CLASS: Final = len(_CLASSES)
"""All other events are progress and keep the order given."""

BATCH_PLACE: Final = dict.fromkeys(EventType, (PROGRESS_CLASS, 0)) | {
    event_type: (number, place) for number, members in enumerate(_CLASSES) for place, event_type in enumerate(members)
}


def order_batch(events: Iterable[Event]) -> list[Event]:
    """Return the events in the order in which they must be applied; events of equal class keep the order given.

    An event stays together with the events it caused; only a cancel request from outside always begins its own group.
    """
    families: dict[str, list[Event]] = {}
    family_of: dict[str, str] = {}
    for event in events:
        begins = event.type is EventType.EXECUTION_CANCEL_REQUESTED and event.actor != ORCHESTRATOR
        family = event.event_id if begins else family_of.get(event.causation_id or "", event.event_id)
        family_of[event.event_id] = family
        families.setdefault(family, []).append(event)
    ordered = sorted(families.values(), key=lambda family: BATCH_PLACE[family[0].type])
    return [event for family in ordered for event in family]
