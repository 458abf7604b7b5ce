"""Talking to a gateway from Python: :class:`Client`, and :class:`AsyncClient` for asyncio.

>>> with Client("http://127.0.0.1:8000") as client:  # doctest: +SKIP
...     run_id = client.submit("hello", {"name": "Ada"})
...     print(client.wait(run_id)["status"])
"""

from pyoco_server.client.asynchronous import AsyncClient
from pyoco_server.client.blocking import Client
from pyoco_server.client.calls import EventPage, RunPage
from pyoco_server.client.errors import ApiError, GatewayUnreachableError, UnexpectedAnswerError, WaitTimeoutError

__all__ = [
    "ApiError",
    "AsyncClient",
    "Client",
    "EventPage",
    "GatewayUnreachableError",
    "RunPage",
    "UnexpectedAnswerError",
    "WaitTimeoutError",
]
