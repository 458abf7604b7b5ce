"""``GET /dlq``: dead letters, which are jobs that could not be executed."""

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query

from pyoco_server.app.ports import StoredDeadLetter
from pyoco_server.gateway.errors import NotFoundError
from pyoco_server.gateway.responses import Json, documented
from pyoco_server.gateway.schemas.responses import DeadLetterDocument
from pyoco_server.gateway.services import ServicesDep

router = APIRouter(prefix="/dlq", tags=["dead letters"])
LARGEST = 2**63 - 1


@router.get(
    "",
    summary="The newest dead letters",
    responses=documented("ERR-PYOCO-0002", "ERR-PYOCO-0003", ok=list[DeadLetterDocument]),
)
async def list_dead_letters(services: ServicesDep, limit: Annotated[int, Query(ge=1, le=500)] = 100) -> Json:
    """Newest first."""
    return Json([_shown(letter) for letter in await services.dead_letters.newest(limit)])


@router.get(
    "/{sequence}",
    summary="One dead letter",
    responses=documented("ERR-PYOCO-0104", "ERR-PYOCO-0002", "ERR-PYOCO-0003", ok=DeadLetterDocument),
)
async def get_dead_letter(sequence: Annotated[int, Path(ge=1, le=LARGEST)], services: ServicesDep) -> Json:
    """The dead letter with this number."""
    found = await services.dead_letters.get(sequence)
    if found is None:
        raise NotFoundError(f"there is no dead letter {sequence}; it may have expired")
    return Json(_shown(found))


def _shown(letter: StoredDeadLetter) -> dict[str, Any]:
    return {"sequence": letter.sequence, "tag": letter.tag, "entry": letter.entry}
