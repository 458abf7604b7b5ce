"""``PyocoHttpClient`` of 0.5.1, over our client: the same methods, answers and exceptions."""

import contextlib
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any

import httpx
from typing_extensions import deprecated

from pyoco_server.client import ApiError, Client, GatewayUnreachableError
from pyoco_server.client import requests as calls
from pyoco_server.client.requests import Filters
from pyoco_server.client.sans_io import Sent
from pyoco_server.core.json_codec import JsonObject

CANCEL_WAIT_SEC = 30


@deprecated("PyocoHttpClient is kept for programs written for 0.5.1: use pyoco_server.Client or AsyncClient")
class PyocoHttpClient:
    """Talks to a gateway; close it at the end.

    An answer that is an error raises ``httpx.HTTPStatusError``, no answer ``httpx.RequestError``, as in 0.5.1.
    """

    def __init__(self, base_url: str, *, api_key: str | None = None, api_key_header: str = "X-API-Key") -> None:
        self._client = Client(base_url, api_key=api_key or "", api_key_header=api_key_header)

    def close(self) -> None:
        """Close all connections."""
        self._client.close()

    # --- Runs --------------------------------------------------------------------------------------------------------

    def submit_run(
        self,
        flow_name: str,
        params: Mapping[str, Any] | None = None,
        *,
        tag: str | None = None,
        tags: Sequence[str] | None = None,
    ) -> JsonObject:
        """Submit a run; the answer has ``run_id`` and ``status``."""
        with self._errors():
            return self._client.do(Sent(calls.submission(flow_name, params, tag=tag, tags=tags)))

    def submit_run_yaml(self, workflow_yaml: str, *, flow_name: str, tag: str) -> JsonObject:
        """Submit the text of a flow.yaml; the answer has ``run_id`` and ``status``."""
        with self._errors():
            return self._client.do(Sent(calls.yaml_submission(workflow_yaml, flow_name, tag)))

    def get_run(self, run_id: str) -> JsonObject:
        """Return a run's snapshot."""
        with self._errors():
            return self._client.get(run_id)

    def get_run_with_records(self, run_id: str) -> JsonObject:
        """Return a run's snapshot with its task records."""
        with self._errors():
            return self._client.get(run_id, "records")

    def get_tasks(self, run_id: str) -> JsonObject:
        """Return the tasks of a run and their records."""
        with self._errors():
            return self._client.tasks(run_id)

    def cancel_run(self, run_id: str, *, wait: bool = False, timeout_sec: int | None = None) -> JsonObject:
        """Cancel a run, and with ``wait`` return when it has ended; TimeoutError if that takes longer (30 s)."""
        with self._errors():
            snapshot = self._client.cancel(run_id)
            if not wait:
                return snapshot
            limit = CANCEL_WAIT_SEC if timeout_sec is None else max(1, int(timeout_sec))
            return self._client.wait(run_id, limit, records=False)

    def list_runs(
        self,
        *,
        status: str | None = None,
        flow: str | None = None,
        tag: str | None = None,
        full: bool = False,
        limit: int | None = None,
    ) -> list[JsonObject]:
        """Return the newest runs that fit."""
        with self._errors():
            return self._client.list(status=status, flow=flow, tag=tag, limit=limit, include="full" if full else ())

    def list_runs_vnext(
        self,
        *,
        status: str | None = None,
        flow: str | None = None,
        tag: str | None = None,
        full: bool = False,
        limit: int | None = None,
        updated_after: float | None = None,
        cursor: str | None = None,
        workflow_yaml_sha256: str | None = None,
    ) -> JsonObject:
        """Return ``items`` and ``next_cursor``."""
        filters: Filters = {"status": status, "flow": flow, "tag": tag, "limit": limit, "cursor": cursor}
        filters["updated_after"], filters["workflow_yaml_sha256"] = updated_after, workflow_yaml_sha256
        filters["include"] = "full" if full else ()
        with self._errors():
            page = self._client.page(**filters)
        return {"items": page.items, "next_cursor": page.next_cursor}

    def watch_run(
        self,
        run_id: str,
        *,
        include_records: bool = False,
        since: float | None = None,
        timeout_sec: int | None = None,
    ) -> Generator[JsonObject, None, None]:
        """Yield ``{"event": "snapshot", "data": {"run_id", "snapshot", "ts"}}`` until the run has ended."""
        watching = self._client.watch(run_id, records=include_records, since=since, timeout=timeout_sec)
        with self._errors(), contextlib.closing(watching):
            for snapshot in watching:
                yield {"event": "snapshot", "data": {"run_id": run_id, "snapshot": snapshot, "ts": time.time()}}

    # --- Workers and wheels ------------------------------------------------------------------------------------------

    def get_workers(
        self,
        *,
        scope: str | None = None,
        state: str | None = None,
        include_hidden: bool | None = None,
        limit: int | None = None,
    ) -> list[JsonObject]:
        """Return the workers, ``scope="all"`` for those that are gone too."""
        with self._errors():
            return self._client.workers(scope=scope, state=state, include_hidden=bool(include_hidden), limit=limit)

    def patch_worker_hidden(self, worker_id: str, *, hidden: bool) -> JsonObject:
        """Hide a worker from the list, or show it again."""
        with self._errors():
            return self._client.hide_worker(worker_id) if hidden else self._client.show_worker(worker_id)

    def list_wheels(self) -> list[JsonObject]:
        """Return the wheels."""
        with self._errors():
            return self._client.wheels()

    def list_wheel_history(
        self, *, limit: int | None = None, wheel_name: str | None = None, action: str | None = None
    ) -> list[JsonObject]:
        """Return who uploaded and deleted wheels, the newest first."""
        with self._errors():
            return self._client.wheel_history(limit=limit, wheel_name=wheel_name, action=action)

    def upload_wheel(
        self, *, filename: str, data: bytes, replace: bool = True, tags: Sequence[str] | None = None
    ) -> JsonObject:
        """Upload a wheel for the workers that have one of the tags, or for all."""
        named = [tag.strip() for tag in tags or () if tag.strip()]
        with self._errors():
            return self._client.upload_wheel(data, name=filename, tags=named, replace=replace)

    def delete_wheel(self, wheel_name: str) -> JsonObject:
        """Delete a wheel."""
        with self._errors():
            return self._client.delete_wheel(wheel_name)

    def get_metrics(self) -> str:
        """Return the metrics as Prometheus reads them."""
        with self._errors():
            return self._client.metrics()

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        """Raise what 0.5.1 raised."""
        try:
            yield
        except ApiError as error:
            request = httpx.Request("GET", self._client.server)
            answer = httpx.Response(error.status, json={"detail": error.detail or error.message}, request=request)
            raise httpx.HTTPStatusError(str(error), request=request, response=answer) from error
        except GatewayUnreachableError as error:
            if isinstance(error.__cause__, httpx.RequestError):
                raise error.__cause__ from error
            raise
