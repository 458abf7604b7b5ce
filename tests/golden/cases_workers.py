"""Runs on a platform in memory: queued, parked, taken over, redelivered, rescued, given up on."""

import asyncio
import contextlib
from typing import Any

from pyoco import Flow  # type: ignore[import-untyped]  # pyoco ships no type information

from pyoco_server import wait
from pyoco_server.app.ports import UnavailableError
from tests.app.runtime.flows import Calls, approval_flow, fan_flow, program_flow
from tests.golden.cases_flows import YAML
from tests.golden.files import Recorded
from tests.golden.recording import case, fails, on_a_platform, task
from tests.worker.faulty import Fault
from tests.worker.test_redelivery import FOREIGN, RUN, die
from tests.worker.world import USER, Held, World


@case("submitted with everything that can be said, run by one worker, archived")
def submitted() -> Recorded:
    async def body(world: World) -> str:
        given: dict[str, Any] = {
            "tag": "cpu",
            "tags": ("cpu", "nightly"),
            "tenant_id": "acme",
            "api_key_id": "k0123456789abcdef",
        }
        run_id = await world.submit("fan", {"n": 1}, **given)
        await world.hand({"fan": fan_flow(Calls())}).work("cpu")
        await world.archive(run_id, USER)
        return run_id

    return on_a_platform(body)


@case("queued, and nobody has taken it yet")
def queued() -> Recorded:
    async def body(world: World) -> str:
        return await world.submit("fan", {"n": 1})

    return on_a_platform(body)


@case("a run that brings its flow.yaml along")
def yaml_run() -> Recorded:
    async def body(world: World) -> str:
        run_id = await world.submit("from-yaml", {"n": 2}, workflow_yaml=YAML)
        hand = world.hand({})
        await hand.work()
        await world.resume(run_id, "approve", {"ok": True}, USER)
        await hand.work()
        return run_id

    return on_a_platform(body)


@case("an output too large for the log, stored beside it")
def large_output() -> Recorded:
    async def body(world: World) -> str:
        flow = Flow("large") >> task("large", "x" * 70_000) >> task("size", lambda ctx: len(ctx.results["large"]))
        run_id = await world.submit("large")
        await world.hand({"large": flow}).work()
        return run_id

    return on_a_platform(body)


@case("parked by one worker, resumed, and gone on with by another")
def parked_taken_over() -> Recorded:
    async def body(world: World) -> str:
        run_id = await world.submit("approval")
        await world.hand({"approval": approval_flow(Calls())}, "w1").work()
        await world.pass_time(86_400)
        await world.resume(run_id, "approval", {"ok": True}, USER)
        await world.hand({"approval": approval_flow(Calls())}, "w2").work()
        return run_id

    return on_a_platform(body)


@case("parked in a loop and in both branches of a fork; every wait is answered, one after the other")
def parked_often() -> Recorded:
    async def body(world: World) -> str:
        flow = Flow("often") >> [wait("left"), wait("right")] >> task("after", 1)
        hand = world.hand({"often": flow})
        run_id = await world.submit("often")
        await hand.work()
        for node in ("right", "left"):
            await world.resume(run_id, node, node, USER)
            await hand.work()
        return run_id

    return on_a_platform(body)


@case("parked in the second round of a loop, and taken over there")
def parked_in_a_loop() -> Recorded:
    async def body(world: World) -> str:
        flow = Flow("rounds") >> task("a", 1) >> wait("ask")[2] >> task("b", 2)
        run_id = await world.submit("rounds")
        for number in (1, 2):
            await world.hand({"rounds": flow}, f"w{number}").work()
            [waiting] = (await world.stored(run_id))["waiting"]
            await world.resume(run_id, waiting["node_id"], number, USER)
        await world.hand({"rounds": flow}, "w3").work()
        return run_id

    return on_a_platform(body)


@case("a parked wait that ends by its deadline, seen by whoever looks after runs; its default is taken")
def parked_deadline_default() -> Recorded:
    async def body(world: World) -> str:
        flow = Flow("due") >> wait("ask", deadline_sec=3_600, default=["late"]) >> task("after", 1)
        hand = world.hand({"due": flow})
        run_id = await world.submit("due")
        await hand.work()
        await world.pass_time(3_601)
        await world.run_log.expire(run_id, "ask", USER)
        await hand.work()
        return run_id

    return on_a_platform(body)


@case("the same without a default: the run fails")
def parked_deadline_failed() -> Recorded:
    async def body(world: World) -> str:
        run_id = await world.submit("due")
        await world.hand({"due": Flow("due") >> wait("ask", deadline_sec=3_600) >> task("after", 1)}).work()
        await world.pass_time(3_601)
        await world.run_log.expire(run_id, "ask", USER)
        return run_id

    return on_a_platform(body)


@case("a worker dies at work; the job is redelivered, and another one goes on at the node")
def redelivered() -> Recorded:
    async def body(world: World) -> str:
        held = Held()
        flow = Flow("three") >> task("first", 1) >> held.task() >> task("last", 3)
        run_id = await world.submit("three")
        working = asyncio.create_task(world.hand({"three": flow}, "w1").work())
        await held.at_work()
        await die(world, working)
        held.release()
        await world.hand({"three": flow}, "w2").work()
        return run_id

    return on_a_platform(body)


@case("the log cannot be reached at an append in the middle of a program; another worker goes on")
def program_redelivered() -> Recorded:
    async def body(world: World) -> str:
        run_id = await world.submit("program", {"items": [1, 2]})
        world.trouble.next("log.append", *[Fault.NONE] * 4, Fault.NOT_DONE)
        world.trouble.next("log.read", Fault.NOT_DONE)
        for worker in ("w1", "w2"):
            await world.hand({"program": program_flow(Calls())}, worker).work()
        assert (await world.state(run_id)).is_terminal
        return run_id

    return on_a_platform(body)


@case("a value the log could not hold is lost with its worker: its node runs again")
def opaque_value_lost() -> Recorded:
    async def body(world: World) -> str:
        held = Held()
        make, use = task("make", lambda ctx: {3, 1}), task("use", lambda ctx: sorted(ctx.results["make"]))  # noqa: ARG005
        flow = Flow("opaque") >> make >> held.task() >> use
        run_id = await world.submit("opaque")
        working = asyncio.create_task(world.hand({"opaque": flow}, "w1").work())
        await held.at_work()
        await die(world, working)
        held.release()
        await world.hand({"opaque": flow}, "w2").work()
        return run_id

    return on_a_platform(body)


@case("delivered too often without an end: failed by the last worker that was given it")
def delivered_too_often() -> Recorded:
    async def body(world: World) -> str:
        held = Held()
        flows = {"held": Flow("held") >> held.task()}
        run_id = await world.submit("held")
        for number in (1, 2):
            working = asyncio.create_task(world.hand(flows, f"w{number}").work())
            await held.at_work()
            await die(world, working)
        await world.hand(flows, "w3").work()
        return run_id

    return on_a_platform(body, max_deliver=3)


@case("no worker has the flow")
def flow_not_found() -> Recorded:
    async def body(world: World) -> str:
        run_id = await world.submit("nowhere")
        await world.hand({}).work()
        return run_id

    return on_a_platform(body)


@case("a documented job of somebody else, adopted by the worker")
def foreign_job() -> Recorded:
    async def body(world: World) -> str:
        await world.publish({**FOREIGN, "priority": "extra fields are ignored"})
        await world.hand({"fan": fan_flow(Calls())}).work()
        return RUN

    return on_a_platform(body)


@case("a submission that was not accepted: its log is closed, and the run never runs")
def not_accepted() -> Recorded:
    async def body(world: World) -> str:
        run_id = "0b1c2d3e-0000-4000-8000-000000000001"
        world.trouble.next("queue.publish", Fault.NOT_DONE)
        with contextlib.suppress(UnavailableError):
            await world.submit("fan", {"n": 1}, run_id=run_id)
        return run_id

    return on_a_platform(body)


@case("cancelled while queued: it has ended before any worker saw it")
def cancel_queued() -> Recorded:
    async def body(world: World) -> str:
        run_id = await world.submit("fan", {"n": 1})
        await world.cancel(run_id, USER, "changed my mind")
        return run_id

    return on_a_platform(body)


@case("cancelled while parked: it ends at once")
def cancel_parked() -> Recorded:
    async def body(world: World) -> str:
        run_id = await world.submit("approval")
        await world.hand({"approval": approval_flow(Calls())}).work()
        await world.cancel(run_id, USER)
        return run_id

    return on_a_platform(body)


@case("cancelled at work: the worker hears of it, stops the task, and ends the run")
def cancel_at_work() -> Recorded:
    async def body(world: World) -> str:
        held = Held()
        run_id = await world.submit("held")
        working = asyncio.create_task(world.hand({"held": Flow("held") >> held.task() >> task("after", 1)}).work())
        await held.at_work()
        await world.cancel(run_id, USER, "enough")
        await working
        return run_id

    return on_a_platform(body)


@case("cancelled while its worker is dead: ended without it, once its grace is over")
def cancel_without_worker() -> Recorded:
    async def body(world: World) -> str:
        held = Held()
        run_id = await world.submit("held")
        working = asyncio.create_task(world.hand({"held": Flow("held") >> held.task()}).work())
        await held.at_work()
        await die(world, working)
        await world.cancel(run_id, USER)
        await world.pass_time(11)
        await world.run_log.end_cancel(run_id)
        return run_id

    return on_a_platform(body)


@case("cancel requested, and the task still at work")
def cancelling() -> Recorded:
    async def body(world: World) -> str:
        held = Held()
        run_id = await world.submit("held")
        working = asyncio.create_task(world.hand({"held": Flow("held") >> held.task()}).work())
        await held.at_work()
        await die(world, working)
        await world.cancel(run_id, USER)
        return run_id

    return on_a_platform(body)


@case("failed, with a dead letter for it")
def failed_run() -> Recorded:
    async def body(world: World) -> str:
        run_id = await world.submit("boom")
        await world.hand({"boom": Flow("boom") >> task("a", 1) >> fails("b")}).work()
        return run_id

    return on_a_platform(body)
