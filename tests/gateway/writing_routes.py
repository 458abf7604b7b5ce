"""A request to every route that writes, after the creation of what it needs."""

import itertools
from collections.abc import Awaitable, Callable
from typing import Any, Final

import httpx

from tests.gateway.stand import eventually
from tests.wheels.building import make_wheel, wheel_name

Client = httpx.AsyncClient
Prepare = Callable[[Client], Awaitable[httpx.Request]]

YAML: Final = b"version: 1\nflow:\n  graph: |\n    a\ntasks:\n  a: {callable: 'x:y'}\n"
GRAPH: Final = {
    "nodes": [
        {"nodeId": "start", "nodeType": "Start"},
        {"nodeId": "work", "nodeType": "Task"},
        {"nodeId": "end", "nodeType": "Success"},
    ],
    "edges": [{"from": "start", "to": "work"}, {"from": "work", "to": "end"}],
}

_numbers = itertools.count(1)


# --- Submissions -----------------------------------------------------------------------------------------------------


async def _run(client: Client) -> httpx.Request:
    return client.build_request("POST", "/runs", json={"flow_name": "f"})


async def _run_under_a_key(client: Client) -> httpx.Request:
    headers = {"Idempotency-Key": f"key-{next(_numbers)}"}
    return client.build_request("POST", "/runs", json={"flow_name": "f"}, headers=headers)


async def _yaml(client: Client) -> httpx.Request:
    files = {"workflow": ("flow.yaml", YAML)}
    return client.build_request("POST", "/runs/yaml", files=files, data={"flow_name": "f"})


async def _execution(client: Client) -> httpx.Request:
    await _sent(client, "PUT", "/graphs/g", json=GRAPH)
    return client.build_request("POST", "/executions", json={"graphId": "g"})


SUBMISSIONS: Final[dict[str, Prepare]] = {
    "POST /runs": _run,
    "POST /runs with a key": _run_under_a_key,
    "POST /runs/yaml": _yaml,
    "POST /executions": _execution,
}


# --- Everything else that writes -------------------------------------------------------------------------------------


async def answered(client: Client, request: httpx.Request) -> list[httpx.Response]:
    """Send a request until NATS answers in time, which a loaded machine may prevent; returns all answers."""
    found: list[httpx.Response] = []

    async def is_answered() -> bool:
        found.append(await client.send(request))
        return found[-1].status_code != 503

    await eventually(is_answered)
    return found


async def _created(client: Client, request: httpx.Request) -> Any:
    """Send a request until NATS answers, and return the body."""
    answer = (await answered(client, request))[-1]
    assert answer.status_code < 300, answer.text
    return answer.json()


async def _sent(client: Client, method: str, path: str, **options: Any) -> Any:
    return await _created(client, client.build_request(method, path, **options))


async def _new_run(client: Client) -> str:
    return str((await _created(client, await _run(client)))["run_id"])


async def _new_execution(client: Client, *verbs: str) -> str:
    execution_id = str((await _created(client, await _execution(client)))["executionId"])
    for verb in ("start", *verbs):
        await _sent(client, "POST", f"/executions/{execution_id}/{verb}", json={})
    return execution_id


async def _cancel(client: Client) -> httpx.Request:
    return client.build_request("POST", f"/runs/{await _new_run(client)}/cancel")


async def _archive(client: Client) -> httpx.Request:
    run_id = await _new_run(client)
    await _sent(client, "POST", f"/runs/{run_id}/cancel")
    return client.build_request("POST", f"/runs/{run_id}/archive")


async def _redrive(client: Client) -> httpx.Request:
    run_id = await _new_run(client)
    assert (await client.post(f"/runs/{run_id}/cancel")).status_code == 200
    return client.build_request("POST", f"/runs/{run_id}/redrive", json={"reason": "again"})


async def _resume(client: Client) -> httpx.Request:
    run_id = await _new_execution(client, "nodes/work/start", "nodes/work/wait")
    return client.build_request("POST", f"/runs/{run_id}/nodes/work/resume", json={"input": 1})


async def _start(client: Client) -> httpx.Request:
    created = await _created(client, await _execution(client))
    return client.build_request("POST", f"/executions/{created['executionId']}/start")


async def _ready(client: Client) -> httpx.Request:
    created = await _created(client, await _execution(client))
    return client.build_request("POST", f"/executions/{created['executionId']}/nodes/work/ready")


async def _archive_execution(client: Client) -> httpx.Request:
    execution_id = await _new_execution(client, "cancel")
    return client.build_request("POST", f"/executions/{execution_id}/archive")


def _node_command(verb: str, *verbs: str, **fields: Any) -> Prepare:
    """A command to the node of a started execution, after these other commands."""

    async def prepare(client: Client) -> httpx.Request:
        execution_id = await _new_execution(client, *[f"nodes/work/{before}" for before in verbs])
        return client.build_request("POST", f"/executions/{execution_id}/nodes/work/{verb}", json=fields)

    return prepare


async def _cancel_execution(client: Client) -> httpx.Request:
    return client.build_request("POST", f"/executions/{await _new_execution(client)}/cancel")


async def _cancel_many(client: Client) -> httpx.Request:
    return client.build_request("POST", "/runs/cancel", json={"run_ids": [await _new_run(client)]})


async def _graph(client: Client) -> httpx.Request:
    return client.build_request("PUT", f"/graphs/g{next(_numbers)}", json=GRAPH)


async def _upload(client: Client) -> httpx.Request:
    for wheel in await _sent(client, "GET", "/wheels"):  # every request reads the whole registry: keep it small
        removed = await answered(client, client.build_request("DELETE", f"/wheels/{wheel['name']}"))
        assert removed[-1].status_code in {200, 404}, removed[-1].text  # one that was refused may have been done
    version = f"1.{next(_numbers)}"
    content = make_wheel(version=version)
    return client.build_request("POST", "/wheels", files={"wheel": (wheel_name(version=version), content)})


async def _delete(client: Client) -> httpx.Request:
    uploaded = await _created(client, await _upload(client))
    return client.build_request("DELETE", f"/wheels/{uploaded['name']}")


_NODE: Final = "POST /executions/{execution_id}/nodes/{node_id}"

OTHERS: Final[dict[str, Prepare]] = {
    "POST /runs/{run_id}/cancel": _cancel,
    "POST /runs/cancel": _cancel_many,
    "POST /runs/{run_id}/archive": _archive,
    "POST /runs/{run_id}/redrive": _redrive,
    "POST /runs/{run_id}/nodes/{node_id}/resume": _resume,
    "POST /executions/{execution_id}/start": _start,
    "POST /executions/{execution_id}/cancel": _cancel_execution,
    "POST /executions/{execution_id}/archive": _archive_execution,
    f"{_NODE}/ready": _ready,
    f"{_NODE}/start": _node_command("start"),
    f"{_NODE}/progress": _node_command("progress", "start", progress=0.5),
    f"{_NODE}/wait": _node_command("wait", "start", waitKey="k"),
    f"{_NODE}/request-resume": _node_command("request-resume", "start", "wait"),
    f"{_NODE}/resume": _node_command("resume", "start", "wait"),
    f"{_NODE}/succeed": _node_command("succeed", "start", output={"n": 1}),
    f"{_NODE}/fail": _node_command("fail", "start", error={"message": "no"}),
    "PUT /graphs/{graph_id}": _graph,
    "POST /wheels": _upload,
    "DELETE /wheels/{wheel_name}": _delete,
}
