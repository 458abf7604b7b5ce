"""Dead letters: jobs that came to nothing."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query

from pyoco_server.app.ports import DeadLetter
from pyoco_server.gateway.errors import NotFoundError
from pyoco_server.gateway.services import Services, services

router = APIRouter(prefix="/dlq", tags=["dead letters"])
Given = Annotated[Services, Depends(services)]


@router.get("", summary="The newest dead letters")
async def list_dead_letters(given: Given, limit: Annotated[int, Query(ge=1, le=500)] = 100) -> list[dict[str, Any]]:
    """Newest first."""
    return [_shown(letter) for letter in await given.dead_letters.newest(limit)]


@router.get("/{sequence}", summary="One dead letter")
async def get_dead_letter(sequence: Annotated[int, Path(ge=1)], given: Given) -> dict[str, Any]:
    """By its number."""
    found = await given.dead_letters.get(sequence)
    if found is None:
        raise NotFoundError(f"there is no dead letter {sequence}; it may have been too old to keep")
    return _shown(found)


def _shown(letter: DeadLetter) -> dict[str, Any]:
    return {"sequence": letter.sequence, "tag": letter.tag, "entry": letter.entry}
