"""A task that is tried again, with growing pauses, and one whose failure does not matter to the rest."""

# mypy: disable-error-code="import-untyped, untyped-decorator"
from pyoco import Flow, task

from pyoco_server import Backoff, Engine, options
from pyoco_server.flows.model import BackoffKind

_remote = {"failures": 2}


def outages(count: int) -> None:
    """Make the service of this example fail so many times from now on."""
    _remote["failures"] = count


@task
def fetch() -> str:
    """Ask a service that is not always there."""
    if _remote["failures"]:
        _remote["failures"] -= 1
        raise ConnectionError("the service is away")
    return "data"


@task
def notify() -> None:
    """Tell somebody; nice to have."""
    raise ConnectionError("no chat server configured")


@task
def store(fetch: str) -> str:
    """Keep what was fetched."""
    return f"stored {fetch}"


# Three more attempts, one minute, five minutes and 25 minutes later. Should all fail, the run fails.
options(fetch, retries=3, backoff=Backoff(kind=BackoffKind.EXPONENTIAL, delay_sec=60, factor=5, cap_sec=3_600))
# "isolate": this task may fail, and whatever does not depend on it goes on.
options(notify, fail_policy="isolate")

flow = Flow("retries") >> fetch >> (notify & store)

if __name__ == "__main__":
    outages(0)
    with Engine() as engine:
        print(engine.run(flow).status)
