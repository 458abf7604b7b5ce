"""Refuses to start a gateway that requires no keys on an address that other machines can reach."""

import ipaddress
import logging

from pyoco_server.errors import PyocoServerError
from pyoco_server.settings import Settings

_log = logging.getLogger(__name__)


class ExposedError(PyocoServerError):
    """The gateway would be open to every machine that can reach it."""


def check_exposure(settings: Settings) -> None:
    """ExposedError if every machine on the network could use the gateway and the operator did not ask for that."""
    host = settings.http.host
    if settings.auth.mode != "none" or is_loopback(host):
        return
    if not settings.auth.insecure_no_auth:
        raise ExposedError(
            f"the gateway would listen on {host} without API keys: every machine that reaches it could run code on the "
            "workers. Set PYOCO_HTTP_AUTH_MODE=api_key and create keys with 'pyoco-server keys create', or listen on "
            "127.0.0.1; if only trusted machines reach it, use --insecure-no-auth (PYOCO_INSECURE_NO_AUTH=1)"
        )
    _log.warning(
        "INSECURE: the gateway listens on %s without API keys; every machine that reaches it can do everything",
        host,
        extra={"action": "gateway_exposed"},
    )


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address. A name is not resolved: its address may change."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
