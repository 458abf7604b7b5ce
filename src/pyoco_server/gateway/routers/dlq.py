"""Dead letters: jobs that came to nothing."""

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query

from pyoco_server.app.ports import DeadLetter
from pyoco_server.gateway.answers import Json, documented
from pyoco_server.gateway.documents import DeadLetterDocument
from pyoco_server.gateway.errors import NotFoundError
from pyoco_server.gateway.services import Given

router = APIRouter(prefix="/dlq", tags=["dead letters"])
LARGEST = 2**63 - 1


@router.get(
    "",
    summary="The newest dead letters",
    responses=documented("ERR-PYOCO-0002", "ERR-PYOCO-0003", ok=list[DeadLetterDocument]),
)
async def list_dead_letters(given: Given, limit: Annotated[int, Query(ge=1, le=500)] = 100) -> Json:
    """Newest first."""
    return Json([_shown(letter) for letter in await given.dead_letters.newest(limit)])


@router.get(
    "/{sequence}",
    summary="One dead letter",
    responses=documented("ERR-PYOCO-0104", "ERR-PYOCO-0002", "ERR-PYOCO-0003", ok=DeadLetterDocument),
)
async def get_dead_letter(sequence: Annotated[int, Path(ge=1, le=LARGEST)], given: Given) -> Json:
    """By its number."""
    found = await given.dead_letters.get(sequence)
    if found is None:
        raise NotFoundError(f"there is no dead letter {sequence}; it may have been too old to keep")
    return Json(_shown(found))


def _shown(letter: DeadLetter) -> dict[str, Any]:
    return {"sequence": letter.sequence, "tag": letter.tag, "entry": letter.entry}
