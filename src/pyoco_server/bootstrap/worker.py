"""Assembles a worker: its job handler, executor, wheel sync and registration."""

import contextlib
import logging
import platform as python
import random
import secrets
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path

from packaging.tags import sys_tags

from pyoco_server.adapters.executor.local import LocalExecutor
from pyoco_server.adapters.jetstream.stores.workers import answer_as
from pyoco_server.adapters.private_files import private_directory
from pyoco_server.adapters.result_key import result_key
from pyoco_server.adapters.system import SystemClock, series_maker
from pyoco_server.adapters.wheel_install.store import LocalWheelHouse
from pyoco_server.app.ports import Clock, TaskExecutor
from pyoco_server.app.ports.wheels import Wheel
from pyoco_server.app.runtime.outputs import Outputs
from pyoco_server.app.runtime.plan_cache import PlanCache
from pyoco_server.app.runtime.run import RunServices
from pyoco_server.app.snapshots.projection import worker_mark
from pyoco_server.app.wheels.selection import interpreter
from pyoco_server.app.wheels.used import wheels_used
from pyoco_server.bootstrap.platform import Platform, names_of
from pyoco_server.flows.callables import CallablePolicy
from pyoco_server.settings import Settings
from pyoco_server.worker.flow_source import FlowSource, Resolver
from pyoco_server.worker.job_handler import JobHandler
from pyoco_server.worker.options import WorkerOptions
from pyoco_server.worker.registration import WorkerRegistration
from pyoco_server.worker.slot_gate import SlotGate
from pyoco_server.worker.wheel_sync.status import WheelSyncStatus
from pyoco_server.worker.wheel_sync.swappable_executor import SwappableExecutor
from pyoco_server.worker.wheel_sync.sync import OnChange, WheelSync, WheelSyncOptions
from pyoco_server.worker.worker import Worker

_log = logging.getLogger(__name__)


def worker_options(settings: Settings, *, tags: tuple[str, ...] = (), worker_id: str = "") -> WorkerOptions:
    """Return the options of a worker from the settings."""
    return WorkerOptions(
        tags=tags or (settings.routing.default_tag,),
        worker_id=worker_id,
        concurrency=settings.worker.concurrency,
        run_heartbeat_interval_sec=settings.heartbeat.run_interval_sec,
        worker_heartbeat_interval_sec=settings.heartbeat.worker_interval_sec,
        ack_progress_interval_sec=settings.consumer.ack_progress_interval_sec,
        cancel_grace_sec=settings.worker.cancel_grace_period_sec,
        stop_timeout_sec=settings.worker.stop_timeout_sec,
        max_snapshot_bytes=settings.storage.run_snapshot_max_bytes,
        publish_execution_error=settings.dead_letters.publish_execution_error,
    ).named()


def flow_source(settings: Settings, resolver: Resolver, places: Sequence[str]) -> FlowSource:
    """Return the source of a worker's flows; ``places`` are the modules and files that they are in."""
    wheels = [settings.wheels.sync_dir] if settings.wheels.sync_enabled else []
    policy = CallablePolicy(settings.worker.callables, places=places, folders=wheels)
    return FlowSource(resolver, policy, expose_env=settings.worker.expose_env)


@contextlib.asynccontextmanager
async def open_worker(
    platform: Platform,
    settings: Settings,
    options: WorkerOptions,
    flows: FlowSource,
    *,
    places: Sequence[str] = (),
    on_new_code: Callable[[], None] = lambda: None,
) -> AsyncIterator[Worker]:
    """Open a worker that is ready to run; ``on_new_code`` is called whenever wheels changed what can be imported.

    ``places``: the modules and files that its flows are in, or the resolver that finds them.
    """
    clock, instance_id = SystemClock(), secrets.token_hex(8)
    executor = SwappableExecutor(lambda: _new_executor(options))
    registration = WorkerRegistration(
        platform.workers,
        clock,
        worker_id=options.worker_id,
        instance_id=instance_id,
        tags=options.tags,
        interval_sec=options.worker_heartbeat_interval_sec,
    )
    wheels: dict[str, str] = {}
    mark = worker_mark(options.worker_id, instance_id)
    handler = JobHandler(
        log=platform.log,
        snapshots=platform.snapshots,
        services=_run_services(platform, settings, options, mark, clock, executor, wheels),
        flows=flows,
        registration=registration,
        options=options,
    )

    async def on_change(in_use: Sequence[Wheel]) -> None:
        wheels.clear()
        wheels.update(wheels_used(in_use))
        await executor.renew()
        on_new_code()
        registration.note_flows(await flows.announcement(wheels))

    registration.note_flows(await flows.announcement(wheels))
    await answer_as(instance_id, platform.connection, names_of(settings))
    async with _wheel_sync(
        platform, settings, options, tuple(places), registration, handler.gate, on_change
    ) as code_sync:
        try:
            yield Worker(
                queue=platform.queue,
                registration=registration,
                dead_letters=platform.dead_letters,
                handler=handler,
                clock=clock,
                options=options,
                code_sync=code_sync,
            )
        finally:
            await executor.close()


def _new_executor(options: WorkerOptions) -> LocalExecutor:
    threads, processes = max(32, 4 * options.concurrency), max(4, options.concurrency)
    return LocalExecutor(threads=threads, processes=processes, shield_sec=options.cancel_grace_sec)


def _run_services(
    platform: Platform,
    settings: Settings,
    options: WorkerOptions,
    mark: str,
    clock: Clock,
    executor: TaskExecutor,
    wheels: Mapping[str, str],
) -> RunServices:
    return RunServices(
        log=platform.log,
        clock=clock,
        new_id=series_maker(),
        executor=executor,
        outputs=Outputs(
            platform.outputs, inline_max_bytes=settings.storage.inline_output_max_bytes, key=_result_key(settings)
        ),
        plans=PlanCache(),
        artifacts=Path("artifacts"),
        worker_mark=mark,
        grace_sec=options.cancel_grace_sec,
        chance=random.Random(),  # noqa: S311 pauses, not secrets
        wheels=wheels,
        isolation=options.isolation,
        expose_env=settings.worker.expose_env,
        limits=settings.limits.of_run,
    )


def _result_key(settings: Settings) -> bytes | None:
    """Return the key for pickled results; log once what a missing key means."""
    key = result_key(settings)
    if key is None:
        _log.warning(
            "PYOCO_RESULT_KEY is not set: results that need pickling are not stored, and a task of another process "
            "that needs one fails with RESULT_LOST",
            extra={"action": "result_key_missing"},
        )
    return key


@contextlib.asynccontextmanager
async def _wheel_sync(
    platform: Platform,
    settings: Settings,
    options: WorkerOptions,
    places: tuple[str, ...],
    registration: WorkerRegistration,
    gate: SlotGate,
    on_change: OnChange,
) -> AsyncIterator[WheelSync | None]:
    """Return what keeps the worker's wheels up to date; None if it is disabled."""
    wheels = settings.wheels
    if not wheels.sync_enabled:
        registration.note(wheel_sync=WheelSyncStatus(enabled=False).to_json())
        yield None
        return
    if wheels.sync_dir.is_dir():
        private_directory(wheels.sync_dir)
    house = LocalWheelHouse(wheels.sync_dir, install_timeout_sec=wheels.install_timeout_sec)
    sync = WheelSync(
        registry=platform.wheels,
        house=house,
        clock=SystemClock(),
        here=interpreter(sys_tags(), python.python_version()),
        options=WheelSyncOptions(tags=options.tags, places=places, interval_sec=wheels.sync_interval_sec),
        gate=gate,
        note=registration.note,
        on_change=on_change,
    )
    try:
        yield sync
    finally:
        await house.close()
