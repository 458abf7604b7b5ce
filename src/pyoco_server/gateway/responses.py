"""JSON answers, and their description in the OpenAPI document."""

from typing import Any, Final

import msgspec
from fastapi.responses import JSONResponse
from typing_extensions import override

from pyoco_server.gateway.schemas.responses import ErrorAnswer
from pyoco_server.messages import CATALOGUE, Language, error_body

EVERYWHERE: Final = ("ERR-PYOCO-0014", "ERR-PYOCO-0015", "ERR-PYOCO-0106")
"""Errors that every route may answer: no key, a wrong key, and a crash."""
_RETRY_AFTER: Final = {"Retry-After": {"description": "Seconds to wait.", "schema": {"type": "string"}}}
_WAIT: Final = frozenset({429, 503})

Documented = dict[int | str, dict[str, Any]]


class Json(JSONResponse):
    """An answer in JSON; NaN and infinity become null."""

    @override
    def render(self, content: Any) -> bytes:
        return msgspec.json.encode(content)


def documented(*err_ids: str, **models: Any) -> Documented:  # noqa: ANN401 types, as FastAPI takes them
    """Describe the answers of a route: ``ok``, ``created``, ``accepted`` by model, errors by id, with examples."""
    answers: Documented = {}
    for status, name in ((200, "ok"), (201, "created"), (202, "accepted")):
        if name in models:
            answers[status] = {"model": models[name]}
    for err_id in (*err_ids, *EVERYWHERE):
        entry = CATALOGUE[err_id]
        if entry.http_status is None:
            raise ValueError(f"{err_id} has no HTTP status")
        known = answers.setdefault(entry.http_status, _described(entry.http_status))
        known["description"] = f"{known['description']}; {err_id}: {entry.en}".removeprefix("; ")
        known["content"]["application/json"]["examples"][err_id] = {
            "summary": entry.en,
            "value": error_body(entry, Language.EN),
        }
    return answers


def _described(status: int) -> dict[str, Any]:
    headers = {"headers": _RETRY_AFTER} if status in _WAIT else {}
    return {"model": ErrorAnswer, "description": "", "content": {"application/json": {"examples": {}}}, **headers}
