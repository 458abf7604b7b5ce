"""Flows for 0.5.1 and for this version, and how often their tasks were called."""

import os
import time
from pathlib import Path
from typing import Any

from pyoco import Flow, task  # type: ignore[import-untyped]  # pyoco ships no type information

CALLS = "MIGRATION_CALLS"
OPEN = "open"
"""A file of this name lets ``guarded`` return."""


def _called(ctx: Any, name: str) -> Path:
    home = Path(os.environ[CALLS])
    with (home / f"{ctx.params['run']}.{name}").open("ab") as file:
        file.write(b"called\n")
    return home


@task  # type: ignore[untyped-decorator]
def begin(ctx: Any) -> int:
    _called(ctx, "begin")
    return 1


@task  # type: ignore[untyped-decorator]
def guarded(ctx: Any) -> int:
    home = _called(ctx, "guarded")
    while not (home / OPEN).exists():
        time.sleep(0.05)
    return 2


def resolve(flow_name: str) -> Flow:
    if flow_name == "short":
        return Flow("short") >> begin
    if flow_name == "long":
        return Flow("long") >> begin >> guarded
    raise KeyError(flow_name)
