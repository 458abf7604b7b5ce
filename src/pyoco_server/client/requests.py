"""Every request the client can send, one function each."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, TypedDict

import httpx
from typing_extensions import Unpack

from pyoco_server.client.sans_io import Call, Sent, any_json, as_array, as_bytes, as_object, as_text, field, segment
from pyoco_server.core.json_codec import JsonObject
from pyoco_server.errors import InvalidInputError
from pyoco_server.values.codec import carried

Include = str | Sequence[str]
"""``"records"``, ``"full"`` or ``"all"``; one of them, or several."""
Objects = list[JsonObject]
Source = str | os.PathLike[str]
WHOLE: Final = "full"


class Filters(TypedDict, total=False):
    """Filters of the list of runs."""

    status: str | None
    flow: str | None
    tag: str | None
    updated_after: float | None
    submitted_after: float | None
    cursor: str | None
    workflow_yaml_sha256: str | None
    held: bool | None
    limit: int | None
    include: Include


class RunPage(NamedTuple):
    """A page of runs, and the cursor of the next one; None on the last page."""

    items: list[JsonObject]
    next_cursor: str | None


class EventPage(NamedTuple):
    """A page of events, the version after them, and where the next page begins; None at the end of the log."""

    events: list[JsonObject]
    version: int
    next_after: int | None
    notes: tuple[str, ...] = ()
    """Where the log is inconsistent; empty for every log that this system wrote."""


# --- Submitting ------------------------------------------------------------------------------------------------------


def submission(
    flow_name: str,
    params: Mapping[str, Any] | None = None,
    *,
    tag: str | None = None,
    tags: Sequence[str] | None = None,
    idempotency_key: str | None = None,
) -> Call[JsonObject]:
    """Submit a run; the result is the whole answer."""
    body: JsonObject = {"flow_name": flow_name, **carried("params", dict(params or {}))}
    body |= {"tag": tag} if tag is not None else {}
    body |= {"tags": list(tags)} if tags is not None else {}
    headers = {"Idempotency-Key": _header(idempotency_key)} if idempotency_key is not None else {}
    return Call(method="POST", path="/runs", json=body, headers=headers, read=as_object)


def submit(
    flow_name: str,
    params: Mapping[str, Any] | None = None,
    *,
    tag: str | None = None,
    tags: Sequence[str] | None = None,
    idempotency_key: str | None = None,
) -> Sent[str]:
    """Submit a run and return its id.

    With an idempotency key, the same submission again, by any client, returns the same run; only then is it repeated if
    the connection breaks.
    """
    call = submission(flow_name, params, tag=tag, tags=tags, idempotency_key=idempotency_key)
    return Sent(_giving_run_id(call))


def yaml_submission(workflow: Source, flow_name: str, tag: str | None = None) -> Call[JsonObject]:
    """Submit a flow.yaml; the result is the whole answer."""
    form = {"flow_name": flow_name} | ({"tag": tag} if tag is not None else {})
    content = workflow.encode() if isinstance(workflow, str) else Path(workflow).read_bytes()
    files = {"workflow": ("flow.yaml", content, "application/yaml")}
    return Call(method="POST", path="/runs/yaml", form=form, files=files, read=as_object)


def submit_yaml(workflow: Source, flow_name: str, tag: str | None = None) -> Sent[str]:
    """Submit a run with its flow.yaml and return its id; a ``str`` is the YAML itself, a ``Path`` its file."""
    return Sent(_giving_run_id(yaml_submission(workflow, flow_name, tag)))


# --- Reads -----------------------------------------------------------------------------------------------------------


def health() -> Sent[JsonObject]:
    """Ask whether the gateway runs."""
    return Sent(Call(method="GET", path="/health", read=as_object))


def get(run_id: str, include: Include = ()) -> Sent[JsonObject]:
    """Return the newest snapshot of a run; ``include="records"`` adds its task records."""
    return Sent(snapshot(run_id, include))


def snapshot(run_id: str, include: Include = ()) -> Call[JsonObject]:
    """The newest snapshot of a run."""
    return Call(method="GET", path=_run(run_id), query=_include(include), read=as_object)


def tasks(run_id: str) -> Sent[JsonObject]:
    """The tasks of a run and their records."""
    return Sent(Call(method="GET", path=_run(run_id, "/tasks"), read=as_object))


def list_runs(**filters: Unpack[Filters]) -> Sent[Objects]:
    """The newest runs that match, at most ``limit`` (default 50, at most 200)."""
    return Sent(Call(method="GET", path="/runs", query=_query(filters), read=_runs))


def page(**filters: Unpack[Filters]) -> Sent[RunPage]:
    """Like ``list``, with the cursor of the next page."""
    return Sent(runs_page(**filters))


def runs_page(**filters: Unpack[Filters]) -> Call[RunPage]:
    """One page of runs. The gateway answers with a cursor only if the request has a cursor or ``updated_after``."""
    if filters.get("updated_after") is None and filters.get("cursor") is None:
        filters = {**filters, "updated_after": 0.0}
    return Call(method="GET", path="/runs", query=_query(filters), read=_page)


def watch_stream(run_id: str, *, records: bool, timeout_sec: float, silence_sec: float) -> Call[object]:
    """The run's snapshots as server-sent events."""
    query = [*_include("records" if records else ()), ("timeout_sec", f"{timeout_sec:.3f}")]
    headers = {"Accept": "text/event-stream", "Cache-Control": "no-store"}
    path = _run(run_id, "/watch")
    return Call(method="GET", path=path, query=query, headers=headers, silence_sec=silence_sec, read=any_json)


def events_page(run_id: str, after: int, limit: int) -> Call[EventPage]:
    """A page of a run's log."""
    query = [("after", str(after)), ("limit", str(limit))]
    return Call(method="GET", path=_run(run_id, "/events"), query=query, read=_event_page)


def graph(run_id: str) -> Sent[JsonObject]:
    """The graph of a run; ``notes`` lists where its log is inconsistent, and is left out otherwise."""
    return Sent(Call(method="GET", path=_run(run_id, "/graph"), read=as_object))


def state(run_id: str, at: int | None = None) -> Sent[JsonObject]:
    """The state of a run's execution, now or after so many events."""
    query = [] if at is None else [("at", str(at))]
    return Sent(Call(method="GET", path=_run(run_id, "/state"), query=query, read=as_object))


# --- Commands --------------------------------------------------------------------------------------------------------


def cancel(run_id: str, reason: str | None = None) -> Sent[JsonObject]:
    """Cancel a run; the status of the snapshot is ``CANCELLING``, or the one the run had ended with."""
    body = {} if reason is None else {"reason": reason}
    return Sent(Call(method="POST", path=_run(run_id, "/cancel"), json=body, read=as_object))


def resume(
    run_id: str,
    node: str,
    input: Any = None,  # noqa: A002, ANN401 any value
    *,
    resume_key: str | None = None,
) -> Sent[JsonObject]:
    """Resume a waiting node; ``input`` becomes its result, with its type if it is JSON or of Python's own types.

    With ``resume_key`` the gateway refuses (409) unless the node waits for this key.
    """
    path = node_path(run_id, node, "resume")
    body = carried("input", input) | ({} if resume_key is None else {"resumeKey": resume_key})
    return Sent(Call(method="POST", path=path, json=body, read=as_object))


def archive(run_id: str) -> Sent[JsonObject]:
    """Archive a run that has ended."""
    return Sent(Call(method="POST", path=_run(run_id, "/archive"), read=as_object))


def redriving(
    run_id: str,
    *,
    from_: str | Sequence[str] = "failed",
    params: Mapping[str, Any] | None = None,
    tag: str | None = None,
    ask_again: Sequence[str] = (),
    reason: str | None = None,
    dry_run: bool = False,
    idempotency_key: str | None = None,
) -> Call[JsonObject]:
    """Repeat an ended run as a new one; the result is the whole answer."""
    given = {"tag": tag, "reason": reason, "ask_again": list(ask_again) or None, "dry_run": dry_run or None}
    body: JsonObject = {"from": from_ if isinstance(from_, str) else list(from_), **_present(given)}
    body |= carried("params", dict(params)) if params else {}
    headers = {"Idempotency-Key": _header(idempotency_key)} if idempotency_key is not None else {}
    return Call(method="POST", path=_run(run_id, "/redrive"), json=body, headers=headers, read=as_object)


def redrive(
    run_id: str,
    *,
    from_: str | Sequence[str] = "failed",
    params: Mapping[str, Any] | None = None,
    tag: str | None = None,
    ask_again: Sequence[str] = (),
    reason: str | None = None,
    dry_run: bool = False,
    idempotency_key: str | None = None,
) -> Sent[JsonObject]:
    """Repeat an ended run as a new one: what succeeded is kept, what failed and everything behind it runs again.

    The answer has ``run_id``, ``status``, ``redrive`` and ``plan``; with ``dry_run`` nothing is stored, and the answer
    has only ``plan``. ``from_="start"`` repeats everything; a list of nodes or tasks also repeats those. ``params``
    replace those of the old run, ``ask_again`` names waits whose answers are not kept.
    """
    call = redriving(
        run_id,
        from_=from_,
        params=params,
        tag=tag,
        ask_again=ask_again,
        reason=reason,
        dry_run=dry_run,
        idempotency_key=idempotency_key,
    )
    return Sent(call)


class RedriveFilters(TypedDict, total=False):
    """Which ended runs are redriven; those that failed unless ``status`` is given."""

    status: str | None
    flow: str | None
    tag: str | None
    error_code: str | None
    ended_after: float | None
    ended_before: float | None


def redrive_many(
    *,
    from_: str | Sequence[str] = "failed",
    per_sec: float | None = None,
    limit: int | None = None,
    cursor: str | None = None,
    reason: str | None = None,
    dry_run: bool = False,
    **filters: Unpack[RedriveFilters],
) -> Sent[JsonObject]:
    """Redrive the runs that fit, each once however often this is called; at most ``per_sec``, and ``limit`` (100).

    The answer has ``results``, one for each run, and ``next_cursor``: pass it as ``cursor`` for the next ones.
    """
    given = {"per_sec": per_sec, "limit": limit, "cursor": cursor, "reason": reason, "dry_run": dry_run or None}
    body: JsonObject = {"filter": _present(filters), "from": from_ if isinstance(from_, str) else list(from_)}
    body |= _present(given)
    return Sent(Call(method="POST", path="/runs/redrive", json=body, read=as_object))


# --- Operations ------------------------------------------------------------------------------------------------------


def workers(
    *, scope: str | None = None, state: str | None = None, include_hidden: bool = False, limit: int | None = None
) -> Sent[Objects]:
    """The active workers; with ``scope="all"``, also those that stopped or are gone."""
    query = _given(scope=scope, state=state, include_hidden="true" if include_hidden else None, limit=limit)
    return Sent(Call(method="GET", path="/workers", query=query, read=as_array))


def hide_worker(worker_id: str) -> Sent[JsonObject]:
    """Leave a worker out of the list."""
    return _patch_worker(worker_id, hidden=True)


def show_worker(worker_id: str) -> Sent[JsonObject]:
    """Show a worker in the list again."""
    return _patch_worker(worker_id, hidden=False)


def metrics() -> Sent[str]:
    """Metrics in the format of Prometheus."""
    return Sent(Call(method="GET", path="/metrics", read=as_text))


def dlq(limit: int | None = None) -> Sent[Objects]:
    """Dead letters, newest first: ``sequence``, ``tag`` and ``entry`` of each."""
    return Sent(Call(method="GET", path="/dlq", query=_given(limit=limit), read=as_array))


def dead_letter(sequence: int) -> Sent[JsonObject]:
    """One dead letter."""
    return Sent(Call(method="GET", path=f"/dlq/{int(sequence)}", read=as_object))


# --- Wheels ----------------------------------------------------------------------------------------------------------


def wheels() -> Sent[Objects]:
    """All wheels."""
    return Sent(Call(method="GET", path="/wheels", read=as_array))


def wheel_history(
    *, limit: int | None = None, wheel_name: str | None = None, action: str | None = None
) -> Sent[Objects]:
    """Who uploaded and deleted wheels, newest first; ``action`` is ``"upload"`` or ``"delete"``."""
    query = _given(limit=limit, wheel_name=wheel_name, action=action)
    return Sent(Call(method="GET", path="/wheels/history", query=query, read=as_array))


def download_wheel(name: str) -> Sent[bytes]:
    """The content of a wheel."""
    return Sent(Call(method="GET", path=f"/wheels/{segment('name', name)}", read=as_bytes))


def delete_wheel(name: str) -> Sent[JsonObject]:
    """Delete a wheel."""
    return Sent(Call(method="DELETE", path=f"/wheels/{segment('name', name)}", read=as_object))


# --- Helpers ---------------------------------------------------------------------------------------------------------


def node_path(run_id: str, node: str, rest: str) -> str:
    """Return a path below a node; the id of a node may contain slashes."""
    return _run(run_id, f"/nodes/{segment('node', node, safe='/')}/{rest}")


def _run(run_id: str, rest: str = "") -> str:
    return f"/runs/{segment('run_id', run_id)}{rest}"


def _patch_worker(worker_id: str, *, hidden: bool) -> Sent[JsonObject]:
    path = f"/workers/{segment('worker_id', worker_id)}"
    return Sent(Call(method="PATCH", path=path, json={"hidden": hidden}, read=as_object))


def _giving_run_id(call: Call[JsonObject]) -> Call[str]:
    return call.reading(lambda response: field(response, "run_id", str))


def _include(include: Include) -> list[tuple[str, str]]:
    return [("include", word) for word in ([include] if isinstance(include, str) else include)]


def _present(fields: Mapping[str, Any]) -> JsonObject:
    return {name: value for name, value in fields.items() if value is not None}


def _given(**fields: object) -> list[tuple[str, str]]:
    return [(name, str(value)) for name, value in fields.items() if value is not None]


def _query(filters: Filters) -> list[tuple[str, str]]:
    plain = {name: value for name, value in filters.items() if name not in {"include", "held"}}
    held = [("held", "true")] if filters.get("held") else []
    return [*_given(**plain), *held, *_include(filters.get("include", ()))]


def _header(text: str) -> str:
    if not text or not text.isascii() or not text.isprintable():
        raise InvalidInputError(f"idempotency_key: {text!r:.80} must be printable ASCII, and not empty")
    return text


def _runs(response: httpx.Response) -> Objects:
    """Read either form of the answer: an array, or with a cursor or ``updated_after`` an object around it."""
    return as_array(response) if isinstance(any_json(response), list) else field(response, "items", list)


def _page(response: httpx.Response) -> RunPage:
    found = as_object(response).get("next_cursor")
    return RunPage(field(response, "items", list), found if isinstance(found, str) else None)


def _event_page(response: httpx.Response) -> EventPage:
    following = as_object(response).get("next_after")
    return EventPage(
        field(response, "events", list),
        field(response, "version", int),
        following if isinstance(following, int) else None,
        notes_in(as_object(response)),
    )


def notes_in(answer: JsonObject) -> tuple[str, ...]:
    """Return the ``notes`` of a page of events or of a graph; none if the log is consistent."""
    notes = answer.get("notes")
    return tuple(str(note) for note in notes) if isinstance(notes, list) else ()
