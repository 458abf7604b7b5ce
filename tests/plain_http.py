"""Requests to servers of this machine. None speaks TLS, and httpx reads all certificates for each client anew."""

import ssl
from typing import Final

NO_TLS: Final = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""For ``verify=``: nobody is trusted, and nothing read. It takes 25 ms off each client, and each call without one."""
