"""What clients of a platform were promised, and the check of each promise after the power failed.

A promise is an answer that a client received. What a client asked for without an answer may have happened or not.
"""

import asyncio
import copy
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple, Self

import httpx

ENDED: Final = frozenset({"COMPLETED", "FAILED", "CANCELLED"})
PRESENT_SEC: Final = 10.0
"""How long after the gateway is ready a run may be missing, on a machine that does nothing else."""
MISSING_SEC: Final = 60.0
"""After that it is lost."""
END_SEC: Final = 120.0
"""How long after that everything that was due to continue may take to its end."""

NEVER: Final = "never"
"""The tag of runs that never find a worker."""

Json = dict[str, Any]


class Asked:
    """What clients asked for, answered or not."""

    def __init__(self) -> None:
        self.cancels: set[str] = set()
        self.resumes: set[str] = set()
        self.deletions: set[str] = set()
        self.revocations: set[str] = set()


class Promises:
    """The answers that clients received."""

    def __init__(self) -> None:
        self.runs: dict[str, str] = {}
        """Accepted runs, with their flow, or with the tag that has no worker."""
        self.keyed: dict[str, str] = {}
        """Runs by the Idempotency-Key under which they were accepted."""
        self.ended: dict[str, str] = {}
        """Runs that a client saw end, with their status."""
        self.outputs: dict[str, int] = {}
        """The size of an output that a client read, by run."""
        self.cancelled: set[str] = set()
        self.resumed: set[str] = set()
        self.archived: set[str] = set()
        self.executions: dict[str, list[str]] = {}
        """The ids of acknowledged events of executions that a client drives, in their order."""
        self.graphs: set[str] = set()
        self.wheels: dict[str, bytes] = {}
        self.deleted_wheels: set[str] = set()
        self.keys: dict[str, str] = {}
        """API keys by their id."""
        self.revoked: set[str] = set()
        self.asked = Asked()

    def count(self) -> dict[str, int]:
        """Return how many answers of each kind there are."""
        sizes = {kind: len(answers) for kind, answers in vars(self).items() if kind != "asked"}
        return {**sizes, "executions": sum(map(len, self.executions.values()))}

    def __len__(self) -> int:
        return sum(self.count().values())

    def copy(self) -> Self:
        """Return these promises alone; what is asked from now on is still seen through the copy."""
        kept = copy.copy(self)
        for kind, answers in vars(self).items():
            if kind != "asked":
                setattr(kept, kind, copy.deepcopy(answers))
        return kept

    @property
    def accepted(self) -> list[str]:
        """Return every run that was accepted, also those that clients drive."""
        return [*self.runs, *self.executions]

    def is_open(self, run_id: str) -> bool:
        """Return whether no client saw the run end."""
        return run_id not in self.ended

    def saw(self, snapshot: Json) -> None:
        """Record what a client saw of a run."""
        if snapshot["status"] in ENDED:
            self.ended[snapshot["run_id"]] = snapshot["status"]


class Outcome(NamedTuple):
    """What became of the promises after a crash."""

    promised: dict[str, int]
    """How many answers of each kind were checked."""
    lost: list[str]
    stuck: list[str]
    ready_sec: float
    """From the start of the gateway to its readiness."""
    present_sec: float
    """From there until every accepted run was found."""
    ended_sec: float
    """From there until everything had come to its end."""
    crashes: int = 1
    """How often the power failed before, since the first start."""

    @property
    def acknowledged(self) -> int:
        """Return how many answers were checked."""
        return sum(self.promised.values())

    @property
    def is_late(self) -> bool:
        """Return whether a run was missing for too long."""
        return self.present_sec > PRESENT_SEC

    def assert_kept(self) -> None:
        """Fail if a promise was broken, and name some of them."""
        broken = [*self.lost, *self.stuck]
        assert not broken, f"{len(self.lost)} lost, {len(self.stuck)} stuck, such as {broken[:5]} and {broken[-5:]}"

    @property
    def broken(self) -> list[str]:
        """Return every broken promise."""
        return [*self.lost, *self.stuck]


class PromiseCheck:
    """Looks for everything that was promised, on a platform that was started again."""

    def __init__(self, client: httpx.AsyncClient, promises: Promises, missing_sec: float) -> None:
        self._client = client
        self._promises = promises
        self._missing_sec = missing_sec
        self._gate = asyncio.Semaphore(16)

    async def outcome(self, ready_sec: float) -> Outcome:
        """Check every promise. The gateway has just become ready."""
        missing, present_sec = await _until_empty(self._missing, self._missing_sec)
        lost = missing + await self._unreadable() + await self._lost_beside_runs()
        stuck, ended_sec = await _until_empty(self._not_ended, 0.0 if lost else END_SEC)
        return Outcome(self._promises.count(), lost, stuck, ready_sec, present_sec, ended_sec)

    async def _get(self, path: str) -> Json | None:
        answer = await self._client.get(path)
        return answer.json() if answer.is_success else None

    # --- Runs -------------------------------------------------------------------------------------------------------

    async def _missing(self) -> list[str]:
        listed = await self._listed()
        missing = [f"{run_id} is not in the list" for run_id in self._promises.accepted if run_id not in listed]
        return missing + [wrong for run in listed.values() for wrong in self._contradictions(run)]

    async def _unreadable(self) -> list[str]:
        answers = await asyncio.gather(*(self._read(run_id) for run_id in self._promises.accepted))
        return [problem for problem in answers if problem]

    async def _read(self, run_id: str) -> str:
        async with self._gate:
            answer = await self._client.get(f"/runs/{run_id}")
        if answer.is_success:
            return "; ".join(self._contradictions(answer.json()))
        return f"GET /runs/{run_id}: {answer.status_code}"

    def _contradictions(self, run: Json) -> list[str]:
        run_id, status, known = run["run_id"], run["status"], self._promises
        wrong = []
        if known.ended.get(run_id, status) != status:
            wrong.append(f"{run_id} was {known.ended[run_id]} and is {status}")
        if run_id in known.cancelled and status not in {"CANCELLING", "CANCELLED"}:
            wrong.append(f"{run_id} was cancelled and is {status}")
        if status in {"CANCELLING", "CANCELLED"} and run_id not in known.asked.cancels:
            wrong.append(f"{run_id} is {status}, and no client cancelled it")
        if status == "FAILED":
            wrong.append(f"{run_id} failed")
        if run_id in known.archived and not run.get("archived_at"):
            wrong.append(f"{run_id} was archived and is not")
        return wrong

    async def _listed(self) -> dict[str, Json]:
        """Return all listed runs by their id."""
        listed, cursor = dict[str, Json](), None
        while True:
            page = {"limit": 200, **({"cursor": cursor} if cursor else {"updated_after": 0})}
            answer = await self._client.get("/runs", params=page)
            if not answer.is_success:
                return listed
            listed |= {run["run_id"]: run for run in answer.json()["items"]}
            cursor = answer.json()["next_cursor"]
            if not cursor:
                return listed

    async def _not_ended(self) -> list[str]:
        listed, found = await self._listed(), list[str]()
        for run_id, flow in self._promises.runs.items():
            run = listed.get(run_id)
            if run is None:
                continue  # lost
            if not (run["status"] in ENDED or self._waits(run_id, flow, run)):
                found.append(f"{run_id} ({flow}) is {run['status']}")
            found += self._contradictions(run)
        return found

    def _waits(self, run_id: str, flow: str, run: Json) -> bool:
        """Return whether it is right that the run has not ended."""
        if flow == NEVER:
            return bool(run["status"] == "PENDING")
        return flow == "asking" and run_id not in self._promises.resumed and bool(run.get("waiting"))

    # --- Everything else --------------------------------------------------------------------------------------------

    async def _lost_beside_runs(self) -> list[str]:
        checks = (self._lost_outputs, self._lost_events, self._lost_graphs, self._lost_wheels, self._lost_keys)
        return [lost for check in (*checks, self._lost_idempotency_keys) for lost in await check()]

    async def _lost_outputs(self) -> list[str]:
        lost = []
        for run_id, size in self._promises.outputs.items():
            answer = await self._client.get(f"/runs/{run_id}/nodes/large/output")
            if not answer.is_success or len(answer.content) != size:
                lost.append(f"the output of {run_id}: {answer.status_code}, {len(answer.content)} of {size} bytes")
        return lost

    async def _lost_events(self) -> list[str]:
        lost = []
        for execution_id, promised in self._promises.executions.items():
            page = await self._get(f"/executions/{execution_id}/events")
            found = [] if page is None else [event["eventId"] for event in page["events"]]
            if [event for event in found if event in promised] != promised:
                lost.append(f"events of {execution_id}: {len(promised)} were acknowledged, {len(found)} are left")
        return lost

    async def _lost_graphs(self) -> list[str]:
        return [f"graph {name}" for name in self._promises.graphs if await self._get(f"/graphs/{name}") is None]

    async def _lost_wheels(self) -> list[str]:
        known, answer = self._promises, await self._client.get("/wheels")
        if not answer.is_success:
            return [f"GET /wheels: {answer.status_code}"]
        listed = {wheel["name"] for wheel in answer.json()}
        lost = [f"the deletion of wheel {name}" for name in known.deleted_wheels & listed]
        for name, content in known.wheels.items():
            if name not in known.asked.deletions:
                found = await self._client.get(f"/wheels/{name}")
                if name not in listed or not found.is_success or found.content != content:
                    lost.append(f"wheel {name}: {found.status_code}")
        return lost

    async def _lost_keys(self) -> list[str]:
        lost, known = [], self._promises
        for key_id, key in known.keys.items():
            status = (await self._client.get("/runs?limit=1", headers={"X-API-Key": key})).status_code
            if key_id in known.revoked and status != httpx.codes.FORBIDDEN:
                lost.append(f"the revocation of key {key_id}: {status}")
            if key_id not in known.asked.revocations and status != httpx.codes.OK:
                lost.append(f"key {key_id}: {status}")
        return lost

    async def _lost_idempotency_keys(self) -> list[str]:
        lost = []
        for key, run_id in self._promises.keyed.items():
            body = {"flow_name": "quick", "params": {"number": 1}}
            answer = await self._client.post("/runs", json=body, headers={"Idempotency-Key": key})
            if not answer.is_success or answer.json()["run_id"] != run_id:
                lost.append(f"the run of {key}: {answer.status_code}")
        return lost


async def _until_empty(look: Callable[[], Awaitable[list[str]]], within_sec: float) -> tuple[list[str], float]:
    """Look until nothing is found; return what is found at the end, and after how many seconds."""
    began = time.monotonic()
    while found := await look():
        if time.monotonic() - began > within_sec:
            break
        await asyncio.sleep(0.3)
    return found, time.monotonic() - began
