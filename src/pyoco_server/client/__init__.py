"""The Python client of a gateway: :class:`Client`, and :class:`AsyncClient` for asyncio.

>>> with Client() as client:  # doctest: +SKIP
...     run_id = client.submit("hello", {"name": "Ada"})
...     print(client.wait(run_id)["status"])

Without arguments, ``PYOCO_SERVER_URL`` and ``PYOCO_API_KEY`` name the gateway and the API key.
"""

from pyoco_server.client.async_client import AsyncClient
from pyoco_server.client.errors import ApiError, GatewayUnreachableError, UnexpectedAnswerError, WaitTimeoutError
from pyoco_server.client.outputs import Output, SavedOutput
from pyoco_server.client.requests import EventPage, RunPage
from pyoco_server.client.sync_client import Client

__all__ = [
    "ApiError",
    "AsyncClient",
    "Client",
    "EventPage",
    "GatewayUnreachableError",
    "Output",
    "RunPage",
    "SavedOutput",
    "UnexpectedAnswerError",
    "WaitTimeoutError",
]
