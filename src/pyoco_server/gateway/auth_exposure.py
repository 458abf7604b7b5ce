"""A gateway that asks for no key stays on this machine, unless somebody says in so many words that it should not."""

import ipaddress
import logging

from pyoco_server.errors import PyocoServerError
from pyoco_server.settings import Settings

_log = logging.getLogger(__name__)


class ExposedError(PyocoServerError):
    """The gateway would be open to whoever can reach it."""


def check_exposure(settings: Settings) -> None:
    """ExposedError if everybody on the network could use the gateway and nobody said that this is wanted."""
    host = settings.http.host
    if settings.auth.mode != "none" or is_loopback(host):
        return
    if not settings.auth.insecure_no_auth:
        raise ExposedError(
            f"the gateway would listen on {host} without asking for API keys: whoever reaches it could run code on the "
            "workers. Set PYOCO_HTTP_AUTH_MODE=api_key and create keys with 'pyoco-server keys create', or listen on "
            "127.0.0.1; if the network keeps everybody else out, --insecure-no-auth (PYOCO_INSECURE_NO_AUTH=1) says so"
        )
    _log.warning(
        "INSECURE: the gateway listens on %s and asks for no API keys; whoever reaches it may do everything",
        host,
        extra={"action": "gateway_exposed"},
    )


def is_loopback(host: str) -> bool:
    """Is it an address only this machine can reach? A name is not looked up: it may mean something else tomorrow."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
