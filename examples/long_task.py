"""A task that takes long: it says how far it is, and stops when it is asked to."""

# mypy: disable-error-code="import-untyped, untyped-decorator"
import time

from pyoco import Flow, task
from pyoco.core.context import Context

from pyoco_server import Engine


@task
def crunch(ctx: Context, blocks: int) -> int:
    """Work in small pieces; between two of them look whether the run was cancelled."""
    for block in range(blocks):
        if ctx.is_cancelled:
            return block  # clean up and leave; the run ends CANCELED whatever is returned here
        time.sleep(0.01)  # the work
        ctx.progress(100 * (block + 1) / blocks, f"block {block + 1} of {blocks}")
    return blocks


flow = Flow("long-task") >> crunch

if __name__ == "__main__":
    with Engine() as engine:
        run_id = engine.start(flow, {"blocks": 100})
        time.sleep(0.3)
        engine.cancel(run_id, "it was only an example")
        print(engine.wait(run_id).status)
