"""A connection from one process to a server on the same machine, which can be cut or made slow."""

import asyncio
import contextlib
from typing import Final

from tests.adapters.proxy import Proxy
from typing_extensions import override

_HELD_SEC: Final = 0.15
_PASSING_SEC: Final = 0.05


class Wire(Proxy):
    """Forwards all data. While it is cut, it is silent, and new connections get no answer."""

    def __init__(self, server_port: int) -> None:
        super().__init__(server_port)
        self._listening: asyncio.Server | None = None
        self._slowing: asyncio.Task[None] | None = None
        self._unheard: list[asyncio.StreamWriter] = []

    async def open(self) -> None:
        """Start to listen."""
        self._listening = await asyncio.start_server(self.accept, "127.0.0.1", 0)
        self.port = self._listening.sockets[0].getsockname()[1]

    @override
    async def accept(self, client_in: asyncio.StreamReader, client_out: asyncio.StreamWriter) -> None:
        if self.swallows_answers:
            self._unheard.append(client_out)
            return
        self.links = [link for link in self.links if not link.server.is_closing()]
        try:
            await super().accept(client_in, client_out)
        except OSError:  # the server is away
            client_out.close()

    def cut(self) -> None:
        """Stop all data in both directions."""
        self.swallows_answers = True
        for link in self.links:
            link.hold()

    def mend(self) -> None:
        """Deliver the held data late, and close the connections whose data was dropped."""
        self.swallows_answers = False
        for link in self.links:
            link.client.close()
        self._release()
        for writer in self._unheard:
            writer.close()
        self._unheard.clear()

    def slow_down(self) -> None:
        """Hold data for a moment, then send it in one piece."""
        self._slowing = asyncio.create_task(self._pulse())

    def speed_up(self) -> None:
        """Undo ``slow_down``."""
        if self._slowing is not None:
            self._slowing.cancel()
            self._slowing = None
            self._release()

    async def _pulse(self) -> None:
        while True:
            for link in self.links:
                if link.held is None:
                    link.hold()
            await asyncio.sleep(_HELD_SEC)
            self._release()
            await asyncio.sleep(_PASSING_SEC)

    def _release(self) -> None:
        if self.swallows_answers:
            return
        for link in self.links:
            if link.server.is_closing():
                link.held = None
                continue
            link.release()
            if link.client.is_closing():
                link.server.close()

    @override
    async def close(self) -> None:
        self.speed_up()
        self.mend()
        if self._listening is not None:
            self._listening.close()
        await super().close()
        if self._listening is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(5):
                    await self._listening.wait_closed()
