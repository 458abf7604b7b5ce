"""Quotas of tenants: live runs, submissions in a minute, stored bytes.

Nothing is counted twice: the index already has the runs of a tenant, whichever gateway accepted them, and is rebuilt
from the snapshots. A gateway reads a tenant's usage from it at most ``FRESH_SEC`` before a refusal, and otherwise once
in ``STALE_SEC``; in between it adds the submissions that it has accepted itself. So a single gateway never exceeds a
quota of runs. Of several, each may accept as many more as the others accepted in the last ``STALE_SEC`` and while
their snapshots arrive. The bytes are those of runs that are stored already: the run that reaches the quota is still
accepted.
"""

import asyncio
import contextlib
import math
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import ClassVar, Final

import msgspec

from pyoco_server.app.ports import Clock, TenantUsage
from pyoco_server.app.runs.submit import QuotaReachedError

MINUTE_SEC: Final = 60.0
FRESH_SEC: Final = 0.25
"""How old the usage may be that a refusal is based on: refused requests must not cost a query each."""
STALE_SEC: Final = 1.0
"""How old the usage may be that an acceptance is based on."""
MOST_TENANTS: Final = 10_000
"""How many tenants' usage is remembered; each is only a few numbers."""


class LiveRunsReachedError(QuotaReachedError):
    """The tenant has as many runs that have not ended as it may have."""

    err_id: ClassVar[str | None] = "ERR-PYOCO-0114"
    msg_id: ClassVar[str | None] = "MSG-PYOCO-0114"
    quota: ClassVar[str] = "live_runs"


class SubmissionsReachedError(QuotaReachedError):
    """The tenant has submitted as many runs in the last minute as it may."""

    err_id: ClassVar[str | None] = "ERR-PYOCO-0115"
    msg_id: ClassVar[str | None] = "MSG-PYOCO-0115"
    quota: ClassVar[str] = "submissions"
    retry_after_sec: ClassVar[int] = 5


class StoredBytesReachedError(QuotaReachedError):
    """The runs of the tenant take as much room as they may."""

    err_id: ClassVar[str | None] = "ERR-PYOCO-0116"
    msg_id: ClassVar[str | None] = "MSG-PYOCO-0116"
    quota: ClassVar[str] = "stored_bytes"


QUOTAS: Final = (LiveRunsReachedError.quota, SubmissionsReachedError.quota, StoredBytesReachedError.quota)


class QuotaLimits(msgspec.Struct, frozen=True):
    """What each tenant may have; 0 means no limit."""

    live_runs: int = 0
    submissions_per_min: int = 0
    stored_bytes: int = 0

    @property
    def by_quota(self) -> dict[str, int]:
        """The limits by the names of the quotas."""
        return dict(zip(QUOTAS, (self.live_runs, self.submissions_per_min, self.stored_bytes), strict=True))

    @property
    def are_set(self) -> bool:
        """Whether there is any limit."""
        return any(self.by_quota.values())


class TenantQuota:
    """The quotas of one tenant at one gateway. Belongs to one event loop."""

    def __init__(self, limits: QuotaLimits, read: Callable[[], Awaitable[TenantUsage]], clock: Clock) -> None:
        """``read`` returns what the index has, at least all that this gateway has written."""
        self._limits = limits
        self._read = read
        self._clock = clock
        self._reading = asyncio.Lock()
        self._read_at = -math.inf
        self._known = TenantUsage(0, 0, 0)
        self._under_way = self._accepted = self._before = 0
        self.refused: Counter[str] = Counter()
        """How many submissions were refused, by quota."""

    @contextlib.asynccontextmanager
    async def submission(self) -> AsyncIterator[None]:
        """Make room for a submission that is made inside; QuotaReachedError if there is none."""
        if not self._limits.are_set:
            yield
            return
        await self._admit()
        self._under_way += 1  # nothing was awaited since the check
        try:
            yield
        except BaseException:
            self._under_way -= 1
            raise
        self._under_way -= 1
        self._accepted += 1

    async def usage(self) -> TenantUsage:
        """Return the tenant's usage as of now."""
        await self._refresh(0.0)
        return self._known

    async def _admit(self) -> None:
        await self._refresh(STALE_SEC)
        reached = self._reached()
        if reached is None:
            return
        await self._refresh(FRESH_SEC)
        reached = self._reached()
        if reached is not None:
            self.refused[reached.quota] += 1
            raise reached

    async def _refresh(self, most_sec: float) -> None:
        """Read the usage unless it was read within this time; submissions that are under way count beside it."""
        if self._age_sec < most_sec:
            return
        async with self._reading:
            if self._age_sec < most_sec:
                return
            begun, self._before, self._accepted = self._now, self._accepted, 0
            try:
                self._known = await self._read()
            except BaseException:
                self._accepted += self._before
                raise
            finally:
                self._before = 0
            self._read_at = begun

    @property
    def _now(self) -> float:
        return self._clock.now().timestamp()

    @property
    def _age_sec(self) -> float:
        age = self._now - self._read_at
        return age if age >= 0 else math.inf  # the clock was set back

    def _reached(self) -> QuotaReachedError | None:
        limits, known, added = self._limits, self._known, self._under_way + self._accepted + self._before
        if limits.live_runs and known.live + added >= limits.live_runs:
            return LiveRunsReachedError(
                f"the tenant has {known.live + added} runs that have not ended, and may have {limits.live_runs}: wait "
                "until some have ended, or cancel some"
            )
        if limits.submissions_per_min and known.submitted + added >= limits.submissions_per_min:
            return SubmissionsReachedError(
                f"the tenant may submit {limits.submissions_per_min} runs a minute, and has: submit more slowly"
            )
        if limits.stored_bytes and known.stored_bytes >= limits.stored_bytes:
            return StoredBytesReachedError(
                f"the runs of the tenant take {known.stored_bytes} bytes, and may take {limits.stored_bytes}: ask the "
                "operator to remove old runs or to raise PYOCO_TENANT_MAX_STORED_BYTES"
            )
        return None


class TenantQuotas:
    """The quotas of all tenants at one gateway; what it forgets is read from the index again."""

    def __init__(self, limits: QuotaLimits, read: Callable[[str, float], Awaitable[TenantUsage]], clock: Clock) -> None:
        """``read`` returns the usage of a tenant, with the submissions since a moment."""
        self.limits = limits
        self._read = read
        self._clock = clock
        self._tenants: dict[str, TenantQuota] = {}

    def of(self, tenant_id: str) -> TenantQuota:
        """Return the quota of a tenant."""
        quota = self._tenants.get(tenant_id)
        if quota is None:
            if len(self._tenants) >= MOST_TENANTS:
                self._tenants.clear()

            async def read() -> TenantUsage:
                return await self._read(tenant_id, self._clock.now().timestamp() - MINUTE_SEC)

            quota = self._tenants[tenant_id] = TenantQuota(self.limits, read, self._clock)
        return quota

    def refused(self) -> dict[str, int]:
        """Return how many submissions this gateway refused, by quota."""
        return {name: sum(quota.refused[name] for quota in self._tenants.values()) for name in QUOTAS}
