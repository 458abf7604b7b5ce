"""What a task returned, as the log keeps it: with its value and its type, in the way that people can read best.

Plain JSON is kept as it is (``{"value": …}``). What JSON lacks is written as tagged JSON (``values.codec``), what no
tag covers is pickled, and what cannot even be pickled is *lost*: only the process that made it has it. The field
``output_kind`` says which. Large values and all pickles are objects beside the log, which then says where (``stored``).

A pickle runs code when it is loaded. It is signed with a key that only workers have, together with the place it belongs
to, and loaded only when a task reads it. So is tagged JSON that names classes, since their modules are imported. To
write what no tag of a built-in type covers runs code of users, too: it is written in a thread.
"""

import asyncio
import functools
import hashlib
import hmac
import logging
import pickle
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple

import msgspec

from pyoco_server.app.ports import OutputStore
from pyoco_server.core.json_codec import JsonObject
from pyoco_server.errors import InvalidInputError
from pyoco_server.texts import shortened
from pyoco_server.values.codec import KIND, OutputKind, TaggedValue, as_json, as_tagged, fresh, from_tagged, has_tags
from pyoco_server.values.errors import USER_CODE_ERRORS, ClassNamedError, ValueCodecError, text_of
from pyoco_server.values.lazy import Deferred, LostValue, PickledValue

_log = logging.getLogger(__name__)

VALUE: Final = "value"
TEXT_ONLY: Final = "repr"
STORED: Final = "stored"
REASON: Final = "reason"
LONGEST_TEXT: Final = 2_000
INLINE_MAX_BYTES: Final = 65_536
_PICKLE_PROTOCOL: Final = 5
"""What every Python that we support reads."""
NO_PLACE: Final = "the log does not say where it is stored"
_NO_KEY: Final = "no tag covers it, and a worker without PYOCO_RESULT_KEY neither stores nor loads pickled values"


class ValueOwner(NamedTuple):
    """What a value belongs to: the output of a node, or what a block decided about ``key``."""

    run_id: str
    node_id: str
    task: str | None = None
    key: str | None = None

    def lost(self, reason: str) -> LostValue:
        """Stands for the value if there is none."""
        if self.key is not None:
            return LostValue(f"what block '{self.node_id}' decided about '{self.key}'", reason)
        name = self.task or self.node_id
        where = "" if self.node_id == name else f" (node '{self.node_id}')"
        return LostValue(f"the result of task '{name}'{where}", reason, task=name, node_id=self.node_id)


class Stored(msgspec.Struct, frozen=True):
    """What the log says of an output that is kept beside it."""

    name: str
    sha256: str
    hmac: str = ""
    signed_as: str = ""
    """The first name of the object, if a redrive copied it: its signature is over that name."""


Aside = Callable[[Callable[[], "_Form"]], Awaitable["_Form"]]
"""Calls code of users where it can neither block nor end the event loop."""


class _Form(NamedTuple):
    """A value as it is to be kept: what the log says besides its value or place, and its bytes unless it is lost."""

    said: JsonObject
    data: bytes | None = None
    copy: Any = None


def _plain_form(value: Any) -> _Form | None:  # noqa: ANN401 any value
    """Return the form of a value of Python's own types; None for any other. Runs no code of users."""
    plain = as_json(value)
    if plain is not None:
        return _Form({}, *plain)
    tagged = as_tagged(value, classes=False)
    return None if tagged is None else _tagged_form(*tagged)


def _tagged_form(data: bytes, copy: Any) -> _Form:  # noqa: ANN401 any JSON
    return _Form({KIND: OutputKind.TAGGED.value} if has_tags(copy) else {}, data, copy)


def _users_form(value: Any, *, is_signed: bool) -> _Form:  # noqa: ANN401 any value
    """Return the form of any value; runs code of users."""
    tagged = as_tagged(value)
    if tagged is not None:
        return _tagged_form(*tagged)
    shown = {TEXT_ONLY: _shown(value)}
    if not is_signed:
        return _Form({KIND: OutputKind.LOST.value, **shown, REASON: _NO_KEY})
    try:
        return _Form({KIND: OutputKind.PICKLE.value, **shown}, pickle.dumps(value, _PICKLE_PROTOCOL))
    except USER_CODE_ERRORS as error:
        reason = shortened(f"it cannot be stored: {type(error).__name__}: {text_of(error)}", LONGEST_TEXT)
        return _Form({KIND: OutputKind.LOST.value, **shown, REASON: reason})


class Outputs:
    """Writes outputs and reads them back."""

    def __init__(
        self, store: OutputStore, *, inline_max_bytes: int = INLINE_MAX_BYTES, key: bytes | None = None
    ) -> None:
        """``key`` signs pickles; without one, values that need pickling are lost."""
        self._store = store
        self._inline_max_bytes = inline_max_bytes
        self._key = key

    async def written(
        self,
        owner: ValueOwner,
        new_name: Callable[[], str],
        value: Any,  # noqa: ANN401 any value
        aside: Aside = asyncio.to_thread,
    ) -> JsonObject:
        """Return the object NODE_SUCCEEDED carries; what is kept beside the log is stored under a new name.

        ``new_name`` makes names that begin with the id of the run; ``aside`` runs code of users, in a thread.
        """
        form = _plain_form(value) or await aside(functools.partial(_users_form, value, is_signed=self._key is not None))
        if form.data is None:
            return form.said
        kind = kind_of({STORED: "", **form.said})
        if kind is not OutputKind.PICKLE and len(form.data) <= self._inline_max_bytes:
            return {VALUE: form.copy, **form.said}
        name = new_name()
        await self._store.put(name, form.data)
        stored = _described(name, form.data)
        if kind is OutputKind.PICKLE:
            stored["hmac"] = self._signature(owner, name, form.data)
        return {STORED: stored, **form.said}

    def _signature(self, owner: ValueOwner, name: str, data: bytes) -> str:
        """Over the data and the place it belongs to, so that an object is worth nothing at another node or run."""
        place = msgspec.json.encode([name, owner.node_id, owner.key])
        return hmac.new(self._key or b"", b"%d:%b%b" % (len(place), place, data), hashlib.sha256).hexdigest()

    async def forget(self, output: JsonObject) -> None:
        """Remove what was stored for an output that did not come into the log."""
        if STORED in output:
            await self._store.delete(output[STORED]["name"])

    async def read(self, owner: ValueOwner, output: JsonObject | None) -> Any:  # noqa: ANN401 any value
        """Return the value, or the deferred value that says why there is none (yet)."""
        if not is_stored(output):
            return inline_value(owner, output)
        said = stored_place(owner.run_id, output or {})
        if said is None:
            return owner.lost(NO_PLACE)
        try:
            found = await self._store.get(said.name)
        except InvalidInputError:  # a name nothing can be kept under
            found = None
        if found is None or hashlib.sha256(found).hexdigest() != said.sha256:
            _log.warning(
                "stored output '%s' is missing or damaged",
                said.name,
                extra={"action": "output_lost", "run_id": owner.run_id},
            )
            return owner.lost(damaged(said))
        if kind_of(output) is OutputKind.PICKLE:
            return self._verified(owner, said, found)
        return _decoded(owner, msgspec.json.decode(found), kind_of(output))

    def _verified(self, owner: ValueOwner, said: Stored, data: bytes) -> Deferred:
        if self._key is None:
            return owner.lost("it is pickled, and this worker has no PYOCO_RESULT_KEY")
        if not hmac.compare_digest(
            self._signature(owner, said.signed_as or said.name, data).encode(), said.hmac.encode()
        ):
            _log.warning(
                "the signature of stored output '%s' is not valid: it is not loaded",
                said.name,
                extra={"action": "output_forged", "run_id": owner.run_id},
            )
            return owner.lost("its signature is not valid: it was made with another PYOCO_RESULT_KEY, or forged")
        return PickledValue(data, owner.lost(""))


def kind_of(output: JsonObject | None) -> OutputKind:
    """How an output is kept; one that the log has no value of is lost, and so is one of an unknown kind."""
    if output is None:
        return OutputKind.LOST
    said = output.get(KIND, OutputKind.JSON.value if VALUE in output or STORED in output else OutputKind.LOST.value)
    try:
        return OutputKind(said)
    except ValueError:
        return OutputKind.LOST


def is_stored(output: JsonObject | None) -> bool:
    """Is the value kept beside the log?"""
    return output is not None and VALUE not in output and STORED in output and kind_of(output) is not OutputKind.LOST


def bytes_of(output: JsonObject | None) -> int:
    """Return how many bytes a result takes in the log and beside it."""
    if output is None:
        return 0
    stored = output.get(STORED)
    beside = stored.get("bytes") if isinstance(stored, dict) else None
    return len(msgspec.json.encode(output)) + (max(beside, 0) if isinstance(beside, int) else 0)


def inline_value(owner: ValueOwner, output: JsonObject | None) -> Any:  # noqa: ANN401 any value
    """Return the value that the log itself holds, or the deferred value that says why there is none."""
    kind = kind_of(output)
    if output is not None and VALUE in output and kind in {OutputKind.JSON, OutputKind.TAGGED}:
        return _decoded(owner, output[VALUE] if kind is OutputKind.TAGGED else fresh(output[VALUE]), kind)
    return owner.lost(why_lost(output))


def why_lost(output: JsonObject | None) -> str:
    """Say why the log has no value for an output whose kind is lost."""
    if output is None:
        return "it was recorded without an output"
    if isinstance(reason := output.get(REASON), str):
        return reason
    if TEXT_ONLY in output:
        return f"the log has only its text, {output[TEXT_ONLY]!s:.80}"
    return "its output was recorded without a 'value'"


def _decoded(owner: ValueOwner, data: Any, kind: OutputKind) -> Any:  # noqa: ANN401
    """Return the value of JSON; one whose tags name classes, which imports their modules, when it is read."""
    if kind is not OutputKind.TAGGED:
        return data
    try:
        return from_tagged(data, classes=False)
    except ClassNamedError:
        return TaggedValue(data, owner.lost(""))
    except ValueCodecError as error:
        return owner.lost(f"it cannot be read here: {error}")


def stored_place(run_id: str, output: JsonObject) -> Stored | None:
    """Return where an output of this run is kept; None if the log does not say so, or names a place of another run.

    A node may have been ended from outside, with any output.
    """
    try:
        said = msgspec.convert(output.get(STORED), Stored)
    except msgspec.ValidationError:
        return None
    return said if said.name.startswith(f"{run_id}/") else None


def damaged(said: Stored) -> str:
    """Say that the object store does not have what the log recorded."""
    return f"the stored output '{said.name}' is missing or damaged"


def _described(name: str, data: bytes) -> JsonObject:
    return {"name": name, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def _shown(value: Any) -> str:  # noqa: ANN401 whatever a task returned
    try:
        return shortened(repr(value), LONGEST_TEXT)
    except USER_CODE_ERRORS:  # a value that cannot be shown is still a value
        return f"a {type(value).__name__} that cannot be shown"
