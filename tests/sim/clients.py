"""Users of the platform: they send requests to gateways, and record the answers."""

import asyncio
from typing import Final

import msgspec

from pyoco_server.app.ports import RunQuery, UnavailableError
from pyoco_server.app.runs.commands import Sender
from pyoco_server.app.runs.queries import page_of_runs
from pyoco_server.app.runs.submit import Submission
from pyoco_server.app.snapshots.status import run_status
from pyoco_server.core import Actor, ActorKind
from pyoco_server.gateway.timeouts import in_time
from tests.sim.actors import Gateway
from tests.sim.asking import EXPECTED, Caller, NoAnswerError
from tests.sim.flows import FLOWS, PARAMS, WAITING
from tests.sim.history import Kind, Operation

USER: Final = Actor(ActorKind.USER, "ann")
SENDER: Final = Sender(actor=USER)
FLOW_NAMES: Final = sorted(FLOWS)


class Client(Caller):
    """One user of the platform."""

    async def act(self, times: int, within_sec: float) -> None:
        """Submit a run, then do random deeds for a while."""
        chance = self._chance
        deeds = (
            *(self.submit, self.submit, self.cancel, self.resume, self.approve),
            *(self.get, self.look, self.list, self.watch),
        )
        await self.submit()
        for _ in range(times):
            await asyncio.sleep(chance.random() * 2 * within_sec / times)
            await deeds[int(chance.random() * len(deeds))]()

    # --- Deeds -------------------------------------------------------------------------------------------------------

    async def submit(self) -> None:
        """Submit a run; sometimes under a key that this or another client used before."""
        chance, keys = self._chance, self._world.keys
        if keys and chance.random() < 0.4:
            key, flow_name = keys[int(chance.random() * len(keys))]
        else:
            key, flow_name = f"key {len(keys)}", FLOW_NAMES[int(chance.random() * len(FLOW_NAMES))]
        await self._submit(key, flow_name)

    async def _submit(self, key: str, flow_name: str) -> None:
        world = self._world
        if (key, flow_name) not in world.keys:
            world.keys.append((key, flow_name))
        submission = Submission(flow_name=flow_name, params=PARAMS)
        operation = Operation(Kind.SUBMIT, "", self._loop.steps, key=key, client=self.process.name)
        with self._history.asking(operation):
            try:
                snapshot = await self._ask(
                    f"submit {key}", lambda gate: in_time(gate.once.submit(submission, USER, key=key))
                )
            except (NoAnswerError, UnavailableError):
                return
            operation.run_id, operation.answer = str(snapshot["run_id"]), str(snapshot["status"])
            operation.answered = self._loop.steps
            world.note_run(operation.run_id, flow_name)

    async def cancel(self) -> None:
        """Cancel some run."""
        run_id = self._some_run()
        if run_id is None:
            return
        await self._asking_about(
            Kind.CANCEL, run_id, lambda gate: gate.commands.cancel(run_id, SENDER), lambda found: str(found["status"])
        )

    async def get(self) -> None:
        """Ask how a run stands."""
        run_id = self._some_run()
        if run_id is not None:
            await self._asking_about(
                Kind.GET,
                run_id,
                lambda gate: gate.run_log.open(run_id),
                lambda run: run_status(run.execution.state).value,
            )

    async def look(self) -> None:
        """Look at a run's snapshot."""
        run_id = self._some_run()
        if run_id is not None:
            await self._look(run_id)

    async def resume(self) -> None:
        """Resume the waiting nodes of some run."""
        run_id = self._some_run()
        if run_id is not None:
            await self.resume_all(run_id)

    async def approve(self) -> None:
        """Submit a flow that waits, and resume it as soon as it does."""
        await self._submit(f"key {len(self._world.keys)}", WAITING[int(self._chance.random() * len(WAITING))])
        run_id = self._world.runs[-1] if self._world.runs else None
        for _ in range(8 if run_id is not None else 0):
            if await self.resume_all(str(run_id)):
                return
            await asyncio.sleep(0.01 * self._chance.random())

    async def resume_all(self, run_id: str) -> bool:
        """Resume all waiting nodes of a run; return False if none waited, or if no answer says so."""

        async def resuming(gate: Gateway) -> list[str]:
            run = await gate.run_log.open(run_id)
            live = sorted(node.node_id for node in run.execution.state.live_nodes() if node.status == "WAITING")
            for node_id in live:
                await gate.commands.resume(run_id, node_id, 1, SENDER)
            return live

        try:
            resumed = await self._ask(f"resume {run_id}", resuming)
        except (NoAnswerError, *EXPECTED):
            return False
        self._world.resumed.update((run_id, node_id) for node_id in resumed)
        return bool(resumed)

    async def list(self) -> None:
        """List all runs, two per page: no run may appear twice, whatever happens meanwhile."""

        async def walking(gate: Gateway) -> list[str]:
            found: list[str] = []
            query = RunQuery(limit=2)
            while True:
                page = await page_of_runs(gate.index, gate.snapshots, query, full=False)
                found += [str(item["run_id"]) for item in page.items]
                if page.following is None:
                    return found
                query = msgspec.structs.replace(query, before=page.following)

        try:
            found = await self._ask("list", walking)
        except (NoAnswerError, UnavailableError):
            return
        if len(found) != len(set(found)):
            self._world.violation("lists show every run once", f"a list shows a run twice: {found}")

    async def watch(self) -> None:
        """Watch a run for a while: its version must never go back."""
        run_id = self._some_run()
        if run_id is None or run_id in self._world.watched:  # watchers of the same run receive updates in any order
            return
        self._world.watched.add(run_id)

        async def watching(gate: Gateway) -> None:
            seen = 0
            with gate.hub.watch(run_id, self.process.name) as watcher:
                for _ in range(3):
                    update = await watcher.next(1.0)
                    snapshot = update.snapshot(records=False) if update is not None else None
                    if snapshot is None:  # no change in time, or another program damaged the snapshot
                        continue
                    version = msgspec.json.decode(bytes(snapshot))["version"]
                    if version < seen:
                        self._world.violation("watchers never see a run go back", f"{run_id}: {version} after {seen}")
                    seen = version

        try:
            await self._ask(f"watch {run_id}", watching)
        except (NoAnswerError, UnavailableError):
            return
        finally:
            self._world.watched.discard(run_id)

    def _some_run(self) -> str | None:
        runs = self._world.runs
        return runs[int(self._chance.random() * len(runs))] if runs else None
