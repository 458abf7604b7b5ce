"""Refuses what other web sites make a browser send: requests of foreign origins, and names that are not the gateway's.

A browser lets any page send forms, images and frames to any address, also to one on the user's own machine. It says in
``Origin`` and ``Sec-Fetch-Site`` where a request comes from, and in ``Host`` under which name the gateway was reached.
Programs send neither of the first two, and are not affected. See ADR 0027.
"""

import functools
import logging
import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from starlette.types import ASGIApp, Receive, Scope, Send

from pyoco_server.errors import PyocoServerError
from pyoco_server.gateway.errors import ForeignOriginError, UnknownHostError, answer_to
from pyoco_server.gateway.exposure import is_loopback
from pyoco_server.gateway.middleware.refusals import RefusalLog
from pyoco_server.settings import Settings

_log = logging.getLogger(__name__)
SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
"""Methods that change nothing: a link on another site may use them."""

LONGEST_SHOWN: Final = 80
_MOST_REMEMBERED: Final = 256
_READ: Final = frozenset({b"host", b"origin", b"sec-fetch-site", b"sec-fetch-mode", b"sec-fetch-dest"})
_AUTHORITY: Final = re.compile(r"(?:\[([0-9a-f:.]+)\]|([^\s\[\]:/?#@,]+))(?::([0-9]{1,5}))?", re.IGNORECASE)
_DEFAULT_PORTS: Final[Mapping[str, int]] = {"http": 80, "https": 443}


class BrowserGuard:
    """Lets a request through if no foreign page sent it, and if its ``Host`` is one that the gateway serves."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._refusals = RefusalLog(_log)
        self._rules: _Rules | None = None
        self._served: set[bytes] = set()
        """Values of ``Host`` that were found to be served, so that each is parsed once."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        error = self._problem(scope)
        if error is None:
            await self._app(scope, receive, send)
            return
        answer = answer_to(scope, error, is_logged=True)
        self._refusals.write(error, error.err_id or "", scope, method=scope["method"])
        await answer(scope, receive, send)

    def _problem(self, scope: Scope) -> PyocoServerError | None:
        found: dict[bytes, bytes] = {}
        for name, value in scope["headers"]:
            if name in _READ:  # a repeated header becomes a list, which is no name and no origin
                found[name] = found[name] + b", " + value if name in found else value
        rules = self._rules_of(scope)
        host = found.get(b"host")
        if rules.needs_known_host and host is not None and host not in self._served:
            if not rules.serves(host, scope):
                return UnknownHostError(
                    f"Host: {_shown(host)} is not a name of this gateway: use its address, or list the name in "
                    "PYOCO_HTTP_ALLOWED_HOSTS"
                )
            if len(self._served) < _MOST_REMEMBERED:
                self._served.add(host)
        if len(found) > 1 and rules.is_foreign(scope["method"], found):
            return ForeignOriginError(
                f"the request comes from another web site (Origin: {_shown(found.get(b'origin', b'-'))}): use the "
                "gateway's own page, or list the origin in PYOCO_HTTP_ALLOWED_ORIGINS"
            )
        return None

    def _rules_of(self, scope: Scope) -> "_Rules":
        settings: Settings = scope["app"].state.services.settings
        if self._rules is None or self._rules.settings is not settings:
            self._rules, self._served = _rules_for(settings), set()
        return self._rules


class _Rules(NamedTuple):
    """What the settings allow."""

    settings: Settings
    needs_known_host: bool
    hosts: frozenset[str]
    origins: frozenset[str]

    def serves(self, host: bytes, scope: Scope) -> bool:
        """Whether the gateway serves this name: loopback, a configured name, or the address of the socket.

        A page that makes its own name lead to this machine (DNS rebinding) arrives with that name.
        """
        name = _name(host)
        if name is None:
            return False
        server = scope.get("server")
        return is_loopback(name) or name in self.hosts or bool(server and name == server[0])

    def is_foreign(self, method: str, found: Mapping[bytes, bytes]) -> bool:
        """Whether a page of another origin sent the request; links to the gateway's pages are allowed."""
        origin, site = found.get(b"origin"), found.get(b"sec-fetch-site")
        if origin is not None and origin.decode("latin-1").lower() in self.origins:
            return False
        is_own = origin is not None and _is_same(origin, found.get(b"host", b""))
        if site is None or site in {b"same-origin", b"none"}:
            return method not in SAFE_METHODS and origin is not None and not is_own
        if site == b"same-site" and is_own:
            return False
        is_link = found.get(b"sec-fetch-mode") == b"navigate" and found.get(b"sec-fetch-dest") == b"document"
        return method not in SAFE_METHODS or not is_link


def _rules_for(settings: Settings) -> _Rules:
    http = settings.http
    of_origins = {_name(origin.partition("://")[2].encode()) or "" for origin in http.allowed_origins}
    return _Rules(
        settings=settings,
        needs_known_host=settings.auth.mode == "none",
        hosts=frozenset({http.host.lower(), *(host.lower() for host in http.allowed_hosts), *of_origins}),
        origins=frozenset(http.allowed_origins),
    )


def _name(authority: bytes) -> str | None:
    """Return the name or address in a ``Host``, without the port; None if it is not one."""
    parts = _AUTHORITY.fullmatch(authority.decode("latin-1"))
    return None if parts is None else (parts[1] or parts[2]).lower()


@functools.lru_cache(maxsize=256)
def _is_same(origin: bytes, host: bytes) -> bool:
    """Whether an origin has the name and the port of the ``Host``, as far as a proxy with TLS leaves them visible."""
    scheme, _, authority = origin.decode("latin-1").lower().partition("://")
    default = _DEFAULT_PORTS.get(scheme)
    one, other = _AUTHORITY.fullmatch(authority), _AUTHORITY.fullmatch(host.decode("latin-1").lower())
    if default is None or one is None or other is None:
        return False
    return (one[1] or one[2], int(one[3] or default)) == (other[1] or other[2], int(other[3] or default))


def _shown(value: bytes) -> str:
    return repr(value.decode("latin-1")[:LONGEST_SHOWN])
