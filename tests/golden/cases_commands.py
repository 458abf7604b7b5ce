"""Executions that a client drives by commands: reports about a node, cancels, and logs of other programs."""

from typing import Any

from pyoco_server.core import CommandRejected, Event
from tests.build import chain, diamond, event, graph
from tests.golden.files import Recorded
from tests.golden.recording import Outside, case, from_outside


@case("attempts: reported failures, a second and a third try, the last one succeeds")
def attempts_from_outside() -> Recorded:
    async def script(outside: Outside) -> None:
        await outside.begin()
        for number in (1, 2):
            await outside.do("StartNode", "a", attempt=number, workerId=f"ruby-{number}")
            error = {"code": "TIMEOUT", "message": "no answer", "detail": {"after": 30.5}}
            await outside.do("FailNode", "a", attempt=number, error=error)
        await outside.do("StartNode", "a", attempt=3)
        await outside.do("SucceedNode", "a", attempt=3)

    return from_outside(graph("s:Start a z:Success", "s>a a>z", a={"retries": 2}), script)


@case("a failure that is not to be retried although attempts are left")
def not_retryable() -> Recorded:
    async def script(outside: Outside) -> None:
        await outside.begin()
        await outside.fail("a", retryable=False)

    return from_outside(graph("s:Start a z:Success", "s>a a>z", a={"retries": 5}), script)


@case("progress in percent, in words, in figures, and nothing but a sign of life")
def progress_from_outside() -> Recorded:
    async def script(outside: Outside) -> None:
        await outside.begin()
        await outside.do("StartNode", "a")
        await outside.do("ReportNodeProgress", "a", progress=0)
        await outside.do("ReportNodeProgress", "a", progress=33.25, message="page 4 of 12")
        await outside.do("ReportNodeProgress", "a", metrics={"rows": 12, "speed": 1.5e-7})
        await outside.do("ReportNodeProgress", "a")
        await outside.do("ReportNodeProgress", "a", progress=100)
        await outside.do("SucceedNode", "a")

    return from_outside(chain("a"), script)


@case("a wait: asked to be resumed, resumed with its key and an input, then done")
def wait_from_outside() -> Recorded:
    async def script(outside: Outside) -> None:
        await outside.begin()
        await outside.do("StartNode", "w")
        await outside.do("PutNodeWaiting", "w", waitKey="approval", prompt={"question": "Ship it?", "choices": [1, 2]})
        await outside.do("RequestResumeNode", "w", resumeKey="approval", requestedBy={"kind": "bot", "id": "b"})
        await outside.do("ResumeNode", "w", resumeKey="approval", input={"approved": True})
        await outside.do("SucceedNode", "w", output={"approved": True})

    return from_outside(graph("s:Start w:Wait z:Success", "s>w w>z"), script)


@case("a node of a type of its own, with fields the specification does not know in graph, commands and events")
def open_fields() -> Recorded:
    drawn = graph("s:Start a:Approval z:Success", "s>a a>z", a={"form": {"fields": ["name", "größe"]}, "weight": 0.1})

    async def script(outside: Outside) -> None:
        await outside.begin(input={"document": 17, "params": {"n": 1}}, correlationId="corr-1")
        await outside.do("StartNode", "a", workerId="ruby-1", region="eu", correlationId="corr-2", causationId="cause")
        await outside.do("SucceedNode", "a", output={"x": None}, cost=0.25)

    return from_outside(drawn, script)


@case("nodes and branches with names in any script, blanks, slashes and quotes")
def names_of_any_kind() -> Recorded:
    drawn = diamond("größe/1", '"x"', "節点", join={"policy": "ALL_SUCCESS"})

    async def script(outside: Outside) -> None:
        await outside.begin()
        await outside.succeed("größe/1", '"x"', "節点", "after")

    return from_outside(drawn, script)


@case("requests with idempotency keys, one of them given twice")
def idempotency_keys() -> Recorded:
    async def script(outside: Outside) -> None:
        await outside.begin(start=False)
        await outside.do("StartExecution", key="k1", startedBy={"kind": "cron", "id": "nightly"})
        await outside.do("StartNode", "a", key="k2")
        again = await outside.do("StartNode", "a", key="k2")
        assert again.events == []
        await outside.do("SucceedNode", "a", key="k3")

    return from_outside(chain("a"), script)


@case("commands that are refused leave nothing behind")
def refused_commands() -> Recorded:
    async def script(outside: Outside) -> None:
        await outside.begin()
        for command, node_id in (("SucceedNode", "a"), ("ResumeNode", "a"), ("ArchiveExecution", None)):
            try:
                await outside.do(command, node_id)
            except CommandRejected:
                continue
            raise AssertionError(f"{command} was not refused")
        await outside.do("MarkNodeReady", "a")
        await outside.succeed("a")

    return from_outside(chain("a"), script)


@case("cancelled while a node is at work, one waits and one is ready; the worker's answer ends it; then archived")
def cancel_from_outside() -> Recorded:
    drawn = graph("s:Start f:Fork a b w:Wait j:Join z:Success", "s>f f>a f>b f>w a>j b>j w>j j>z")

    async def script(outside: Outside) -> None:
        await outside.begin()
        await outside.do("StartNode", "a", workerId="ruby-1")
        await outside.do("StartNode", "w")
        await outside.do("PutNodeWaiting", "w")
        await outside.do("CancelExecution", reason="no longer needed", requestedBy={"kind": "user", "id": "ann"})
        await outside.world.pass_time(10)
        await outside.world.run_log.end_cancel(outside.execution_id)
        await outside.do("ArchiveExecution", reason="old")

    return from_outside(drawn, script)


@case("cancelled after a node has succeeded: it keeps its result and is marked")
def cancel_after_success() -> Recorded:
    async def script(outside: Outside) -> None:
        await outside.begin()
        await outside.succeed("a")
        await outside.do("CancelExecution")

    return from_outside(chain("a", "b"), script)


@case("created and never started")
def created_only() -> Recorded:
    async def script(outside: Outside) -> None:
        await outside.begin(start=False)

    return from_outside(chain("a"), script)


@case("under way: one node has ended, one is at work, one waits, the rest is idle")
def under_way() -> Recorded:
    drawn = graph("s:Start f:Fork a b w:Wait j:Join z:Success", "s>f f>a f>b f>w a>j b>j w>j j>z")

    async def script(outside: Outside) -> None:
        await outside.begin()
        await outside.succeed("a")
        await outside.do("StartNode", "b")
        await outside.do("StartNode", "w")
        await outside.do("PutNodeWaiting", "w", waitKey="k")

    return from_outside(drawn, script)


@case("a log somebody else wrote: nodes without their place, a request to fail, stale attempts, metas of their own")
def foreign_log() -> Recorded:
    def node(name: str, **fields: Any) -> Event:
        return event(name, nodeId="a", **fields)

    return Recorded(
        [
            event("EXECUTION_CREATED", graphId="theirs", input={"run": "not ours", "params": [1]}),
            event("EXECUTION_STARTED", startedBy={"kind": "cron"}, region="eu"),
            node("NODE_CREATED", nodeType="Shell", meta={"inputs": "many", "node": ["x"]}),
            event("NODE_CREATED", nodeId="b", nodeType="Task", meta={"owner": "them"}),
            node("NODE_READY"),
            node("NODE_STARTED", attempt=2, workerId="theirs"),
            node("NODE_PROGRESS_REPORTED", attempt=1, progress=99),
            node("NODE_PROGRESS_REPORTED", progress=12.5),
            node("NODE_FAIL_REPORTED", error={"code": "7", "more": True}),
            node("NODE_FAILED", attempt=1),
            node("NODE_FAILED", attempt=2, error={"message": "broke"}),
            node("NODE_SUCCEEDED"),
            event("EXECUTION_FAIL_REQUESTED", reason="theirs", failedNodeId="a", error={"code": "E"}),
            event("EXECUTION_FAILED", reason="theirs", failedNodeId="a"),
            event("EXECUTION_COMPLETED", result={"too": "late"}),
            event("EXECUTION_ARCHIVED", reason="done with"),
        ]
    )


@case(
    "a log somebody else wrote that repeats itself and goes on behind its cancel and its end: what counts, and what not"
)
def foreign_log_cancelled() -> Recorded:
    def node(name: str, node_id: str = "a", **fields: Any) -> Event:
        return event(name, nodeId=node_id, **fields)

    return Recorded(
        [
            event("EXECUTION_CREATED", graphId="theirs"),
            event("EXECUTION_CREATED", graphId="another"),
            event("EXECUTION_STARTED"),
            event("EXECUTION_STARTED"),
            *[node("NODE_CREATED", node_id, nodeType="Task") for node_id in ("a", "b", "c", "a")],
            node("NODE_READY"),
            node("NODE_STARTED", attempt=1, workerId="one"),
            node("NODE_PROGRESS_REPORTED", progress=10),
            node("NODE_WAITING", waitKey="k"),
            node("NODE_RESUMED", "b"),
            node("NODE_STARTED", "b", attempt=1),
            event("EXECUTION_CANCEL_REQUESTED", reason="first"),
            event("EXECUTION_CANCEL_REQUESTED", reason="second"),
            node("NODE_PROGRESS_REPORTED", progress=20),
            node("NODE_RESUMED"),
            node("NODE_READY", "c"),
            node("NODE_STARTED", "c", attempt=1),
            node("NODE_STARTED", attempt=2, workerId="two"),
            node("NODE_SUCCEEDED", "b", output={"value": 1}),
            event("JOIN_PASSED", nodeId="nowhere"),
            event("EXECUTION_COMPLETED"),
            event("EXECUTION_CANCELED", reason="theirs"),
            event("EXECUTION_CANCELED"),
            node("NODE_CREATED", "late", nodeType="Task"),
            node("NODE_PROGRESS_REPORTED", "b", progress=99),
            node("NODE_FAILED", "b"),
            node("NODE_SUCCEEDED", "c"),
            event("EXECUTION_FAILED", reason="too late"),
            event("EXECUTION_ARCHIVED"),
            event("EXECUTION_ARCHIVED", reason="again"),
        ]
    )
