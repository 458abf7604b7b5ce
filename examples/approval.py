"""A flow that waits for a person, but not for ever."""

# mypy: disable-error-code="import-untyped, untyped-decorator"
from pyoco import Flow, task

from pyoco_server import Engine, wait

DAY_SEC = 24 * 60 * 60


@task
def draft(topic: str) -> str:
    """Write something somebody should look at."""
    return f"All about {topic}"


# Nothing runs while a flow waits. What it is resumed with is its result, here True or False; after two days without an
# answer it is "default". Without a default the run would fail then.
approval = wait("approval", prompt={"question": "Publish this?"}, deadline_sec=2 * DAY_SEC, default=False)


@task
def publish(draft: str, approval: bool) -> str:  # noqa: FBT001 pyoco passes arguments by name
    """Do what was decided."""
    return f"published: {draft}" if approval else "kept in the drawer"


flow = Flow("approval") >> draft >> approval >> publish

if __name__ == "__main__":
    with Engine() as engine:
        run_id = engine.start(flow, {"topic": "waiting"})
        answer = input("Publish this? [y/n] ")
        engine.resume(run_id, "approval", answer == "y")
        print(engine.wait(run_id).results["publish"])
