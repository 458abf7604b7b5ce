"""Redrives ended runs: a new run repeats what failed, keeps what succeeded, and never writes to the old run's log.

The new log begins with one commit that has everything the new run keeps; it is the acceptance of the run. If it is too
large for one message it is split, and EXECUTION_CREATED says how many events belong to it (``copied``): a log that has
fewer was left by a process that died, and its run is never driven.
"""

import asyncio
import contextlib
import hashlib
import uuid
from collections.abc import Sequence
from typing import Any, ClassVar, Final, NamedTuple

import msgspec

from pyoco_server.app.ports import (
    Clock,
    EventLog,
    LogConflictError,
    NewId,
    OutputStore,
    TooLargeError,
    UnavailableError,
)
from pyoco_server.app.runs.redrive_events import RedrivenRun, RedrivePlan
from pyoco_server.app.runs.redrive_plan import COPIED, Choice, Cut, OldRun, is_half_copied
from pyoco_server.app.runs.run_log import OpenRun, RunLog, RunNotFoundError
from pyoco_server.app.runs.submit import IdempotencyKeyError, Quota
from pyoco_server.app.runtime.outputs import STORED, is_stored, stored_place
from pyoco_server.app.snapshots.projection import REDRIVE
from pyoco_server.app.snapshots.status import was_retracted
from pyoco_server.core import Actor, Event, graph_from_log, handle, initial_state
from pyoco_server.core.commands import CreateExecution
from pyoco_server.core.json_codec import JsonObject
from pyoco_server.core.payloads import NodeProgressReported
from pyoco_server.errors import InvalidInputError, PyocoServerError
from pyoco_server.values.codec import carried, received

_NAMESPACE: Final = uuid.UUID("0c2f7c55-8e1c-4d35-9c5e-4a1f0a8de6b7")
_TRIES: Final = 16


class NotRedrivableError(PyocoServerError):
    """The run has not ended, or no worker of the platform drove it."""

    err_id: ClassVar[str | None] = "ERR-PYOCO-0103"
    msg_id: ClassVar[str | None] = "MSG-PYOCO-0103"


class RedriveRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What of an ended run is to be repeated."""

    cut: Cut = "failed"
    params: JsonObject = {}
    """Parameters that replace those of the old run."""
    tag: str | None = None
    ask_again: tuple[str, ...] = ()
    """Waits that are asked again although they were answered."""
    reason: str | None = None


class NewRun(NamedTuple):
    """A redriven run that is about to begin."""

    begun: RedrivenRun
    copies: Sequence[str]
    """What was stored for it beside its log."""

    @property
    def run_id(self) -> str:
        """The id of the new run."""
        return self.begun.events[0].execution_id


class Redriver:
    """Plans and begins redrives, for the gateway and for the engine."""

    def __init__(self, *, log: EventLog, outputs: OutputStore, clock: Clock, new_id: NewId) -> None:
        self._log = log
        self._outputs = outputs
        self._clock = clock
        self._new_id = new_id

    def plan(self, old_events: Sequence[Event], request: RedriveRequest, actor: Actor) -> RedrivePlan:
        """Return what a redrive would do; nothing is stored. NotRedrivableError; InvalidInputError for a wrong name."""
        old = _ended(old_events)
        return self._begun(old, Choice(old, request.cut, request.ask_again), request, actor, self._new_id(), {}).plan()

    async def prepare(
        self, old_events: Sequence[Event], request: RedriveRequest, actor: Actor, run_id: str, **who: str | None
    ) -> NewRun:
        """Copy what the new run keeps beside its log, and return how the log begins.

        ``who`` replaces fields of the platform's part of the input, such as ``api_key_id``.
        """
        old = _ended(old_events)
        choice, names = await self._copied(old, request, run_id)
        return NewRun(self._begun(old, choice, request, actor, run_id, names, **who), [*names.values()])

    async def begin(self, new: NewRun) -> tuple[list[Event], int]:
        """Append the first events, in one message or in several; return them and their position.

        LogConflictError if the log has begun.
        """
        events = new.begun.events
        try:
            return events, await self._log.append(new.run_id, events, after=0, quiet=True)
        except TooLargeError:
            if len(events) == 1:
                raise
        events = [_with_count(events[0], len(events)), *events[1:]]
        return events, await self._append_in_parts(new.run_id, events)

    async def discard(self, new: NewRun) -> None:
        """Remove what was stored for a run that did not begin."""
        for name in new.copies:
            await self._outputs.delete(name)

    def _begun(
        self,
        old: OldRun,
        choice: Choice,
        request: RedriveRequest,
        actor: Actor,
        run_id: str,
        names: dict[str, str],
        **who: str | None,
    ) -> RedrivenRun:
        now = self._clock.now()
        create = CreateExecution(
            execution_id=run_id,
            actor=actor,
            graph_id=old.state.graph_id or "",
            input=_input(old, request, submitted_at=now.timestamp(), **who),
            extra={REDRIVE: _about(old, request)},
        )
        [created] = handle(initial_state(run_id), create, now=now, new_id=self._new_id)

        def renamed(output: JsonObject | None) -> JsonObject | None:
            return output if output is None else _renamed(output, names)

        return RedrivenRun(old, choice, created, now=now, new_id=self._new_id, output=renamed)

    def is_same(self, old_events: Sequence[Event], request: RedriveRequest, created: Event) -> bool:
        """Return whether an EXECUTION_CREATED belongs to this request, from any sender and at any time."""
        old, payload = OldRun(old_events), created.payload
        about = {name: value for name, value in payload.extra.get(REDRIVE, {}).items() if name != COPIED}
        given = dict(getattr(payload, "input", None) or {})
        said = given.get("run")
        sent = {name: said.get(name) for name in ("submitted_at", "api_key_id")} if isinstance(said, dict) else {}
        return about == _about(old, request) and given == _input(old, request, **sent)

    async def _append_in_parts(self, run_id: str, events: list[Event]) -> int:
        position, done, size = 0, 0, len(events) // 2
        while done < len(events):
            try:
                position = await self._log.append(run_id, events[done : done + size], after=position, quiet=True)
            except TooLargeError:
                if size == 1:
                    raise
                size //= 2
            except LogConflictError as error:
                if not done:
                    raise
                raise UnavailableError("another request has closed the copy meanwhile; try again") from error
            else:
                done += size
        return position

    # --- Outputs beside the log --------------------------------------------------------------------------------------

    async def _copied(self, old: OldRun, request: RedriveRequest, run_id: str) -> tuple[Choice, dict[str, str]]:
        """Copy what the kept nodes stored beside the log; a node whose output is missing runs again."""
        names: dict[str, str] = {}
        lost: set[str] = set()
        while True:
            choice = Choice(old, request.cut, request.ask_again, lost)
            missing = set[str]()
            for node_id, output in _stored_of(old, choice):
                place = stored_place(old.run_id, output)
                if place is None:
                    missing.add(node_id)
                elif place.name not in names:
                    data = await self._outputs.get(place.name)
                    if data is None or hashlib.sha256(data).hexdigest() != place.sha256:
                        missing.add(node_id)
                        continue
                    name = f"{run_id}/{self._new_id()}"
                    await self._outputs.put(name, data)
                    names[place.name] = name
            if missing <= lost:
                return choice, names
            lost |= missing


class RunRedrives:
    """Redrives runs of the platform: the new run gets a snapshot and a job, and a worker drives it like any other."""

    def __init__(self, run_log: RunLog, redriver: Redriver, new_id: NewId, *, quota: Quota | None = None) -> None:
        """``quota`` is that of the tenant whose runs are redriven; without it, there is none."""
        self._quota = quota
        self._run_log = run_log
        self._redriver = redriver
        self._new_id = new_id

    async def plan(self, run_id: str, request: RedriveRequest, actor: Actor) -> RedrivePlan:
        """Return what a redrive would do; nothing is stored."""
        return self._redriver.plan(await self._old(run_id), request, actor)

    async def redrive(
        self,
        run_id: str,
        request: RedriveRequest,
        actor: Actor,
        *,
        key: str | None,
        api_key_id: str | None,
        tenant_id: str | None = None,
    ) -> tuple[JsonObject, RedrivePlan]:
        """Redrive a run and return the first snapshot of the new one; with a key, the same one for the same request.

        RunNotFoundError, NotRedrivableError, IdempotencyKeyError, InvalidInputError for a wrong name, or
        QuotaReachedError.
        """
        async with contextlib.nullcontext() if self._quota is None else self._quota.submission():
            return await self._redrive(run_id, request, actor, key=key, api_key_id=api_key_id, tenant_id=tenant_id)

    async def _redrive(
        self,
        run_id: str,
        request: RedriveRequest,
        actor: Actor,
        *,
        key: str | None,
        api_key_id: str | None,
        tenant_id: str | None,
    ) -> tuple[JsonObject, RedrivePlan]:
        old = await self._old(run_id)
        for generation in range(_TRIES):
            name = f"{tenant_id or ''}\n{run_id}\n{generation}\n{key}"
            new_id = self._new_id() if key is None else str(uuid.uuid5(_NAMESPACE, name))
            new = await self._redriver.prepare(old, request, actor, new_id, api_key_id=api_key_id)
            try:
                events, position = await self._redriver.begin(new)
            except LogConflictError as error:
                await self._redriver.discard(new)
                if key is None:
                    raise
                found = await self._found(new_id, error)
                if was_retracted(found.execution.state):
                    continue
                if is_half_copied(found.events):  # its process died, or is slower than this request, and gives up
                    await self._run_log.retract(new_id, actor)
                    continue
                if not self._redriver.is_same(old, request, found.events[0]):
                    raise IdempotencyKeyError(
                        f"Idempotency-Key '{key or '':.80}' was used for another request"
                    ) from None
                return found.snapshot(), self._redriver.plan(old, request, actor)
            except (Exception, asyncio.CancelledError):
                if key is None:  # with a key, the same request again finds the outcome
                    await asyncio.shield(self._retracted(new))
                raise
            return await self._announced(new.run_id, events, position), new.begun.plan()
        raise IdempotencyKeyError(f"Idempotency-Key '{key or '':.80}' was tried {_TRIES} times in vain; use a new one")

    async def _found(self, run_id: str, conflict: LogConflictError) -> OpenRun:
        try:
            return await self._run_log.open(run_id)
        except RunNotFoundError:
            text = "the log has the same request already, and cannot be read; try again"
            raise UnavailableError(text) from conflict

    async def _old(self, run_id: str) -> Sequence[Event]:
        run = await self._run_log.open(run_id)
        if was_retracted(run.execution.state):
            raise RunNotFoundError(run_id)
        if run.projection.is_driven_outside:
            raise NotRedrivableError(f"run '{run_id}' was driven by a client, not by workers: create a new execution")
        return run.events

    async def _retracted(self, new: NewRun) -> None:
        """Close the log of a run whose creation has an unknown outcome, or remove what was stored for it."""
        if await self._run_log.retract_creation(new.begun.events[0], new.begun.graph):
            await self._redriver.discard(new)

    async def _announced(self, run_id: str, events: Sequence[Event], position: int) -> JsonObject:
        """Write the snapshot and queue the job; the reconciler does what fails here, as the log has the run."""
        run = self._run_log.new(run_id, graph_from_log(events))
        run.execution.begin_at(events, position)
        await self._run_log.update_snapshot(run)
        if not run.execution.state.is_terminal:
            await self._run_log.wake_or_leave_to_reconciler(run)
        return run.snapshot()


def cut_of(given: str | Sequence[str]) -> Cut:
    """Return where to begin, from ``failed``, ``start``, or names of nodes and tasks."""
    if isinstance(given, str):
        return "failed" if given == "failed" else "start" if given == "start" else (given,)
    return tuple(given)


def _ended(events: Sequence[Event]) -> OldRun:
    old = OldRun(events)
    if not old.state.is_terminal:
        raise NotRedrivableError(f"run '{old.run_id}' has not ended; cancel it first, or wait for its end")
    return old


def _about(old: OldRun, request: RedriveRequest) -> JsonObject:
    before = old.events[0].payload.extra.get(REDRIVE)
    earlier = before if isinstance(before, dict) else {}
    number, root = earlier.get("try"), earlier.get("root")
    about: JsonObject = {
        "of": old.run_id,
        "root": root if isinstance(root, str) else old.run_id,
        "try": number + 1 if isinstance(number, int) else 2,
        "from": request.cut if isinstance(request.cut, str) else list(request.cut),
    }
    return about if request.reason is None else {**about, "reason": request.reason}


def _input(old: OldRun, request: RedriveRequest, **platform: Any) -> JsonObject:  # noqa: ANN401 any JSON
    given = dict(old.state.input or {})
    if request.params:
        params = received("params", given)
        if not isinstance(params, dict):
            raise InvalidInputError("params: the run has none that could be changed")
        given.pop("params_kind", None)
        given |= carried("params", {**params, **request.params})
    said = given.get("run")
    if isinstance(said, dict):
        tag = {} if request.tag is None else {"tag": request.tag}
        given["run"] = {name: value for name, value in {**said, **platform, **tag}.items() if value is not None}
    return given


def _with_count(created: Event, count: int) -> Event:
    about = {**created.payload.extra[REDRIVE], COPIED: count}
    payload = msgspec.structs.replace(created.payload, extra={**created.payload.extra, REDRIVE: about})
    return msgspec.structs.replace(created, payload=payload)


def _stored_of(old: OldRun, choice: Choice) -> list[tuple[str, JsonObject]]:
    """Return what is stored beside the log of nodes that are kept, and of decisions of blocks."""
    found: list[tuple[str, JsonObject]] = []
    for node_id in old.created:
        output = old.node(node_id).output
        if choice.is_kept(node_id) and output is not None and is_stored(output):
            found.append((node_id, output))
    for event in old.events:
        match event.payload:
            case NodeProgressReported(node_id=block, metrics={"decision": dict() as decided}):
                stays = choice.is_kept(block) or block in choice.open
                if stays and is_stored(decided):
                    found.append((block, decided))
            case _:
                pass
    return found


def _renamed(output: JsonObject, names: dict[str, str]) -> JsonObject:
    """Return the output with the new place of what it stored; its signature is over the first place."""
    stored = output.get(STORED)
    if not isinstance(stored, dict) or stored.get("name") not in names:
        return output
    first = stored.get("signed_as", stored["name"])
    return {**output, STORED: {**stored, "name": names[stored["name"]], "signed_as": first}}
