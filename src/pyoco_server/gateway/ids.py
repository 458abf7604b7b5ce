"""Ids in paths and bodies: what can be one, and what cannot."""

import re
from typing import Annotated, Final

from fastapi import Depends, Path

from pyoco_server.app.run_desk import RunNotFoundError
from pyoco_server.errors import InvalidInputError

LONGEST: Final = 128
_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,128}")
_WORKER_ID: Final = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")


def is_id(text: str) -> bool:
    """Can there be anything by this id?"""
    return _ID.fullmatch(text) is not None


def is_worker_id(text: str) -> bool:
    """Can there be a worker by this id? Those of others may be called as their machines are, with dots."""
    return len(text) <= LONGEST and _WORKER_ID.fullmatch(text) is not None


def checked_id(text: str, field: str) -> str:
    """The id; InvalidInputError if it cannot be one."""
    if not is_id(text):
        raise InvalidInputError(f"{field}: 1 to {LONGEST} letters, digits, '_' and '-', not {text!r:.80}")
    return text


async def _run_id(run_id: Annotated[str, Path(description="The run's id.")]) -> str:
    """The id in the path; there is no run by an id that cannot be one."""
    if not is_id(run_id):
        raise RunNotFoundError(run_id)
    return run_id


async def _execution_id(
    execution_id: Annotated[str, Path(description="A run's id is its execution's.")],
) -> str:
    return await _run_id(execution_id)


RunId = Annotated[str, Depends(_run_id)]
ExecutionId = Annotated[str, Depends(_execution_id)]
NodeId = Annotated[str, Path(min_length=1, max_length=500, description="The node's id; it may contain slashes.")]
