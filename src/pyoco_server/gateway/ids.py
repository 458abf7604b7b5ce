"""Ids in paths: an id that cannot be one is answered as one that nothing has."""

from typing import Annotated

from fastapi import Depends, Path

from pyoco_server.app.run_desk import RunNotFoundError
from pyoco_server.identifiers import NODE_ID, RUN_ID


async def _run_id(run_id: Annotated[str, Path(description="The run's id.")]) -> str:
    """The id in the path; there is no run by an id that cannot be one."""
    if not RUN_ID.fits(run_id):
        raise RunNotFoundError(run_id)
    return run_id


async def _execution_id(
    execution_id: Annotated[str, Path(description="A run's id is its execution's.")],
) -> str:
    return await _run_id(execution_id)


RunId = Annotated[str, Depends(_run_id)]
ExecutionId = Annotated[str, Depends(_execution_id)]
NodeId = Annotated[
    str, Path(min_length=1, max_length=NODE_ID.longest, description="The node's id; it may contain slashes.")
]
