"""Flows in the engine: networks, programs, retries, timeouts, waits, cancels, and values of every kind."""

import threading
from functools import partial
from typing import Any

from pyoco import Flow  # type: ignore[import-untyped]  # pyoco ships no type information
from pyoco.dsl.syntax import TaskWrapper, switch  # type: ignore[import-untyped]

from pyoco_server import options, wait
from pyoco_server.core import ExecutionState
from pyoco_server.flows.model import Backoff, BackoffKind
from pyoco_server.flows.yaml.document import read_flow_yaml
from pyoco_server.testing import FlowTester
from tests.golden.files import Recorded
from tests.golden.recording import case, fails, run, run_with, task

# --- Networks --------------------------------------------------------------------------------------------------------


@case("three tasks, one after the other, each using the result of the one before")
def chain() -> Recorded:
    second = task("second", lambda ctx: ctx.results["first"] + 1)
    third = task("third", lambda ctx: [ctx.results["first"], ctx.results["second"]])
    return run(Flow("chain") >> task("first", lambda ctx: ctx.params["n"]) >> second >> third, {"n": 3})


@case("one task opens into three, which meet again")
def fan() -> Recorded:
    branches = [task(name, lambda ctx, add=number: ctx.results["seed"] + add) for number, name in enumerate("abc")]
    total = task("total", lambda ctx: sum(ctx.results[name] for name in "abc"))
    return run(Flow("fan") >> task("seed", 10) >> branches >> total)


@case("several beginnings and several ends, which meet however they end")
def loose_ends() -> Recorded:
    return run(Flow("loose") >> [task("a", 1), fails("b", fail_policy="isolate"), task("c", 3)])


@case("a task that waits for any of two, one of which fails on its own account")
def any_of_two() -> Recorded:
    any_of = task("c", "went on", trigger_policy="ANY")
    return run(Flow("any") >> [fails("a", fail_policy="isolate"), task("b", 2)] >> any_of)


@case("a failure stops the flow; a sibling at work is interrupted and gives up")
def failure_stops() -> Recorded:
    began = threading.Event()

    def until_cancelled(ctx: Any) -> None:
        began.set()
        while not ctx.is_cancelled:
            began.wait(0.001)

    def boom(ctx: Any) -> None:  # noqa: ARG001 as tasks are called
        began.wait(5)
        raise LookupError("größe\nin two lines")

    return run(Flow("stops") >> [task("at_work", until_cancelled), task("breaks", boom)] >> task("never", 1))


@case("a failure isolated: those behind it are skipped, others go on")
def failure_isolated() -> Recorded:
    left = fails("left", fail_policy="isolate")
    return run(Flow("isolated") >> task("seed", 1) >> [left, task("right", 2)] >> task("both", 3))


@case("an exception without words, one with a detail of its own, and one that cannot be shown")
def failure_texts() -> Recorded:
    class MuteError(Exception):
        def __str__(self) -> str:  # type: ignore[explicit-override]
            raise RuntimeError("not even that")

    steps = [
        fails("wordless", KeyError(), fail_policy="isolate"),
        fails("halves", ValueError("half a pair: \ud800"), fail_policy="isolate"),
        fails("mute", MuteError(), fail_policy="isolate"),
        fails("long", ValueError("x" * 5_000), fail_policy="isolate"),
    ]
    return run(Flow("texts") >> steps)


# --- Retries and timeouts --------------------------------------------------------------------------------------------


def _third_time(name: str) -> TaskWrapper:
    left = [ValueError("once"), ValueError("twice")]

    def body(ctx: Any) -> str:  # noqa: ARG001 as tasks are called
        if left:
            raise left.pop(0)
        return "at last"

    return task(name, body)


@case("two attempts fail, the third succeeds; the pauses grow, with chance in them")
def retried() -> Recorded:
    backoff = Backoff(kind=BackoffKind.EXPONENTIAL, delay_sec=1, factor=3, cap_sec=100, jitter=0.5)
    return run(Flow("retried") >> options(_third_time("flaky"), retries=3, backoff=backoff))


@case("all attempts fail")
def retries_used_up() -> Recorded:
    return run(Flow("used_up") >> options(fails("never"), retries=2, backoff=5.0) >> task("after", 1))


@case("fail_policy retry: one more attempt although none was asked for")
def fail_policy_retry() -> Recorded:
    return run(Flow("retry") >> options(fails("a"), fail_policy="retry"))


def _is_at(node_id: str, attempt: int, state: ExecutionState) -> bool:
    return state.nodes[node_id].attempt == attempt


@case("an attempt takes longer than it may, and the next one too")
def timeout() -> Recorded:
    release = threading.Event()
    slow = options(task("slow", lambda ctx: release.wait(20)), timeout_sec=0.2, retries=1)  # noqa: ARG005

    def meanwhile(tester: FlowTester, run_id: str) -> None:
        for number in (1, 2):
            tester.wait_until(run_id, partial(_is_at, "slow", number))
            tester.advance(1, overtake=True)
        release.set()

    return run_with(Flow("timeout") >> slow, None, meanwhile)


# --- Waits -----------------------------------------------------------------------------------------------------------


@case("a wait with a key and a prompt, resumed with a value")
def wait_resumed() -> Recorded:
    ask = wait("approval", key="release", prompt={"question": "Ship?", "choices": ["yes", "no"]})
    take = task("take", lambda ctx: ctx.results["approval"])

    def meanwhile(tester: FlowTester, run_id: str) -> None:
        tester.wait_until_waiting(run_id, "approval")
        tester.advance(3_600)
        tester.resume(run_id, "approval", {"approved": True, "by": "ann"}, key="release")

    return run_with(Flow("asks") >> task("draft", "text") >> ask >> take, None, meanwhile)


@case("a wait past its deadline yields its default")
def wait_deadline_default() -> Recorded:
    return run(Flow("due") >> wait("ask", deadline_sec=60, default={"late": True}) >> task("after", 1))


@case("a wait past its deadline without a default fails")
def wait_deadline_failed() -> Recorded:
    return run(Flow("due") >> wait("ask", prompt="In time?", deadline_sec=60) >> task("after", 1))


@case("two waits side by side, one resumed with nothing, one by its deadline with null")
def waits_side_by_side() -> Recorded:
    def meanwhile(tester: FlowTester, run_id: str) -> None:
        tester.wait_until_waiting(run_id, "left")
        tester.wait_until_waiting(run_id, "right")
        tester.resume(run_id, "left")

    sides = [wait("left"), wait("right", deadline_sec=5, default=None)]
    return run_with(Flow("sides") >> sides >> task("after", 1), None, meanwhile)


@case("still waiting: the log of a run that is not over")
def waiting() -> Recorded:
    def meanwhile(tester: FlowTester, run_id: str) -> None:
        tester.wait_until_waiting(run_id, "ask")

    return run_with(
        Flow("open") >> task("a", 1) >> wait("ask", deadline_sec=9) >> task("b", 2), None, meanwhile, to_the_end=False
    )


# --- Values ----------------------------------------------------------------------------------------------------------


@case("a task says how far it is")
def progress() -> Recorded:
    def body(ctx: Any) -> int:
        ctx.progress(10, "begun")
        ctx.progress(55.5)
        ctx.progress(None, "nearly")
        return 1

    return run(Flow("progress") >> task("tells", body))


@case("values JSON cannot hold: kept as text, and missing for whoever takes over")
def opaque_values() -> Recorded:
    made = [
        task("a_set", lambda ctx: {1}),  # noqa: ARG005
        task("some_bytes", lambda ctx: b"\x00\xff"),  # noqa: ARG005
        task("no_number", lambda ctx: float("nan")),  # noqa: ARG005
        task("a_tuple", lambda ctx: (1, 2)),  # noqa: ARG005
        task("half_a_pair", lambda ctx: "\ud800"),  # noqa: ARG005
        task("number_keys", lambda ctx: {1: "one"}),  # noqa: ARG005
    ]
    return run(Flow("opaque") >> made >> task("use", lambda ctx: sorted(ctx.results["a_set"])))


@case("values at the edges of what JSON holds")
def edge_values() -> Recorded:
    params = {
        "large": 2**53 + 1,
        "larger": 2**63 - 1,
        "small": 5e-324,
        "float": 0.1,
        "whole_float": 1.0,
        "exponent": 1e300,
        "text": 'größe 節点 \u2028 \u0000 😀 "quoted" \\',
        "empty": [{}, [], "", None, False, 0],
        "": "a name of no letters",
    }
    return run(Flow("edges") >> task("all", lambda ctx: dict(ctx.params)), params)


# --- Programs --------------------------------------------------------------------------------------------------------


@case("loops over items, by number and by condition, and a choice")
def program() -> Recorded:
    grow = task("grow", lambda ctx: int(ctx.results.get("grow", 0)) + int(ctx.get_var("item", 1)))
    tick = task("tick", lambda ctx: ctx.loop.iteration)
    chosen = switch("$ctx.results.grow > 3")[True >> task("big", "big"), False >> task("small", "small")]
    flow = Flow("program") >> task("first", 1) >> grow["$ctx.params.items as item"] >> chosen
    return run(flow >> tick % ("$ctx.results.tick >= 2", 5) >> task("again", "r")[2], {"items": [1, 2, 3]})


@case("a loop that never comes to its end, and the flow that fails of it")
def until_too_often() -> Recorded:
    return run(Flow("often") >> task("a", 1) % ("$ctx.results.a > 1", 3) >> task("after", 1))


@case("a choice nobody thought of, and the flow that fails of it")
def switch_without_match() -> Recorded:
    return run(Flow("lost") >> switch("$ctx.params.kind")["a" >> task("ta", 1)] >> task("after", 1), {"kind": "b"})


@case("a task in a loop fails in its second round, after a retry")
def loop_fails() -> Recorded:
    def body(ctx: Any) -> int:
        if ctx.get_var("x") == 2:
            raise ValueError("not this one")
        return int(ctx.get_var("x"))

    return run(
        Flow("breaks") >> options(task("a", body), retries=1, backoff=2.0)["$ctx.params.xs as x"], {"xs": [1, 2]}
    )


YAML = """\
version: 1
flow:
  graph: |
    rows >> ( left:one & right:one >> last:one )
    >> foreach(over={{ results.rows }}, item=row, index=i, parallel=2){ one }
    >> repeat(count=2){ add } >> until(cond={{ $ctx.results.add >= 4 }}, max_iter=5){ add }
    >> switch(on={{ mode }}){ fast: pipe(end); default: add; }
    >> approve
  defaults: { n: 3, mode: fast }
pipes:
  end: fetch >> done
tasks:
  rows: { callable: "tests.golden.yaml_tasks:rows", outputs: [scratch.rows] }
  one: { callable: "tests.golden.yaml_tasks:one" }
  add: { callable: "tests.golden.yaml_tasks:add", retries: 1 }
  fetch: { callable: "tests.golden.yaml_tasks:fetch", inputs: { address: abc, times: $ctx.params.n } }
  done: { callable: "tests.golden.yaml_tasks:done" }
  approve: { wait: { prompt: "Send it?", deadline_sec: 86400, default: { ok: false } } }
"""


@case("a flow.yaml with every kind of block, a pipe, inputs, outputs and a wait")
def yaml_blocks() -> Recorded:
    return run(read_flow_yaml(YAML, name="from-yaml"), {"n": 2})


# --- Cancels ---------------------------------------------------------------------------------------------------------


def _at_work(name: str, *, polls: bool) -> tuple[TaskWrapper, threading.Event]:
    release = threading.Event()

    def body(ctx: Any) -> str:
        while not release.wait(0.001) and not (polls and ctx.is_cancelled):
            pass
        return "stopped"

    return task(name, body), release


@case("cancelled while a task is at work; it hears, and what it returns is still told")
def cancel_heard() -> Recorded:
    polling, _ = _at_work("hears", polls=True)

    def meanwhile(tester: FlowTester, run_id: str) -> None:
        tester.wait_until_running(run_id, "hears")
        tester.cancel(run_id, "enough")

    return run_with(Flow("heard") >> task("first", 1) >> polling >> task("never", 1), None, meanwhile)


@case("cancelled while a task is at work that does not hear: given up on after the grace period")
def cancel_not_heard() -> Recorded:
    deaf, release = _at_work("deaf", polls=False)

    def meanwhile(tester: FlowTester, run_id: str) -> None:
        tester.wait_until_running(run_id, "deaf")
        tester.cancel(run_id)
        tester.advance(11, overtake=True)
        release.set()

    return run_with(Flow("deaf") >> deaf >> task("never", 1), None, meanwhile)


@case("cancelled while it waits")
def cancel_while_waiting() -> Recorded:
    def meanwhile(tester: FlowTester, run_id: str) -> None:
        tester.wait_until_waiting(run_id, "ask")
        tester.cancel(run_id, "nobody answers")

    return run_with(Flow("asks") >> task("a", 1) >> wait("ask", deadline_sec=100) >> task("b", 1), None, meanwhile)


@case("cancelled between two attempts")
def cancel_between_attempts() -> Recorded:
    def meanwhile(tester: FlowTester, run_id: str) -> None:
        tester.wait_until(run_id, lambda state: state.nodes["a"].error is not None)
        tester.cancel(run_id)

    return run_with(Flow("retrying") >> options(fails("a"), retries=5, backoff=1_000.0), None, meanwhile)


@case("cancelled in the middle of a loop")
def cancel_in_a_loop() -> Recorded:
    polling, _ = _at_work("inside", polls=True)

    def meanwhile(tester: FlowTester, run_id: str) -> None:
        tester.wait_until(run_id, lambda state: any("inside" in node for node in state.nodes))
        tester.cancel(run_id)

    return run_with(Flow("loop") >> task("a", 1) >> polling[3], None, meanwhile)
