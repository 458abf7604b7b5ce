"""Talking to a gateway from Python: :class:`Client`, and :class:`AsyncClient` for asyncio.

>>> with Client() as client:  # doctest: +SKIP
...     run_id = client.submit("hello", {"name": "Ada"})
...     print(client.wait(run_id)["status"])

Where the gateway is and which key to send is said by ``PYOCO_SERVER_URL`` and ``PYOCO_API_KEY``, unless it is given.
"""

from pyoco_server.client.asynchronous import AsyncClient
from pyoco_server.client.blocking import Client
from pyoco_server.client.calls import EventPage, RunPage
from pyoco_server.client.errors import ApiError, GatewayUnreachableError, UnexpectedAnswerError, WaitTimeoutError
from pyoco_server.client.outputs import Output, SavedOutput

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
