"""``/wheels``: the registry of wheels, from which workers install code."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import Annotated, Any, Final, Literal

import msgspec
from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse
from pydantic import TypeAdapter, ValidationError
from starlette.datastructures import FormData, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser

from pyoco_server.app.ports.wheels import Wheel, WheelActor, WheelSource
from pyoco_server.app.wheels.errors import WheelTooLargeError
from pyoco_server.app.wheels.names import read_tags
from pyoco_server.app.wheels.service import WheelRequest, WheelService
from pyoco_server.errors import InvalidInputError
from pyoco_server.gateway.errors import language_of
from pyoco_server.gateway.principal import Principal, PrincipalDep
from pyoco_server.gateway.services import ServicesDep
from pyoco_server.identifiers import WHEEL_FILE
from pyoco_server.messages import body_of

router = APIRouter(prefix="/wheels", tags=["wheels"])

_ROOM_FOR_FORM: Final = 64 * 1024
"""The most bytes of a form beside the wheel itself."""

_DRAINED_SEC: Final = 20.0
"""For so long a request that is too large is read and dropped: a client that still sends does not read the answer."""

_LONGEST_NUMBER: Final = 19
_LONGEST_HEADER: Final = 512
_TRUTH: Final = TypeAdapter(bool)
_FORM: Final[dict[str, Any]] = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["wheel"],
                    "properties": {
                        "wheel": {"type": "string", "format": "binary", "description": "The file (*.whl)."},
                        "replace": {
                            "type": "boolean",
                            "default": True,
                            "description": "Kept for older clients: the version must be higher either way.",
                        },
                        "tags": {
                            "type": "string",
                            "description": "For workers with one of these tags; without, for all.",
                            "examples": ["cpu,linux"],
                        },
                    },
                }
            }
        },
    }
}


async def _wheels(services: ServicesDep) -> WheelService:
    return services.wheels


WheelsDep = Annotated[WheelService, Depends(_wheels)]


@router.get("", summary="List wheels")
async def list_wheels(wheels: WheelsDep) -> list[dict[str, Any]]:
    """All wheels, by name."""
    return [_shown(wheel) for wheel in await wheels.all()]


_WHEEL_QUERY: Final = Query(pattern=f"^{WHEEL_FILE.pattern}$", max_length=WHEEL_FILE.longest)


@router.get("/history", summary="Who uploaded and deleted wheels")
async def wheel_history(
    services: ServicesDep,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
    wheel_name: Annotated[str | None, _WHEEL_QUERY] = None,
    action: Literal["upload", "delete"] | None = None,
) -> list[dict[str, Any]]:
    """Newest first."""
    found = await services.wheels.events(limit=limit, wheel_name=wheel_name, action=action)
    return [msgspec.to_builtins(event) for event in found]


@router.post("", summary="Upload a wheel", openapi_extra=_FORM)
async def upload_wheel(request: Request, wheels: WheelsDep, principal: PrincipalDep) -> Response:
    """Accepted if it is newer than every wheel of its package, and passes all checks.

    The form is read here, after the sender is authenticated: a wheel may be large.
    """
    try:
        form = await _read_form(request, wheels.limits.max_bytes)
    except WheelTooLargeError as error:
        return _too_large(request, error)
    try:
        file, name = _file_of(form)
        replace, tags = _truth_of(form, "replace", default=True), read_tags(_text_of(form, "tags"))
        wheel = await wheels.upload(file.file, name, tags=tags, replace=replace, asked=_asked(request, principal))
    except WheelTooLargeError as error:
        return _too_large(request, error)
    finally:
        await form.close()
    return JSONResponse(_shown(wheel))


@router.get("/{wheel_name}", summary="Download a wheel", response_class=Response)
async def download_wheel(wheel_name: str, wheels: WheelsDep) -> Response:
    """The file; the connection breaks before its last bytes if the stored file is damaged."""
    wheel = await wheels.find(wheel_name)
    content = wheels.content(wheel)
    first = await anext(content, b"")  # an error at the start still becomes an error answer
    headers = {
        "Content-Disposition": f'attachment; filename="{wheel.name}"',
        "Content-Length": str(wheel.size_bytes),
        "X-Content-Type-Options": "nosniff",
    }
    return StreamingResponse(_with_first(first, content), media_type="application/octet-stream", headers=headers)


@router.delete("/{wheel_name}", summary="Delete a wheel")
async def delete_wheel(wheel_name: str, request: Request, wheels: WheelsDep, principal: PrincipalDep) -> dict[str, Any]:
    """Workers that have installed it remove it before their next run."""
    wheel = await wheels.delete(wheel_name, _asked(request, principal))
    return {"name": wheel.name, "deleted": True}


def _shown(wheel: Wheel) -> dict[str, Any]:
    return {
        "name": wheel.name,
        "size_bytes": wheel.size_bytes,
        "bucket": wheel.bucket,
        "nuid": wheel.nuid,
        "modified": wheel.modified,
        "sha256_hex": wheel.sha256_hex,
        "tags": list(wheel.tags),
    }


async def _with_first(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for piece in rest:
        yield piece


def _too_large(request: Request, error: WheelTooLargeError) -> Response:
    """The specification has one id for all that can be wrong with an upload, and this status for its size."""
    body = body_of(error, language_of(request), details=error.details)
    return JSONResponse(body, status_code=413, headers={"Connection": "close"})


def _asked(request: Request, principal: Principal) -> WheelRequest:
    headers: Mapping[str, str] = request.headers

    def header(name: str) -> str | None:
        found = headers.get(name)
        return None if found is None else found[:_LONGEST_HEADER]

    return WheelRequest(
        actor=WheelActor(tenant_id=principal.tenant_id, api_key_id=principal.api_key_id),
        source=WheelSource(
            remote_addr=request.client.host if request.client else None,
            x_forwarded_for=header("x-forwarded-for"),
            x_real_ip=header("x-real-ip"),
            user_agent=header("user-agent"),
            host=header("host"),
            scheme=request.url.scheme,
        ),
    )


async def _read_form(request: Request, max_bytes: int) -> FormData:
    """Read the form; a large file is on disk."""
    if not request.headers.get("content-type", "").lower().startswith("multipart/form-data"):
        raise InvalidInputError("the request must be multipart/form-data with a file 'wheel'")
    body = _counted(request, max_bytes)
    parser = MultiPartParser(request.headers, body, max_files=1, max_fields=8, max_part_size=_ROOM_FOR_FORM)
    try:
        form = await parser.parse()
    except MultiPartException as error:
        raise InvalidInputError(f"the multipart form cannot be read: {error.message}") from error
    finally:
        await body.aclose()
    kept = {id(value.file) for value in form.values() if isinstance(value, UploadFile)}
    for file in parser._files_to_close_on_error:  # noqa: SLF001 an incomplete file is in no form
        if id(file) not in kept:
            file.close()
    return form


async def _counted(request: Request, max_bytes: int) -> AsyncGenerator[bytes, None]:
    """Yield the body; WheelTooLargeError if it is larger than a form with the largest wheel."""
    most, received = max_bytes + _ROOM_FOR_FORM, 0
    declared = request.headers.get("content-length", "")
    pieces = request.stream()
    if not declared.isdecimal() or (len(declared) < _LONGEST_NUMBER and int(declared) <= most):
        async for piece in pieces:
            received += len(piece)
            if received > most:
                break
            yield piece
        else:
            return
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_DRAINED_SEC):
            async for _ in pieces:
                pass
    raise WheelTooLargeError(max_bytes)


def _file_of(form: FormData) -> tuple[UploadFile, str]:
    found = form.getlist("wheel")
    if len(found) != 1 or not isinstance(found[0], UploadFile) or not found[0].filename:
        raise InvalidInputError("wheel: send one file with its name in this field")
    return found[0], found[0].filename


def _text_of(form: FormData, field: str) -> str:
    found = form.getlist(field)
    texts = [value for value in found if isinstance(value, str)]
    if len(found) > 1 or len(texts) != len(found):
        raise InvalidInputError(f"{field}: send one text, not {len(found)} values or a file")
    return texts[0].strip() if texts else ""


def _truth_of(form: FormData, field: str, *, default: bool) -> bool:
    text = _text_of(form, field)
    try:
        return _TRUTH.validate_python(text) if text else default
    except ValidationError as error:
        raise InvalidInputError(f"{field}: true or false, not {text!r:.80}") from error
