"""Clients that ask a platform for everything, and record every answer.

They use HTTP; API keys are made and revoked by the code of ``pyoco-server keys``.
"""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from typing import Final

import httpx

from pyoco_server.app.api_keys.format import KeyScope
from pyoco_server.app.api_keys.service import KeyService
from pyoco_server.bootstrap.gateway import open_key_service
from pyoco_server.errors import PyocoServerError
from pyoco_server.settings import load_settings
from tests.power.promises import NEVER, Json, Promises
from tests.wheels.building import make_wheel, wheel_name

LATER: Final = "later"
"""The tag of runs that find a worker only after the last crash."""
_GRAPH: Final = {
    "nodes": [
        {"nodeId": "start", "nodeType": "Start"},
        {"nodeId": "work", "nodeType": "Task"},
        {"nodeId": "end", "nodeType": "Success"},
    ],
    "edges": [{"from": "start", "to": "work"}, {"from": "work", "to": "end"}],
}
_LARGE: Final = 60_000
_ANSWERS_SEC: Final = 0.3
"""For answers that are on their way when the power fails."""
_DRIVEN: Final = ("/start", "/nodes/work/start", "/nodes/work/progress", "/nodes/work/succeed")
"""The commands that drive an execution of this graph to its end."""


class Clients:
    """Ask at random until they are cancelled. An answer counts only if it was received."""

    def __init__(self, client: httpx.AsyncClient, promises: Promises, env: Mapping[str, str], seed: str) -> None:
        self._client = client
        self._known = promises
        self._env = env
        self._seed = seed
        self._count = 0

    async def ask(self, *, clients: int = 6) -> None:
        """Ask for everything, until cancelled."""
        asking = [self._ask(random.Random(f"{self._seed} {number}")) for number in range(clients)]
        await asyncio.gather(*asking, self._ask_for_keys(random.Random(f"{self._seed} keys")))

    async def fill(self, *, clients: int = 4) -> None:
        """Submit large runs, until cancelled: blocks of snapshots and jobs roll, and are rewritten."""
        await asyncio.gather(*(self._fill(random.Random(f"{self._seed} fill {number}")) for number in range(clients)))

    async def _fill(self, chance: random.Random) -> None:
        while True:
            with contextlib.suppress(httpx.TransportError):
                params = {"number": 1, "padding": "x" * _LARGE}
                tags = [chance.choice(("default", "default", "default", LATER, NEVER)) for _ in range(4)]
                await self._submit_runs([{"flow_name": "quick", "params": params, "tag": tag} for tag in tags])

    async def _ask(self, chance: random.Random) -> None:
        kinds: list[Callable[[random.Random], Awaitable[None]]] = [
            *[self._submit] * 8,
            *[self._submit_with_key] * 2,
            self._submit_batch,
            *[self._look] * 4,
            *[self._cancel] * 2,
            *[self._resume] * 4,
            self._archive,
            self._put_graph,
            *[self._drive] * 3,
            self._upload_wheel,
            self._delete_wheel,
        ]
        while True:
            with contextlib.suppress(httpx.TransportError):
                await chance.choice(kinds)(chance)
            await asyncio.sleep(chance.uniform(0, 0.01))

    def _new(self, kind: str) -> str:
        self._count += 1
        return f"{kind}{self._seed.replace(' ', '')}n{self._count}"

    # --- Runs -------------------------------------------------------------------------------------------------------

    def _run(self, chance: random.Random) -> Json:
        flow = chance.choice(("quick", "quick", "quick", "asking", "asking", "asking", "slow", "large"))
        size = chance.choice((0, 0, 0, 2_000, 30_000))
        params = {"number": self._count, "padding": "x" * size} if flow != "slow" else {}
        return {"flow_name": flow, "params": params, "tag": chance.choice((*["default"] * 12, LATER, NEVER))}

    async def _submit(self, chance: random.Random) -> None:
        run = self._run(chance)
        wait = {"wait_sec": 2} if chance.random() < 0.3 else {}
        answer = await self._client.post("/runs", json=run, params=wait)
        if answer.is_success:
            self._accepted(answer.json(), run)

    async def _submit_batch(self, chance: random.Random) -> None:
        await self._submit_runs([self._run(chance) for _ in range(chance.randint(1, 8))])

    async def _submit_runs(self, runs: list[Json]) -> None:
        answer = await self._client.post("/runs/batch", json={"runs": runs})
        if answer.is_success:
            for run, result in zip(runs, answer.json()["results"], strict=True):
                if result["run_id"] is not None:
                    self._accepted(result, run)

    async def _submit_with_key(self, _: random.Random) -> None:
        key, body = self._new("key-"), {"flow_name": "quick", "params": {"number": 1}}
        answer = await self._client.post("/runs", json=body, headers={"Idempotency-Key": key})
        if answer.is_success:
            self._accepted(answer.json(), body)
            self._known.keyed[key] = answer.json()["run_id"]

    def _accepted(self, answer: Json, run: Json) -> None:
        self._known.runs[answer["run_id"]] = NEVER if run.get("tag") == NEVER else run["flow_name"]
        self._known.saw(answer)

    async def _look(self, chance: random.Random) -> None:
        if not self._known.runs:
            return
        run_id = chance.choice([*self._known.runs])
        answer = await self._client.get(f"/runs/{run_id}")
        if answer.is_success:
            self._known.saw(answer.json())
        if self._known.runs[run_id] == "large" and self._known.ended.get(run_id) == "COMPLETED":
            answer = await self._client.get(f"/runs/{run_id}/nodes/large/output")
            if answer.is_success:
                self._known.outputs[run_id] = len(answer.content)

    async def _cancel(self, chance: random.Random) -> None:
        open_runs = [run_id for run_id in self._known.runs if self._known.is_open(run_id)][-20:]
        if not open_runs:
            return
        run_id = chance.choice(open_runs)
        self._known.asked.cancels.add(run_id)
        answer = await self._client.post(f"/runs/{run_id}/cancel")
        if answer.is_success and answer.json()["status"] in {"CANCELLING", "CANCELLED"}:
            self._known.cancelled.add(run_id)

    async def _resume(self, chance: random.Random) -> None:
        waiting = [run_id for run_id, flow in self._known.runs.items() if flow == "asking"]
        waiting = [run_id for run_id in waiting if run_id not in self._known.asked.resumes][:20]
        if not waiting:
            return
        run_id = chance.choice(waiting)
        self._known.asked.resumes.add(run_id)
        answer = await self._client.post(f"/runs/{run_id}/nodes/approval/resume", json={"input": {"by": "ann"}})
        if answer.is_success:
            self._known.resumed.add(run_id)
        elif answer.status_code == httpx.codes.CONFLICT:  # not waiting yet
            self._known.asked.resumes.discard(run_id)

    async def _archive(self, chance: random.Random) -> None:
        ended = [run_id for run_id in self._known.ended if run_id not in self._known.archived]
        if ended:
            run_id = chance.choice(ended)
            if (await self._client.post(f"/runs/{run_id}/archive")).is_success:
                self._known.archived.add(run_id)

    # --- Graphs, executions, wheels, keys ---------------------------------------------------------------------------

    async def _put_graph(self, _: random.Random) -> None:
        name = self._new("g")
        if (await self._client.put(f"/graphs/{name}", json={"graphId": name, **_GRAPH})).is_success:
            self._known.graphs.add(name)

    async def _drive(self, chance: random.Random) -> None:
        """Create an execution on a graph, and give some of the commands that lead to its end."""
        if not self._known.graphs:
            return
        execution_id = self._new("x")
        body = {"graphId": chance.choice([*self._known.graphs]), "executionId": execution_id}
        for path, fields in [("", body), *((f"/{execution_id}{verb}", {}) for verb in _DRIVEN)]:
            answer = await self._client.post(f"/executions{path}", json=fields)
            if not answer.is_success:
                return
            events = [event["eventId"] for event in answer.json()["events"]]
            self._known.executions.setdefault(execution_id, []).extend(events)
            if chance.random() < 0.2:
                return

    async def _upload_wheel(self, _: random.Random) -> None:
        package = self._new("demo")
        name, content = wheel_name(package), make_wheel(package)
        answer = await self._client.post("/wheels", files={"wheel": (name, content)}, data={"tags": "nowhere"})
        if answer.is_success:
            self._known.wheels[name] = content

    async def _delete_wheel(self, chance: random.Random) -> None:
        left = [name for name in self._known.wheels if name not in self._known.asked.deletions]
        if len(left) < 3:
            return
        name = chance.choice(left)
        self._known.asked.deletions.add(name)
        if (await self._client.delete(f"/wheels/{name}")).is_success:
            self._known.deleted_wheels.add(name)

    async def _ask_for_keys(self, chance: random.Random) -> None:
        while True:
            with contextlib.suppress(PyocoServerError, OSError):  # without the disk
                async with open_key_service(load_settings(dict(self._env)).settings) as keys:
                    while True:
                        await self._ask_for_key(keys, chance)
                        await asyncio.sleep(chance.uniform(0.05, 0.2))
            await asyncio.sleep(0.1)

    async def _ask_for_key(self, keys: KeyService, chance: random.Random) -> None:
        if chance.random() < 0.6 or not self._known.keys:
            issued = await keys.create("acme", scopes={KeyScope.RUNS}, name="ci")
            self._known.keys[issued.stored.api_key_id] = issued.text
        else:
            key_id = chance.choice([*self._known.keys])
            self._known.asked.revocations.add(key_id)
            await keys.revoke(key_id)
            self._known.revoked.add(key_id)


@contextlib.asynccontextmanager
async def asking(*clients: Coroutine[None, None, None]) -> AsyncIterator[None]:
    """Let clients ask within the block, and for a moment after it."""
    load = asyncio.gather(*clients)
    try:
        yield
        await asyncio.sleep(_ANSWERS_SEC)
    finally:
        load.cancel()
        with contextlib.suppress(asyncio.CancelledError, httpx.HTTPError):
            await load
