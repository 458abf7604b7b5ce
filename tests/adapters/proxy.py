"""A TCP proxy between a client and a server that delays, drops or cuts connections on command."""

import asyncio
import contextlib
from collections.abc import AsyncIterator


class Link:
    """One connection of a client, and the data held back on its way to the server."""

    def __init__(self, client: asyncio.StreamWriter, server: asyncio.StreamWriter) -> None:
        self.client = client
        self.server = server
        self.held: list[bytes] | None = None
        self.sent = 0

    def hold(self) -> None:
        """Hold back what the client sends from now on."""
        self.held = []

    def release(self) -> None:
        """Forward what was held back, and everything that follows."""
        held, self.held = self.held or [], None
        self.server.writelines(held)


class Proxy:
    """Forwards all data, until a test cuts, pauses or drops it."""

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self.port = 0
        self.links: list[Link] = []
        self.swallows_answers = False
        self.refuses = False
        self._pumps: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    async def accept(self, client_in: asyncio.StreamReader, client_out: asyncio.StreamWriter) -> None:
        if self.refuses:
            client_out.close()
            return
        server_in, server_out = await asyncio.open_connection("127.0.0.1", self._server_port)
        link = Link(client_out, server_out)
        self.links.append(link)
        for pump in (self._to_server(client_in, link), self._to_client(server_in, link)):
            task = asyncio.create_task(pump)
            self._pumps.add(task)
            task.add_done_callback(self._pumps.discard)

    async def _to_server(self, client_in: asyncio.StreamReader, link: Link) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await client_in.read(65_536):
                link.sent += 1
                if link.held is None:
                    link.server.write(data)
                else:
                    link.held.append(data)
        if link.held is None:
            link.server.close()

    async def _to_client(self, server_in: asyncio.StreamReader, link: Link) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await server_in.read(65_536):
                if not self.swallows_answers:
                    link.client.write(data)
        link.client.close()

    async def close(self) -> None:
        for link in self.links:
            link.client.close()
            link.server.close()
        for pump in [*self._pumps]:
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)


@contextlib.asynccontextmanager
async def proxy_to(server_port: int) -> AsyncIterator[Proxy]:
    proxy = Proxy(server_port)
    listening = await asyncio.start_server(proxy.accept, "127.0.0.1", 0)
    proxy.port = listening.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        listening.close()
        await proxy.close()
        await listening.wait_closed()
