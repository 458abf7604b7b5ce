"""Celery's tasks: three that do nothing, chained."""

import os

from celery import Celery, chain  # type: ignore[import-not-found]  # in an environment of its own

URL = os.environ["BENCH_REDIS_URL"]
app = Celery("bench", broker=URL, backend=URL)
app.conf.worker_hijack_root_logger = False
app.conf.broker_connection_retry_on_startup = True


@app.task  # type: ignore[untyped-decorator]  # as above
def nothing() -> None:
    """A task."""


def three() -> chain:
    """A new chain: one that several threads apply gives several runs the same ids."""
    return chain(nothing.si(), nothing.si(), nothing.si())
