"""Requests to servers on this machine, without TLS. By default, httpx reads all certificates again for each client."""

import ssl
from typing import Final

NO_TLS: Final = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""For ``verify=``: trusts no certificate and reads none, which saves 25 ms for each client and each single call."""
