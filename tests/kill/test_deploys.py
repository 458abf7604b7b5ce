"""Deploys rolled over workers while runs are in progress and parked: none is lost, and each keeps its own graph."""

import asyncio
import signal
import sys
from pathlib import Path
from typing import Final

from pyoco_server.core import NodeStatus, fold, read_graph
from pyoco_server.core.payloads import NodeStarted
from tests.kill.fleet import ENDED, Fleet, WorkerProcess, eventually, fleet, report, scaled, timeout
from tests.kill.processes import WorkerProcess as _Process
from tests.kill.reading import read_log

DEPLOYS: Final = 10
NAMES: Final = ("w1", "w2")


def _flows(deploy: int, *, whole: bool) -> str:
    """The flow as one deploy has it: a new task behind the wait; those of the deploys before only if it is whole."""
    names = [f"step_{each}" for each in (range(deploy, -1, -1) if whole else [deploy])]
    steps = "\n".join(f"@task\ndef {name}(ctx):\n    return leave(ctx, '{name}')\n" for name in names)
    return f"""
import os
from pathlib import Path
from pyoco import Flow, task
from pyoco_server import wait

def leave(ctx, node):
    with (Path(os.environ["KILL_TEST_TRACES"]) / ctx.params["run"]).open("ab", buffering=0) as lines:
        lines.write(f"{{node}}\\n".encode())
    return node

@task
def begin(ctx):
    return leave(ctx, "begin")

{steps}
flow = Flow("rolling") >> begin >> wait("approval") >> {" >> ".join(names)}
"""


def _start(all_there: Fleet, name: str, deploy: int, *, whole: bool = False) -> WorkerProcess:
    """Start a worker with the code of one deploy."""
    file = all_there.home / f"deploy_{deploy}_{whole}.py"
    file.write_text(_flows(deploy, whole=whole), encoding="utf-8")
    output = all_there.home / f"{name}-{deploy}.log"
    command = [sys.executable, "-m", "pyoco_server.cli.worker", "--worker-id", f"{name}-{deploy}"]
    command += ["--nats-url", all_there._variables["PYOCO_NATS_URL"], "--flows", str(file)]
    env = {**all_there._variables, "KILL_TEST_TRACES": str(all_there.traces)}
    worker = _Process.start(f"{name}-{deploy}", command, output, cwd=all_there.home, env=env)
    all_there.workers.append(worker)
    return worker


@timeout
def test_deploys_rolled_over_two_workers_lose_no_run_and_skip_no_node(tmp_path: Path) -> None:
    asyncio.run(_rolled(tmp_path, scaled(2, DEPLOYS), scaled(24, 1_000)))


async def _rolled(home: Path, deploys: int, many: int) -> None:
    async with fleet(home) as all_there:
        all_there.start_gateway("gateway")
        workers = {name: _start(all_there, name, 0) for name in NAMES}
        runs: list[str] = []
        for deploy in range(1, deploys + 1):
            runs += await all_there.submit_all(["rolling"] * (many // deploys))
            for name in NAMES:
                await _replace(all_there, workers, name, deploy, whole=deploy % 2 == 0 or deploy == deploys)
            for run_id in runs[deploy::3]:
                found = await all_there.snapshot(run_id)
                if found["waiting"]:
                    await all_there.resume(run_id, "approval", 1)
        await all_there.until_all(runs, lambda found: found["waiting"] or found["status"] in ENDED, within=90)
        for run_id in runs:
            if (await all_there.snapshot(run_id))["waiting"]:
                await all_there.resume(run_id, "approval", 1)
        await all_there.until_all_ended(runs, within=scaled(60, 600))
        for run_id in runs:
            await _check(all_there, run_id)
        report(f"{len(runs)} runs, {deploys} deploys over {len(NAMES)} workers")


async def _replace(all_there: Fleet, workers: dict[str, WorkerProcess], name: str, deploy: int, *, whole: bool) -> None:
    """Stop one worker gracefully, and start it again with the code of the next deploy."""
    old = workers[name]
    workers[name] = _start(all_there, name, deploy, whole=whole)

    async def is_there() -> bool:
        record = await all_there.platform.workers.get(f"{name}-{deploy}")
        return record is not None and record["state"] in {"IDLE", "RUNNING"}

    await eventually(is_there, f"{name} of deploy {deploy} is there")
    old.send(signal.SIGTERM)


async def _check(all_there: Fleet, run_id: str) -> None:
    """The run completed on the graph of its start: all of it succeeded, and exactly what was started was called."""
    log = [logged.event for logged in await read_log(all_there.platform, all_there.settings, run_id)]
    graph, notes, left_out = read_graph(log)
    state = fold(log)
    assert (state.status, notes, left_out) == ("COMPLETED", [], []), await all_there.described(run_id)
    assert {node.status for node in state.nodes.values()} == {NodeStatus.SUCCEEDED}
    assert set(state.nodes) == set(graph.nodes)
    started = [
        event.payload.node_id for event in log if isinstance(event.payload, NodeStarted) and event.payload.worker_id
    ]
    called = (all_there.traces / run_id).read_text().split()
    assert set(called) == set(started) - {"approval"}


@timeout
def test_a_held_run_resumes_within_seconds_when_its_code_comes_back(tmp_path: Path) -> None:
    asyncio.run(_held(tmp_path))


async def _held(home: Path) -> None:
    async with fleet(home) as all_there:
        gateway = all_there.start_gateway("gateway")
        old = _start(all_there, "old", 3)
        [run_id] = await all_there.submit_all(["rolling"])
        await all_there.until(run_id, lambda found: found["waiting"])
        old.send(signal.SIGTERM)
        assert gateway.url
        _start(all_there, "without", 1)
        await all_there.resume(run_id, "approval", 1)
        found = await all_there.until(run_id, lambda found: "held" in found)
        assert (found["held"]["needs"], found["held"]["seen_by"]) == (["step_3"], "without-1")
        _start(all_there, "with", 4, whole=True)
        ended = await all_there.until(run_id, lambda found: found["status"] in ENDED, within=60)
        assert ended["status"] == "COMPLETED"
        await _check(all_there, run_id)


@timeout
def test_a_fresh_run_is_handed_to_the_worker_that_has_its_flow(tmp_path: Path) -> None:
    asyncio.run(_handed(tmp_path))


async def _handed(home: Path) -> None:
    async with fleet(home) as all_there:
        all_there.start_gateway("gateway")
        bare = all_there.start_worker("bare")  # it has other flows
        _start(all_there, "able", 0)

        async def are_there() -> bool:
            found = [await all_there.platform.workers.get(name) for name in (bare.name, "able-0")]
            return all(found)

        await eventually(are_there, "both are there")
        runs = await all_there.submit_all(["rolling"] * scaled(12, 200))
        await all_there.until_all(runs, lambda found: found["waiting"] or found["status"] in ENDED, within=60)
        assert {(await all_there.snapshot(run_id))["status"] for run_id in runs} == {"RUNNING"}
        for run_id in runs:
            await all_there.resume(run_id, "approval", 1)
        await all_there.until_all_ended(runs, within=60)
        for run_id in runs:
            await _check(all_there, run_id)
