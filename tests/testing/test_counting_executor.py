from datetime import timedelta
from pathlib import Path

from pyoco import Flow, task  # type: ignore[import-untyped]  # pyoco ships no type information

from pyoco_server import Engine, options
from pyoco_server.adapters.executor.local import LocalExecutor
from pyoco_server.testing import CountingExecutor, VirtualClock
from pyoco_server.testing.virtual_clock import START


def test_an_engine_of_one_s_own_runs_on_virtual_time(tmp_path: Path) -> None:
    clock = VirtualClock()
    executor = CountingExecutor(LocalExecutor(threads=2, processes=1), clock)
    seen: list[int] = []

    def work() -> None:
        seen.append(executor.running)
        if len(seen) == 1:
            raise ConnectionError

    with Engine(clock=clock, executor=executor, artifacts=tmp_path) as engine:
        result = engine.run(Flow("work") >> options(task(work), retries=1, backoff=3_600))
    assert result.status == "COMPLETED"
    assert clock.now() == START + timedelta(hours=1)
    assert seen == [1, 1]
    assert executor.running == 0
