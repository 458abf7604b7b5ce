"""Dead workers: when a worker counts as dead, and that only its own jobs are released."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Final

import pytest
from pyoco import Flow  # type: ignore[import-untyped]  # pyoco ships no type information
from typing_extensions import override

from pyoco_server import wait
from pyoco_server.adapters.memory.work_queue import MemoryInFlightJobs, MemoryWorkQueue
from pyoco_server.app.ports import UnavailableError, Unsubscribe, WorkerRecord
from pyoco_server.app.ports.work_queue import InFlightJob
from pyoco_server.app.ports.workers import Sign
from pyoco_server.app.recovery.dead_workers import LONGEST_INTERVAL_SEC, MOST_TRIES, DeadWorkers
from pyoco_server.worker.settlement import Ack
from tests.gateway.stand import eventually
from tests.waiting import wait_until
from tests.worker.faulty import Fault
from tests.worker.test_redelivery import die
from tests.worker.world import PAUSE_SEC, USER, Hand, Held, World, attempt

GRACE_SEC: Final = 0.3
ROUND_SEC: Final = 0.05
ROUNDS: Final = 4
"""The absence is seen, the heartbeats are noted, and compared: one round each, and a spare one."""


class Signs:
    """Serves the Liveness port: processes answer as a test says."""

    def __init__(self) -> None:
        self.outages = 0
        self.asked: list[str] = []
        self.now: dict[str, Sign] = {}
        """Who is not in here answers."""

    async def subscribe(self, on_record: Callable[[WorkerRecord], None]) -> Unsubscribe:
        raise NotImplementedError(on_record)

    async def ask(self, instance_id: str) -> Sign:
        self.asked.append(instance_id)
        return self.now.get(instance_id, Sign.ANSWERED)


class Refusing(MemoryInFlightJobs):
    """A queue that drops every request to release a job."""

    def __init__(self, queue: MemoryWorkQueue) -> None:
        super().__init__(queue)
        self.asked: list[int] = []

    @override
    async def give_back(self, job: InFlightJob) -> None:
        self.asked.append(job.number)
        raise UnavailableError("no answer")


class Slow(MemoryInFlightJobs):
    """A queue with so many jobs out that to look at them takes its time; something may happen meanwhile."""

    def __init__(self, queue: MemoryWorkQueue, takes_sec: float, then: Callable[[], None] = lambda: None) -> None:
        super().__init__(queue)
        self._takes_sec = takes_sec
        self._then = then

    @override
    async def look(self, tags: Collection[str]) -> Sequence[InFlightJob]:
        found = await super().look(tags)
        await asyncio.sleep(self._takes_sec)
        self._then()
        return found


class Scene:
    """A worker that executes a run, and a gateway that watches it."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.signs = Signs()
        self.held = Held()
        self.flows = {"held": Flow("held") >> self.held.task(), "ask": Flow("ask") >> wait("go")}
        self.hand = world.hand(self.flows, "w1")
        self.gateway = self.another()

    def another(self, jobs: MemoryInFlightJobs | None = None) -> DeadWorkers:
        """What one more gateway looks with."""
        return DeadWorkers(
            liveness=self.signs,
            jobs=jobs or MemoryInFlightJobs(self.world.queue.inner),
            registry=self.world.registry,
            log=self.world.log,
            snapshots=self.world.snapshots,
            grace_sec=GRACE_SEC,
        )

    async def announce(self, hand: Hand, *gateways: DeadWorkers) -> WorkerRecord:
        """Write the record of the worker; the gateways see it and ask for the first time."""
        await hand.registration.announce()
        record = await self.world.registry.get(hand.options.worker_id)
        assert record is not None
        for gateway in gateways or (self.gateway,):
            gateway.note_record(record)
            await gateway.look()
        return record

    async def at_work(self) -> tuple[str, "asyncio.Task[object]"]:
        """A run is at work, and the worker known."""
        run_id = await self.world.submit("held")
        working: asyncio.Task[object] = asyncio.create_task(self.hand.work())
        await self.held.at_work()
        await self.announce(self.hand)
        return run_id, working

    def lose(self, sign: Sign = Sign.DISCONNECTED) -> None:
        self.signs.now[self.hand.instance_id] = sign

    async def look(self, *gateways: DeadWorkers, graces: float = 2.0) -> None:
        """Look for so many times the grace; if it is over by then, often enough however long a look takes."""
        loop = asyncio.get_running_loop()
        end, left = loop.time() + graces * GRACE_SEC, ROUNDS if graces > 1 else 0
        while loop.time() < end or left > 0:
            began, left = loop.time(), left - 1
            await asyncio.gather(*(gateway.look() for gateway in gateways or (self.gateway,)))
            await asyncio.sleep(ROUND_SEC)
            if graces > 1 and loop.time() > began + LONGEST_INTERVAL_SEC:  # a gateway that stalled restarts the grace
                end, left = loop.time() + graces * GRACE_SEC, ROUNDS

    async def is_back_in_the_queue(self) -> bool:
        return await self.world.queue.inner.pull("default", timeout_sec=0) is not None


async def wait_until_looked(made: Scene, looks: list[None], times: int) -> None:
    """Repeat the scan until the jobs in flight were read so many times."""
    while len(looks) < times:
        await made.look(graces=0.1)


def scene(body: Callable[[Scene], Awaitable[None]]) -> None:
    attempt(lambda world: body(Scene(world)))


def test_jobs_of_a_dead_worker_are_delivered_to_another_at_once() -> None:
    async def body(made: Scene) -> None:
        run_id, working = await made.at_work()
        await die(made.world, working)
        made.lose()
        await made.look()
        made.held.release()
        before = made.world.clock.now()
        assert await made.world.hand(made.flows, "w2").work() == Ack()
        assert (made.world.clock.now() - before).total_seconds() == PAUSE_SEC
        assert (await made.world.stored(run_id))["status"] == "COMPLETED"
        assert made.held.began == 2
        record = await made.world.registry.get("w1")
        assert record is not None
        assert record["lost_instance_id"] == made.hand.instance_id
        asked = len(made.signs.asked)
        await made.look(graces=0.5)
        assert len(made.signs.asked) == asked, "a dead worker is not asked forever"

    scene(body)


def test_nothing_happens_before_the_grace_is_over() -> None:
    async def body(made: Scene) -> None:
        _, working = await made.at_work()
        await die(made.world, working)
        made.lose()
        await made.gateway.look()
        await made.gateway.look()
        assert not await made.is_back_in_the_queue()

    scene(body)


@pytest.mark.parametrize("sign", [Sign.UNKNOWN, Sign.ANSWERED])
def test_a_single_other_sign_restarts_the_grace_period(sign: Sign) -> None:
    async def body(made: Scene) -> None:
        _, working = await made.at_work()
        await die(made.world, working)
        for _ in range(4):
            made.lose()
            await made.look(graces=0.6)
            made.lose(sign)
            await made.gateway.look()
        assert not await made.is_back_in_the_queue()
        made.lose()
        await made.look()
        assert await made.is_back_in_the_queue()

    scene(body)


def test_an_outage_of_the_gateway_restarts_the_grace_period() -> None:
    async def body(made: Scene) -> None:
        _, working = await made.at_work()
        await die(made.world, working)
        made.lose()
        for _ in range(4):
            await made.look(graces=0.6)
            made.signs.outages += 1
        assert not await made.is_back_in_the_queue()

    scene(body)


def test_a_worker_that_never_answered_is_neither_considered_dead_nor_asked() -> None:
    """A worker of an older version, or one that may not answer, works like any other."""

    async def body(made: Scene) -> None:
        made.lose()
        _, working = await made.at_work()
        asked = len(made.signs.asked)
        await made.look()
        assert len(made.signs.asked) == asked
        assert not await made.is_back_in_the_queue()
        made.held.release()
        assert await working == Ack()

    scene(body)


def test_a_worker_whose_runs_have_new_heartbeats_is_alive_although_it_does_not_listen() -> None:
    async def body(made: Scene) -> None:
        run_id, working = await made.at_work()
        made.lose()
        [driven] = made.hand.handler.running.values()
        loop = asyncio.get_running_loop()
        end = loop.time() + 3 * GRACE_SEC
        while loop.time() < end:
            await made.world.pass_time(1.0)
            await driven.beat()
            await made.gateway.look()
            await asyncio.sleep(ROUND_SEC)
        made.held.release()
        assert await working == Ack()
        assert ((await made.world.stored(run_id))["status"], made.held.began) == ("COMPLETED", 1)

    scene(body)


def test_a_worker_that_begins_runs_is_not_gone_though_none_of_them_lives_long() -> None:
    async def body(made: Scene) -> None:
        _, working = await made.at_work()
        made.lose()
        await made.look(graces=0.7)  # what it has in hand is noted by now
        made.held.release()
        assert await working == Ack()
        other = Held()
        made.flows["other"] = Flow("other") >> other.task()
        run_id = await made.world.submit("other")
        working = asyncio.create_task(made.hand.work())
        await other.at_work()
        await made.look(graces=1)
        assert not await made.is_back_in_the_queue()
        other.release()
        assert await working == Ack()
        assert (await made.world.stored(run_id))["status"] == "COMPLETED"

    scene(body)


def test_a_scan_that_takes_longer_than_the_interval_still_releases_jobs() -> None:
    async def body(made: Scene) -> None:
        made.gateway = made.another(Slow(made.world.queue.inner, 3.1 * LONGEST_INTERVAL_SEC))
        _, working = await made.at_work()
        await die(made.world, working)
        made.lose()
        running = asyncio.create_task(made.gateway.run())
        await eventually(made.is_back_in_the_queue)
        running.cancel()

    scene(body)


def test_a_worker_that_answers_before_the_scan_ends_keeps_its_jobs() -> None:
    async def body(made: Scene) -> None:
        looks: list[None] = []

        def back() -> None:
            looks.append(None)
            if len(looks) == 2:  # the second is for the verdict
                made.lose(Sign.ANSWERED)

        made.gateway = made.another(Slow(made.world.queue.inner, 0.0, back))
        _, working = await made.at_work()
        made.lose()
        await made.look()
        assert len(looks) == 2
        assert not await made.is_back_in_the_queue()
        made.held.release()
        assert await working == Ack()

    scene(body)


def test_only_one_of_two_gateways_releases_the_jobs() -> None:
    async def body(made: Scene) -> None:
        one, other = made.another(), made.another()
        _, working = await made.at_work()
        await made.announce(made.hand, one, other)
        await die(made.world, working)
        made.lose()
        taken = 0
        for _ in range(20):
            await made.look(one, other, graces=0.1)
            delivery = await made.world.queue.inner.pull("default", timeout_sec=0)
            taken += delivery is not None
        assert taken == 1

    scene(body)


def test_a_worker_that_came_back_can_be_considered_dead_again() -> None:
    async def body(made: Scene) -> None:
        _, working = await made.at_work()
        await die(made.world, working)
        made.lose()
        await made.look()
        assert await made.is_back_in_the_queue()
        made.lose(Sign.ANSWERED)
        record = await made.announce(made.hand)
        assert record["lost_instance_id"] is None
        made.lose()
        await made.look()
        assert await made.is_back_in_the_queue()

    scene(body)


def test_a_dead_process_is_detected_although_another_uses_its_name() -> None:
    async def body(made: Scene) -> None:
        _, working = await made.at_work()
        await die(made.world, working)
        made.lose()
        await made.announce(made.world.hand(made.flows, "w1"))
        await made.look()
        assert await made.is_back_in_the_queue()

    scene(body)


def test_jobs_of_others_are_left_alone() -> None:
    async def body(made: Scene) -> None:
        await made.announce(made.hand)
        other = made.world.hand(made.flows, "w2")
        await made.world.submit("held")
        working = asyncio.create_task(other.work())
        await made.held.at_work()
        await made.world.submit("held")
        await made.hand.pull()  # in flight, but not started: no log says which worker has it
        await made.world.publish(b"no job")
        await made.hand.pull()
        made.lose()
        await made.look()
        assert not await made.is_back_in_the_queue()
        made.held.release()
        assert await working == Ack()

    scene(body)


def test_however_many_die_together_each_log_is_read_once_a_look_and_who_lives_keeps_its_jobs() -> None:
    async def body(made: Scene) -> None:
        *dying, alive = hands = [made.world.hand(made.flows, f"w{number}") for number in range(6)]
        working: dict[str, list[asyncio.Task[object]]] = {hand.instance_id: [] for hand in hands}
        for hand in hands * 2:
            await made.world.submit("held")
            working[hand.instance_id].append(asyncio.create_task(hand.work()))
        runs = 2 * len(hands)
        await wait_until(lambda: made.held.began == runs)
        for hand in hands:
            await made.announce(hand)
        for hand in dying:
            made.signs.now[hand.instance_id] = Sign.DISCONNECTED
            for task in working[hand.instance_id]:
                await die(made.world, task)
        before = made.world.trouble.calls.count("log.read")
        await made.look()
        reads = made.world.trouble.calls.count("log.read") - before
        assert reads <= 3 * runs  # in the middle of the grace, at its end, and to spare
        back = 0
        while await made.is_back_in_the_queue():
            back += 1
        assert back == 2 * len(dying)
        made.held.release()
        assert await asyncio.gather(*working[alive.instance_id]) == [Ack(), Ack()]

    scene(body)


def test_an_outage_of_ours_while_all_is_looked_at_is_no_verdict() -> None:
    async def body(made: Scene) -> None:
        looks: list[None] = []

        def cut_off() -> None:
            looks.append(None)
            if len(looks) == 2:  # the second is for the verdict
                made.signs.outages += 1

        made.gateway = made.another(Slow(made.world.queue.inner, 0.0, cut_off))
        _, working = await made.at_work()
        made.lose()
        await wait_until_looked(made, looks, 2)
        assert not await made.is_back_in_the_queue()
        made.lose(Sign.ANSWERED)
        made.held.release()
        assert await working == Ack()

    scene(body)


def test_a_worker_that_deregistered_is_not_considered_dead() -> None:
    async def body(made: Scene) -> None:
        _, working = await made.at_work()
        await die(made.world, working)
        await made.hand.registration.stopped("graceful_shutdown")
        record = await made.world.registry.get("w1")
        assert record is not None
        made.gateway.note_record(record)
        made.lose()
        await made.look()
        assert not await made.is_back_in_the_queue()

    scene(body)


def test_the_wake_up_of_a_parked_run_is_not_released_with_its_former_worker() -> None:
    """The worker that parked the run is dead; another one holds the wake-up."""

    async def body(made: Scene) -> None:
        run_id = await made.world.submit("ask")
        assert await made.hand.work() == Ack()
        await made.announce(made.hand)
        stored = await made.world.stored(run_id)
        assert stored["waiting"]
        await made.world.publish(
            {"run_id": run_id, "flow_name": "ask", "tag": "default", "submitted_at": 1, "wake": True}
        )
        await made.world.hand(made.flows, "w2").pull()
        made.lose()
        await made.look()
        assert not await made.is_back_in_the_queue()
        await made.world.cancel(run_id, USER)

    scene(body)


def test_the_wake_up_of_a_resumed_run_is_not_released_before_a_worker_starts_it() -> None:
    async def body(made: Scene) -> None:
        run_id = await made.world.submit("ask")
        assert await made.hand.work() == Ack()
        await made.announce(made.hand)
        await made.world.resume(run_id, "go", "on", USER)
        other = made.world.hand(made.flows, "w2")
        delivery = await other.pull()  # and it takes long to load the flow
        made.lose()
        await made.look()
        assert not await made.is_back_in_the_queue()
        assert await other.handle(delivery) == Ack()
        assert (await made.world.stored(run_id))["status"] == "COMPLETED"

    scene(body)


def test_a_store_that_is_away_is_asked_again_and_nothing_is_given_back_twice() -> None:
    async def body(made: Scene) -> None:
        _, working = await made.at_work()
        await die(made.world, working)
        made.lose()
        made.world.trouble.next("registry.update", Fault.NOT_DONE)
        running = asyncio.create_task(made.gateway.run())
        await eventually(made.is_back_in_the_queue)
        await made.look(graces=1.5)
        assert not await made.is_back_in_the_queue()
        running.cancel()

    scene(body)


def test_a_gateway_that_may_not_release_jobs_leaves_them_to_the_ack_wait() -> None:
    async def body(made: Scene) -> None:
        refusing = Refusing(made.world.queue.inner)
        made.gateway = made.another(refusing)
        _, working = await made.at_work()
        await die(made.world, working)
        made.lose()
        running = asyncio.create_task(made.gateway.run())
        await wait_until(lambda: len(refusing.asked) == MOST_TRIES)
        asked = len(made.signs.asked)
        await asyncio.sleep(2 * GRACE_SEC)  # what must not happen needs its time
        assert (len(refusing.asked), len(made.signs.asked)) == (MOST_TRIES, asked)
        assert not await made.is_back_in_the_queue()
        running.cancel()
        made.held.release()
        before = made.world.clock.now()
        assert await made.world.hand(made.flows, "w2").work() == Ack()
        assert (made.world.clock.now() - before).total_seconds() > 0

    scene(body)


@pytest.mark.parametrize(
    "record",
    [
        {},
        {"worker_id": "w", "instance_id": "a.b", "tags": [], "state": "IDLE"},
        {"worker_id": "w w", "instance_id": "a", "tags": [], "state": "IDLE"},
        {"worker_id": "w", "instance_id": 1, "tags": [], "state": "IDLE"},
        {"worker_id": "w", "instance_id": "a", "tags": "x", "state": "IDLE"},
        {"worker_id": "w", "instance_id": "a", "tags": [], "state": "STOPPED_GRACEFUL"},
    ],
)
def test_entries_that_are_none_of_ours_are_passed_over(record: WorkerRecord) -> None:
    async def body(made: Scene) -> None:
        made.gateway.note_record(record)
        await made.gateway.look()
        assert made.signs.asked == []

    scene(body)
