"""A platform on a disk that loses power, clients that record every acknowledgement, and what must be true afterwards.

The platform is what users start: ``pyoco-server up`` with its embedded NATS and its data on the disk, and a worker. The
clients use HTTP, and the code of ``pyoco-server keys`` for API keys. An acknowledgement is an answer that a client
received. What was asked without an answer may have happened or not.
"""

import asyncio
import contextlib
import random
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import httpx

from pyoco_server.app.api_keys.format import KeyScope
from pyoco_server.bootstrap.gateway import open_key_service
from pyoco_server.errors import PyocoServerError
from pyoco_server.settings import load_settings
from tests.kill.crew import free_port
from tests.kill.processes import GatewayProcess, WorkerProcess
from tests.plain_http import NO_TLS
from tests.wheels.building import make_wheel, wheel_name

ENDED: Final = frozenset({"COMPLETED", "FAILED", "CANCELLED"})
PRESENT_SEC: Final = 10.0
"""How long after the gateway is ready every accepted run must be found."""
END_SEC: Final = 90.0
_PEPPER: Final = "a" * 64
_FLOWS: Final = Path(__file__).with_name("flows.py")
_GRAPH: Final = {
    "nodes": [
        {"nodeId": "start", "nodeType": "Start"},
        {"nodeId": "work", "nodeType": "Task"},
        {"nodeId": "end", "nodeType": "Success"},
    ],
    "edges": [{"from": "start", "to": "work"}, {"from": "work", "to": "end"}],
}

Answer = dict[str, Any]


class Acknowledged:
    """The answers that clients received."""

    def __init__(self) -> None:
        self.runs: dict[str, str] = {}
        """Accepted runs, with their flow."""
        self.keyed: dict[str, str] = {}
        """Runs by the Idempotency-Key under which they were accepted."""
        self.ended: dict[str, str] = {}
        """Runs that a client saw end, with their status."""
        self.cancelled: set[str] = set()
        self.cancel_asked: set[str] = set()
        self.resumed: set[str] = set()
        self.resume_asked: set[str] = set()
        self.graphs: set[str] = set()
        self.wheels: set[str] = set()
        self.deleted_wheels: set[str] = set()
        self.delete_asked: set[str] = set()
        self.keys: dict[str, str] = {}
        """API keys by their id."""
        self.revoked: set[str] = set()
        self.revoke_asked: set[str] = set()

    def __len__(self) -> int:
        kinds = (self.runs, self.ended, self.cancelled, self.resumed, self.graphs, self.wheels, self.keys, self.revoked)
        return sum(map(len, kinds)) + len(self.deleted_wheels)


class PowerWorld:
    """One data directory, started as often as the power fails."""

    def __init__(self, home: Path, *, durability: str = "sync", **variables: str) -> None:
        self.home = home
        self.acknowledged = Acknowledged()
        self.gateway: GatewayProcess | None = None
        self._durability = durability
        self._variables = variables
        self._api_key = ""
        self.env: dict[str, str] = {}
        self._starts = 0
        self._numbers = iter(range(10**9))

    @contextlib.asynccontextmanager
    async def running(self, data_dir: Path, *, with_worker: bool = True) -> AsyncIterator[httpx.AsyncClient]:
        """Start the platform on a data directory; kill every process at the end."""
        self._starts += 1
        nats_port, port = free_port(), free_port()
        env = {
            "PYOCO_DATA_DIR": str(data_dir),
            "PYOCO_DURABILITY": self._durability,
            "PYOCO_HTTP_AUTH_MODE": "api_key",
            "PYOCO_AUTH_PEPPER": _PEPPER,
            "PYOCO_NATS_URL": f"nats://127.0.0.1:{nats_port}",
            **self._variables,
        }
        up = [sys.executable, "-m", "pyoco_server.cli.server", "up", "--port", str(port)]
        up += ["--nats-client-port", str(nats_port)]
        work = [sys.executable, "-m", "pyoco_server.cli.worker", "--flows", str(_FLOWS), "--worker-id", "w"]
        outputs = [self.home / f"{name}-{self._starts}.log" for name in ("gateway", "worker")]
        embedded = {name: value for name, value in env.items() if name != "PYOCO_NATS_URL"}
        gateway = GatewayProcess.start("gateway", up, outputs[0], cwd=self.home, env=embedded)
        gateway.url = f"http://127.0.0.1:{port}"
        self.gateway = gateway
        worker = None
        try:
            await gateway.ready(within=60)
            self.env = env
            if not self._api_key:
                self._api_key = await self._new_key(env)
            if with_worker:
                worker = WorkerProcess.start("worker", work, outputs[1], cwd=self.home, env=env)
            headers = {"X-API-Key": self._api_key}
            async with httpx.AsyncClient(base_url=gateway.url, headers=headers, timeout=20, verify=NO_TLS) as client:
                yield client
        finally:
            if worker is not None:
                worker.kill()
            gateway.kill()

    async def _new_key(self, env: dict[str, str]) -> str:
        async with open_key_service(load_settings(env).settings) as keys:
            return (await keys.create(None, scopes=set(KeyScope), name="main")).text

    # --- Clients ----------------------------------------------------------------------------------------------------

    async def load(self, client: httpx.AsyncClient, seed: int, *, clients: int = 6) -> None:
        """Ask for everything, until cancelled."""
        asking = [self._ask(client, random.Random(f"{seed} {number}")) for number in range(clients)]
        await asyncio.gather(*asking, self._ask_for_keys(random.Random(f"{seed} keys")))

    async def _ask(self, client: httpx.AsyncClient, chance: random.Random) -> None:
        kinds: list[Callable[[httpx.AsyncClient, random.Random], Awaitable[None]]] = [
            *[self._submit] * 8,
            *[self._submit_with_key] * 2,
            *[self._look] * 4,
            *[self._cancel] * 2,
            *[self._resume] * 4,
            self._put_graph,
            self._upload_wheel,
            self._delete_wheel,
        ]
        while True:
            with contextlib.suppress(httpx.TransportError):
                await chance.choice(kinds)(client, chance)
            await asyncio.sleep(chance.uniform(0, 0.01))

    def _params(self, chance: random.Random) -> Answer:
        size = chance.choice((0, 0, 0, 2_000, 30_000))
        return {"number": next(self._numbers), "padding": "x" * size}

    async def _submit(self, client: httpx.AsyncClient, chance: random.Random) -> None:
        flow = chance.choice(("quick", "quick", "asking", "asking", "slow"))
        params = self._params(chance) if flow != "slow" else {}
        wait = {"wait_sec": 2} if chance.random() < 0.3 else {}
        answer = await client.post("/runs", json={"flow_name": flow, "params": params}, params=wait)
        if answer.status_code == httpx.codes.OK:
            self._accepted(answer.json(), flow)

    async def _submit_with_key(self, client: httpx.AsyncClient, _: random.Random) -> None:
        key = f"key-{next(self._numbers)}"
        body = {"flow_name": "quick", "params": {"number": 1}}
        answer = await client.post("/runs", json=body, headers={"Idempotency-Key": key})
        if answer.status_code == httpx.codes.OK:
            self._accepted(answer.json(), "quick")
            self.acknowledged.keyed[key] = answer.json()["run_id"]

    def _accepted(self, answer: Answer, flow: str) -> None:
        self.acknowledged.runs[answer["run_id"]] = flow
        self._seen(answer)

    def _seen(self, snapshot: Answer) -> None:
        if snapshot["status"] in ENDED:
            self.acknowledged.ended[snapshot["run_id"]] = snapshot["status"]

    async def _look(self, client: httpx.AsyncClient, chance: random.Random) -> None:
        if self.acknowledged.runs:
            answer = await client.get(f"/runs/{chance.choice([*self.acknowledged.runs])}")
            if answer.status_code == httpx.codes.OK:
                self._seen(answer.json())

    async def _cancel(self, client: httpx.AsyncClient, chance: random.Random) -> None:
        open_runs = [run for run in self.acknowledged.runs if run not in self.acknowledged.ended][-20:]
        if not open_runs:
            return
        run_id = chance.choice(open_runs)
        self.acknowledged.cancel_asked.add(run_id)
        answer = await client.post(f"/runs/{run_id}/cancel")
        if answer.status_code == httpx.codes.OK and answer.json()["status"] in {"CANCELLING", "CANCELLED"}:
            self.acknowledged.cancelled.add(run_id)

    async def _resume(self, client: httpx.AsyncClient, chance: random.Random) -> None:
        waiting = [run for run, flow in self.acknowledged.runs.items() if flow == "asking"]
        waiting = [run for run in waiting if run not in self.acknowledged.resume_asked][:20]
        if not waiting:
            return
        run_id = chance.choice(waiting)
        self.acknowledged.resume_asked.add(run_id)
        answer = await client.post(f"/runs/{run_id}/nodes/approval/resume", json={"input": {"by": "ann"}})
        if answer.status_code == httpx.codes.OK:
            self.acknowledged.resumed.add(run_id)
        elif answer.status_code == httpx.codes.CONFLICT:  # not waiting yet
            self.acknowledged.resume_asked.discard(run_id)

    async def _put_graph(self, client: httpx.AsyncClient, _: random.Random) -> None:
        name = f"g{next(self._numbers)}"
        if (await client.put(f"/graphs/{name}", json={"graphId": name, **_GRAPH})).is_success:
            self.acknowledged.graphs.add(name)

    async def _upload_wheel(self, client: httpx.AsyncClient, _: random.Random) -> None:
        package = f"demo{next(self._numbers)}"
        files = {"wheel": (wheel_name(package), make_wheel(package))}
        if (await client.post("/wheels", files=files, data={"tags": "nowhere"})).is_success:
            self.acknowledged.wheels.add(wheel_name(package))

    async def _delete_wheel(self, client: httpx.AsyncClient, chance: random.Random) -> None:
        left = [name for name in self.acknowledged.wheels if name not in self.acknowledged.delete_asked]
        if len(left) < 3:
            return
        name = chance.choice(left)
        self.acknowledged.delete_asked.add(name)
        if (await client.delete(f"/wheels/{name}")).is_success:
            self.acknowledged.deleted_wheels.add(name)

    async def _ask_for_keys(self, chance: random.Random) -> None:
        async with open_key_service(load_settings(self.env).settings) as keys:
            while True:
                with contextlib.suppress(PyocoServerError):
                    if chance.random() < 0.6 or not self.acknowledged.keys:
                        issued = await keys.create("acme", scopes={KeyScope.RUNS}, name="ci")
                        self.acknowledged.keys[issued.stored.api_key_id] = issued.text
                    else:
                        key_id = chance.choice([*self.acknowledged.keys])
                        self.acknowledged.revoke_asked.add(key_id)
                        await keys.revoke(key_id)
                        self.acknowledged.revoked.add(key_id)
                await asyncio.sleep(chance.uniform(0.05, 0.2))

    # --- What must be true after the power failed --------------------------------------------------------------------

    async def violations(self, client: httpx.AsyncClient) -> list[str]:
        """Return every promise that was broken: the acknowledged is there, and everything comes to its end."""
        found = await _until_empty(lambda: self._missing(client), PRESENT_SEC)
        found += await self._lost_beside_runs(client)
        if not found:
            found += await _until_empty(lambda: self._not_ended(client), END_SEC)
        return found

    async def _missing(self, client: httpx.AsyncClient) -> list[str]:
        listed = await self._listed(client)
        missing = [f"{run_id} is not in the list" for run_id in self.acknowledged.runs if run_id not in listed]
        for run_id in self.acknowledged.runs:
            answer = await client.get(f"/runs/{run_id}")
            if answer.status_code != httpx.codes.OK:
                missing.append(f"GET /runs/{run_id}: {answer.status_code}")
                continue
            missing += self._contradictions(run_id, answer.json()["status"])
        return missing

    def _contradictions(self, run_id: str, status: str) -> list[str]:
        known = self.acknowledged
        wrong = []
        if known.ended.get(run_id, status) != status:
            wrong.append(f"{run_id} was {known.ended[run_id]} and is {status}")
        if run_id in known.cancelled and status not in {"CANCELLING", "CANCELLED"}:
            wrong.append(f"{run_id} was cancelled and is {status}")
        if status in {"CANCELLING", "CANCELLED"} and run_id not in known.cancel_asked:
            wrong.append(f"{run_id} is {status}, and no client cancelled it")
        if status == "FAILED":
            wrong.append(f"{run_id} failed")
        return wrong

    async def _listed(self, client: httpx.AsyncClient) -> set[str]:
        listed, cursor = set[str](), None
        while True:
            page = {"limit": 200, **({"cursor": cursor} if cursor else {"updated_after": 0})}
            answer = await client.get("/runs", params=page)
            if not answer.is_success:
                return listed
            listed |= {run["run_id"] for run in answer.json()["items"]}
            cursor = answer.json()["next_cursor"]
            if not cursor:
                return listed

    async def _lost_beside_runs(self, client: httpx.AsyncClient) -> list[str]:
        known = self.acknowledged
        lost = [f"graph {name}" for name in known.graphs if not (await client.get(f"/graphs/{name}")).is_success]
        answer = await client.get("/wheels")
        if not answer.is_success:
            return [*lost, f"GET /wheels: {answer.status_code}"]
        wheels = {wheel["name"] for wheel in answer.json()}
        lost += [f"wheel {name}" for name in known.wheels - known.delete_asked - wheels]
        lost += [f"the deletion of wheel {name}" for name in known.deleted_wheels & wheels]
        for key_id, key in known.keys.items():
            status = (await client.get("/runs?limit=1", headers={"X-API-Key": key})).status_code
            if key_id in known.revoked and status != httpx.codes.FORBIDDEN:
                lost.append(f"the revocation of key {key_id}: {status}")
            if key_id not in known.revoke_asked and status != httpx.codes.OK:
                lost.append(f"key {key_id}: {status}")
        for key, run_id in known.keyed.items():
            body = {"flow_name": "quick", "params": {"number": 1}}
            answer = await client.post("/runs", json=body, headers={"Idempotency-Key": key})
            if not answer.is_success or answer.json()["run_id"] != run_id:
                lost.append(f"the run of {key}: {answer.status_code}")
        return lost

    async def _not_ended(self, client: httpx.AsyncClient) -> list[str]:
        open_runs = []
        for run_id, flow in self.acknowledged.runs.items():
            snapshot = (await client.get(f"/runs/{run_id}")).json()
            is_waiting = flow == "asking" and run_id not in self.acknowledged.resumed and snapshot.get("waiting")
            if snapshot["status"] not in ENDED and not is_waiting:
                open_runs.append(f"{run_id} ({flow}) is {snapshot['status']}")
            open_runs += self._contradictions(run_id, snapshot["status"])
        return open_runs


async def _until_empty(look: Callable[[], Awaitable[list[str]]], within_sec: float) -> list[str]:
    end = asyncio.get_running_loop().time() + within_sec
    while found := await look():
        if asyncio.get_running_loop().time() > end:
            return found
        await asyncio.sleep(0.3)
    return []
