"""The smallest flow: two tasks, one after the other.

A task gets its arguments by name: from the run's parameters, or from the results of tasks before it.
"""

# mypy: disable-error-code="import-untyped, untyped-decorator"
from pyoco import Flow, task

from pyoco_server import Engine


@task
def greet(name: str) -> str:
    """Say hello; ``name`` is a parameter of the run."""
    return f"Hello, {name}!"


@task
def shout(greet: str) -> str:
    """Say it louder; ``greet`` is what the task of that name returned."""
    return greet.upper()


flow = Flow("hello") >> greet >> shout

if __name__ == "__main__":
    with Engine() as engine:
        print(engine.run(flow, {"name": "world"}).results["shout"])
