"""Wheels: the registry of code for workers, its history, and the place where a worker installs it."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import ClassVar, Literal, NamedTuple, Protocol

import msgspec

from pyoco_server.errors import PyocoServerError

Read = Callable[[int], Awaitable[bytes]]
"""Returns the next so many bytes of a file, fewer at its end, then none."""


class WheelActor(msgspec.Struct, frozen=True, kw_only=True):
    """The key that sent a request."""

    tenant_id: str | None = None
    api_key_id: str | None = None


class WheelSource(msgspec.Struct, frozen=True, kw_only=True):
    """Where a request came from, as its headers claim."""

    remote_addr: str | None = None
    x_forwarded_for: str | None = None
    x_real_ip: str | None = None
    user_agent: str | None = None
    host: str | None = None
    scheme: str | None = None


class WheelEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of the history."""

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
    """A wheel in the registry; ``nuid`` changes with the content."""

    name: str
    size_bytes: int
    bucket: str
    nuid: str
    modified: float
    sha256_hex: str | None
    tags: tuple[str, ...] = ()
    requires_python: str = ""
    event: WheelEvent | None = None
    """The history's entry of its upload; stored with the wheel, so that neither exists without the other."""


class NewWheel(msgspec.Struct, frozen=True, kw_only=True):
    """A wheel that is being uploaded."""

    name: str
    sha256_hex: str
    tags: tuple[str, ...]
    requires_python: str
    event: WheelEvent


Admit = Callable[[Sequence[Wheel]], None]
"""Raises if the new wheel must not be added to those that exist."""


class WheelRegistry(Protocol):
    """Wheels by name. A wheel is stored as a whole or not at all."""

    async def all(self) -> Sequence[Wheel]:
        """Return all wheels, ordered by name."""
        ...

    async def find(self, name: str) -> Wheel | None:
        """Return the wheel of that name, if there is one."""
        ...

    async def add(self, wheel: NewWheel, read: Read, admit: Admit) -> Wheel:
        """Store a wheel if ``admit`` accepts it; what ``admit`` raises is raised here, and nothing is stored.

        ``admit`` is called again when the registry has changed: the wheel is added to exactly what its last call saw.
        """
        ...

    def content(self, wheel: Wheel) -> AsyncIterator[bytes]:
        """Yield the wheel's bytes; UnavailableError before the last of them if they are not what was stored."""
        ...

    async def delete(self, name: str, event: Callable[[Wheel], WheelEvent]) -> tuple[Wheel, WheelEvent] | None:
        """Remove a wheel and return it with its history entry; None if there is none, or another request removed it."""
        ...

    async def events(self) -> Sequence[WheelEvent]:
        """Return the last event of every name, also of wheels that were removed."""
        ...

    async def tidy(self, now: float) -> None:
        """Remove what failed uploads left behind long ago."""
        ...


class WheelHistory(Protocol):
    """Uploads and deletions of wheels; entries expire."""

    async def add(self, event: WheelEvent) -> None:
        """Store an event; storing it twice has no effect."""
        ...

    async def all(self) -> Sequence[WheelEvent]:
        """Return all events, in any order."""
        ...


class WheelInstallError(PyocoServerError):
    """A wheel could not be fetched, stored or installed; a later attempt may succeed."""

    err_id: ClassVar[str | None] = "ERR-PYOCO-0024"
    msg_id: ClassVar[str | None] = "MSG-PYOCO-0024"


class WheelUnfitError(PyocoServerError):
    """The wheel can never be installed on this worker."""

    err_id: ClassVar[str | None] = "ERR-PYOCO-0024"
    msg_id: ClassVar[str | None] = "MSG-PYOCO-0024"


class Tried(NamedTuple):
    """The result of importing a module, or a place where flows are, on trial."""

    name: str
    wheel: Wheel | None
    """The wheel that contains it; None if none does."""
    problem: str | None
    """Why it cannot be imported; None if it can."""
    is_place: bool = False


class WheelHouse(Protocol):
    """Installs wheels for a worker and makes their code importable."""

    async def install(self, wheel: Wheel, content: Callable[[], AsyncIterator[bytes]]) -> None:
        """Install a wheel, unless it is installed. WheelInstallError: try again later; WheelUnfitError: never."""
        ...

    async def trial(self, wheels: Sequence[Wheel], places: Sequence[str]) -> Sequence[Tried]:
        """Return what could be imported if exactly these wheels were in use, without changing anything.

        That is the modules they contain and the places where flows are: modules, packages with all their modules
        (``name.*``), Python files. WheelInstallError if the trial itself fails.
        """
        ...

    async def activate(self, wheels: Sequence[Wheel]) -> None:
        """Make the code of exactly these wheels importable, and forget modules that came from others.

        WheelInstallError if one of them is not installed any more; then nothing has changed.
        """
        ...

    async def tidy(self, known: Sequence[Wheel]) -> None:
        """Remove wheels that no worker on this machine uses and that the registry no longer has."""
        ...

    async def close(self) -> None:
        """Release the wheels in use."""
        ...
