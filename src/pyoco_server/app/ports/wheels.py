"""Wheels: the code workers are given, who gave it, and where a worker keeps it."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import ClassVar, Literal, NamedTuple, Protocol

import msgspec

from pyoco_server.errors import PyocoServerError

Read = Callable[[int], Awaitable[bytes]]
"""Gives the next so many bytes of a file, fewer at its end, none behind it."""


class WheelActor(msgspec.Struct, frozen=True, kw_only=True):
    """Whose key it was."""

    tenant_id: str | None = None
    api_key_id: str | None = None


class WheelSource(msgspec.Struct, frozen=True, kw_only=True):
    """Where a request came from, as far as it says so itself."""

    remote_addr: str | None = None
    x_forwarded_for: str | None = None
    x_real_ip: str | None = None
    user_agent: str | None = None
    host: str | None = None
    scheme: str | None = None


class WheelEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the history."""

    event_id: str
    occurred_at: float
    action: Literal["upload", "delete"]
    wheel_name: str
    tags: tuple[str, ...] = ()
    size_bytes: int | None = None
    sha256_hex: str | None = None
    replace: bool | None = None
    actor: WheelActor = WheelActor()
    source: WheelSource = WheelSource()


class Wheel(msgspec.Struct, frozen=True, kw_only=True):
    """A wheel in the registry; ``nuid`` is another one whenever the content is."""

    name: str
    size_bytes: int
    bucket: str
    nuid: str
    modified: float
    sha256_hex: str | None
    tags: tuple[str, ...] = ()
    requires_python: str = ""
    event: WheelEvent | None = None
    """What the history says of its upload; kept with the wheel, so that the one cannot be without the other."""


class NewWheel(msgspec.Struct, frozen=True, kw_only=True):
    """A wheel on its way into the registry."""

    name: str
    sha256_hex: str
    tags: tuple[str, ...]
    requires_python: str
    event: WheelEvent


Admit = Callable[[Sequence[Wheel]], None]
"""Looks at what is there, and raises if the new wheel does not go with it."""


class WheelRegistry(Protocol):
    """Wheels by name. A wheel is there as a whole or not at all."""

    async def all(self) -> Sequence[Wheel]:
        """All wheels, by name."""
        ...

    async def find(self, name: str) -> Wheel | None:
        """The wheel of that name."""
        ...

    async def add(self, wheel: NewWheel, read: Read, admit: Admit) -> Wheel:
        """Keep a wheel, if ``admit`` lets it in; whatever it raises is raised here, and nothing stays behind.

        ``admit`` may be asked again when the registry has changed; what it saw last is what the wheel was added to.
        """
        ...

    def content(self, wheel: Wheel) -> AsyncIterator[bytes]:
        """The wheel's bytes; UnavailableError before the last of them if they are not what was stored."""
        ...

    async def delete(self, name: str, event: Callable[[Wheel], WheelEvent]) -> tuple[Wheel, WheelEvent] | None:
        """Forget a wheel, with what the history will say of it; None if there is none, or somebody else was quicker."""
        ...

    async def events(self) -> Sequence[WheelEvent]:
        """The last event of every name, whether its wheel is still there or not."""
        ...

    async def tidy(self, now: float) -> None:
        """Remove what uploads that came to nothing have left behind long ago."""
        ...


class WheelHistory(Protocol):
    """Who did what; forgets after its time."""

    async def add(self, event: WheelEvent) -> None:
        """Keep an event; the same again changes nothing."""
        ...

    async def all(self) -> Sequence[WheelEvent]:
        """All that is kept, in any order."""
        ...


class WheelInstallError(PyocoServerError):
    """A wheel could not be fetched, kept or installed; a later try may succeed."""

    err_id: ClassVar[str | None] = "ERR-PYOCO-0024"
    msg_id: ClassVar[str | None] = "MSG-PYOCO-0024"


class WheelUnfitError(PyocoServerError):
    """The wheel will never do for this worker."""

    err_id: ClassVar[str | None] = "ERR-PYOCO-0024"
    msg_id: ClassVar[str | None] = "MSG-PYOCO-0024"


class Tried(NamedTuple):
    """What became of a module, or a place where flows are, when it was imported on trial."""

    name: str
    wheel: Wheel | None
    """Which brings it; None if none of them does."""
    problem: str | None
    """Why it cannot be imported; None if it can."""
    is_place: bool = False


class WheelHouse(Protocol):
    """Where a worker keeps its wheels, and how their code becomes importable."""

    async def install(self, wheel: Wheel, content: Callable[[], AsyncIterator[bytes]]) -> None:
        """Make a wheel ready; quick if it is. WheelInstallError: try again later; WheelUnfitError: never."""
        ...

    async def trial(self, wheels: Sequence[Wheel], places: Sequence[str]) -> Sequence[Tried]:
        """Find out, without changing anything, what could be imported if exactly these were in use.

        That is the modules they bring and the places where flows are: modules, packages with all that is in them
        (``name.*``), Python files. WheelInstallError if it cannot be found out.
        """
        ...

    async def activate(self, wheels: Sequence[Wheel]) -> None:
        """From now on the code of exactly these is imported; what was imported of others is forgotten.

        WheelInstallError if one of them is not there any more; then nothing has changed.
        """
        ...

    async def tidy(self, known: Sequence[Wheel]) -> None:
        """Remove what no worker here uses and the registry no longer has."""
        ...

    async def close(self) -> None:
        """Let go of everything in use."""
        ...
