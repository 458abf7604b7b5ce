"""A worker, put together."""

import contextlib
import random
import secrets
from collections.abc import AsyncIterator
from pathlib import Path

from pyoco_server.adapters.clock import SystemClock
from pyoco_server.adapters.ids import uuid_maker
from pyoco_server.adapters.workshop import LocalWorkshop
from pyoco_server.app.outputs import Outputs
from pyoco_server.app.plans import Plans
from pyoco_server.app.projection import worker_mark
from pyoco_server.app.run import RunServices
from pyoco_server.bootstrap.platform import Platform
from pyoco_server.settings import Settings
from pyoco_server.worker.flow_source import FlowSource
from pyoco_server.worker.job_handler import JobHandler
from pyoco_server.worker.options import WorkerOptions
from pyoco_server.worker.presence import Presence
from pyoco_server.worker.worker import BeforePull, Worker


def worker_options(settings: Settings, *, tags: tuple[str, ...] = (), worker_id: str = "") -> WorkerOptions:
    """What the settings say of a worker."""
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


@contextlib.asynccontextmanager
async def open_worker(
    platform: Platform,
    settings: Settings,
    options: WorkerOptions,
    flows: FlowSource,
    *,
    before_pull: BeforePull | None = None,
) -> AsyncIterator[Worker]:
    """A worker that is ready to run."""
    clock, instance_id = SystemClock(), secrets.token_hex(8)
    workshop = LocalWorkshop(threads=max(32, 4 * options.concurrency), processes=max(4, options.concurrency))
    presence = Presence(
        platform.workers,
        clock,
        worker_id=options.worker_id,
        instance_id=instance_id,
        tags=options.tags,
        interval_sec=options.worker_heartbeat_interval_sec,
    )
    services = RunServices(
        log=platform.log,
        clock=clock,
        new_id=uuid_maker(),
        workshop=workshop,
        outputs=Outputs(platform.outputs, inline_max_bytes=settings.storage.inline_output_max_bytes),
        plans=Plans(),
        artifacts=Path("artifacts"),
        worker_id=worker_mark(options.worker_id, instance_id),
        grace_sec=options.cancel_grace_sec,
        chance=random.Random(),  # noqa: S311 pauses, not secrets
    )
    handler = JobHandler(
        log=platform.log,
        snapshots=platform.snapshots,
        services=services,
        flows=flows,
        presence=presence,
        options=options,
    )
    try:
        yield Worker(
            queue=platform.queue,
            presence=presence,
            dead_letters=platform.dead_letters,
            handler=handler,
            clock=clock,
            options=options,
            before_pull=before_pull,
        )
    finally:
        await workshop.close()
