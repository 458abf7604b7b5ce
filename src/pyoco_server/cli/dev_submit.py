"""Submit one run to a gateway and show it until it has ended."""

import asyncio
from typing import Any

import httpx
import msgspec
from rich.console import Console

from pyoco_server.cli.parsing import DONE, FAILED

_COLOURS = {"SUCCEEDED": "green", "RUNNING": "yellow", "FAILED": "red", "CANCELLED": "magenta", "PENDING": "dim"}
_ENDS = frozenset({"COMPLETED", "FAILED", "CANCELLED"})


async def submit_and_watch(url: str, flow_name: str, console: Console) -> int:
    """The exit code: 0 if the run completed."""
    async with httpx.AsyncClient(base_url=url, timeout=httpx.Timeout(10.0, read=None)) as client:
        answer = await client.post("/runs", json={"flow_name": flow_name})
        answer.raise_for_status()
        run_id = answer.json()["run_id"]
        console.print(f"submitted [bold]{flow_name}[/bold]: run {run_id}", highlight=False)
        shown: dict[str, str] = {}
        async with client.stream("GET", f"/runs/{run_id}/watch") as stream:
            async for line in stream.aiter_lines():
                snapshot = _snapshot(line)
                if snapshot is None:
                    continue
                for task, status in snapshot["tasks"].items():
                    if shown.get(task) != status:
                        shown[task] = status
                        console.print(f"  [{_COLOURS[status]}]{status:<9}[/] {task}", highlight=False)
                if snapshot["status"] in _ENDS:
                    console.print(f"[bold]{snapshot['status']}[/bold]  {url}/runs/{run_id}", highlight=False)
                    return DONE if snapshot["status"] == "COMPLETED" else FAILED
                await asyncio.sleep(0)
    return FAILED


def _snapshot(line: str) -> dict[str, Any] | None:
    if not line.startswith("data: "):
        return None
    found = msgspec.json.decode(line.removeprefix("data: ")).get("snapshot")
    return found if isinstance(found, dict) else None
