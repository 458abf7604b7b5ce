"""Serves the dashboard's files: only those in ``static``, with a policy that allows no foreign code."""

import asyncio
import hashlib
import html
from pathlib import Path
from typing import Final

from fastapi import APIRouter, Request, Response

from pyoco_server.gateway.errors import AssetNotFoundError, DashboardNotFoundError
from pyoco_server.gateway.services import Services
from pyoco_server.messages import server_language

router = APIRouter(tags=["dashboard"], include_in_schema=False)

PAGE: Final = Path(__file__).parent / "index.html"
STATIC: Final = Path(__file__).parent / "static"
HTML: Final = "text/html; charset=utf-8"
TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".js": "application/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
)
_HEADERS: Final = {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": POLICY,
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


_MODULES: Final = sorted(path.relative_to(STATIC).as_posix() for path in STATIC.rglob("*.js"))
_PRELOADED: Final = "\n    ".join(f'<link rel="modulepreload" href="/static/{name}">' for name in _MODULES)
"""The browser loads all modules at once, and not one after the other as they import each other."""


@router.api_route("/", methods=["GET", "HEAD"], summary="The dashboard")
async def index(request: Request) -> Response:
    """The one page; attributes of its root element hold what it needs to know about the server."""
    services: Services = request.app.state.services  # also without NATS: the page shows that
    page = await asyncio.to_thread(_page)
    settings = services.settings
    filled = page.replace("{{language}}", server_language(settings.http.dashboard_language).value)
    filled = filled.replace("{{api-key-header}}", html.escape(settings.auth.api_key_header))
    filled = filled.replace("{{modules}}", _PRELOADED)
    return _answer(request, filled.encode(), HTML)


@router.api_route("/static/{path:path}", methods=["GET", "HEAD"], summary="A file of the dashboard")
async def asset(path: str, request: Request) -> Response:
    """One file."""
    return _answer(request, await asyncio.to_thread(_read, path), TYPES[Path(path).suffix])


def _page() -> str:
    try:
        return PAGE.read_text(encoding="utf-8")
    except OSError as error:
        raise DashboardNotFoundError("dashboard not found: it is not installed with this server") from error


def _read(path: str) -> bytes:
    """Read a file; AssetNotFoundError if the dashboard has none at this path, wherever the path leads."""
    try:
        found = (STATIC / path).resolve()
        if Path(path).suffix in TYPES and found.is_relative_to(STATIC.resolve()):
            return found.read_bytes()
    except (OSError, ValueError) as error:  # missing, not readable, or not a path
        raise AssetNotFoundError(f"asset not found: '{path:.200}'") from error
    raise AssetNotFoundError(f"asset not found: '{path:.200}'")


def _answer(request: Request, content: bytes, media_type: str) -> Response:
    """Return the content, or 304 if the browser has it already."""
    tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    headers = {**_HEADERS, "ETag": tag}
    if tag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return Response(content, media_type=media_type, headers=headers)
