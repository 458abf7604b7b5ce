"""Submit one run to a gateway and show it until it has ended."""

from rich.console import Console

from pyoco_server.app.unused_told import read_unused, told_of
from pyoco_server.cli.parsing import DONE, FAILED
from pyoco_server.client import AsyncClient

_COLOURS = {"SUCCEEDED": "green", "RUNNING": "yellow", "FAILED": "red", "CANCELLED": "magenta", "PENDING": "dim"}
_ENDS = frozenset({"COMPLETED", "FAILED", "CANCELLED"})


async def submit_and_watch(client: AsyncClient, flow_name: str, console: Console) -> int:
    """The exit code: 0 if the run completed."""
    async with client:
        run_id = await client.submit(flow_name)
        console.print(f"submitted [bold]{flow_name}[/bold]: run {run_id}", highlight=False)
        shown: dict[str, str] = {}
        async for snapshot in client.watch(run_id):
            for task, status in snapshot["tasks"].items():
                if shown.get(task) != status:
                    shown[task] = status
                    console.print(f"  [{_COLOURS[status]}]{status:<9}[/] {task}", highlight=False)
            if snapshot["status"] in _ENDS:
                told = f": {snapshot['error']}" if snapshot.get("error") else ""
                for sentence in told_of(read_unused(snapshot.get("unused_params")) or {}):
                    console.print(f"  note: {sentence}", highlight=False, markup=False)
                where = f"{client.server}/#/runs/{run_id}"
                console.print(f"[bold]{snapshot['status']}[/bold]{told}  ({where})", highlight=False)
                return DONE if snapshot["status"] == "COMPLETED" else FAILED
    return FAILED
