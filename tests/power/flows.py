"""The flows that workers run while the power fails."""

import time
from typing import Any

from pyoco import Flow, task  # type: ignore[import-untyped]  # pyoco ships no type information

from pyoco_server import wait


@task  # type: ignore[untyped-decorator]
def first(number: int, padding: str = "") -> dict[str, Any]:
    return {"number": number, "padding": padding}


@task  # type: ignore[untyped-decorator]
def second(first: dict[str, Any]) -> int:
    time.sleep(0.01)
    return int(first["number"]) + 1


@task  # type: ignore[untyped-decorator]
def publish(second: int, approval: dict[str, Any]) -> str:
    return f"{second} approved by {approval['by']}"


@task  # type: ignore[untyped-decorator]
def large(number: int, padding: str = "") -> str:
    """Return more than the log takes: the output becomes an object."""
    return f"{number} {padding}".ljust(100_000, ".")


@task  # type: ignore[untyped-decorator]
def nap() -> None:
    time.sleep(0.5)


quick = Flow("quick") >> first >> second
asking = Flow("asking") >> first >> second >> wait("approval") >> publish
slow = Flow("slow") >> nap
with_object = Flow("large") >> large
