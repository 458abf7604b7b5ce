"""Recognising keys: which are accepted, what a wrong one costs, and what happens when the store does not answer."""

import asyncio
import statistics
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pyoco_server.adapters.memory.registries import MemoryKeyStore
from pyoco_server.app.api_keys.cache import KeyCache
from pyoco_server.app.api_keys.errors import ApiKeyRefusedError, KeyNotFoundError
from pyoco_server.app.api_keys.format import KeyScope, key_text
from pyoco_server.app.api_keys.service import KeyService
from pyoco_server.app.ports import UnavailableError
from pyoco_server.app.ports.keys import KeyRecords
from pyoco_server.errors import InvalidInputError

PEPPER = b"pepper"


class Clock:
    def __init__(self) -> None:
        self.time = datetime(2026, 1, 1, tzinfo=UTC)

    def now(self) -> datetime:
        return self.time

    async def sleep(self, seconds: float) -> None:
        self.time += timedelta(seconds=seconds)


class Store(MemoryKeyStore):
    """Counts how often it is read, and can be away."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = 0
        self.is_away = False

    async def read(self, known: KeyRecords | None = None) -> KeyRecords:  # type: ignore[explicit-override]
        self.reads += 1
        await asyncio.sleep(0)
        if self.is_away:
            raise UnavailableError("away")
        return await super().read(known)


class Setting:
    def __init__(self, *, fresh_sec: float = 0.0) -> None:
        self.clock, self.store = Clock(), Store()
        chance: Callable[[int], bytes] = lambda count: bytes(self._numbers.pop() for _ in range(count))  # noqa: E731
        self._numbers = [number * 37 % 251 for number in range(4_000)]
        self.desk = KeyService(self.store, self.clock, chance, pepper=PEPPER)
        self.ring = KeyCache(self.store, self.clock, pepper=PEPPER, fresh_sec=fresh_sec)

    async def refusal(self, presented: str) -> str:
        with pytest.raises(ApiKeyRefusedError) as caught:
            await self.ring.recognise(presented.encode())
        return str(caught.value)


def run(scenario: Callable[[Setting], Any], **more: float) -> None:
    async def body() -> None:
        await scenario(Setting(**more))

    asyncio.run(body())


@pytest.mark.spec("004 REQ-0016")
def test_a_key_is_recognised_with_its_whole_record() -> None:
    async def scenario(at: Setting) -> None:
        issued = await at.desk.create("acme", scopes={KeyScope.WHEELS, KeyScope.RUNS}, name="ci")
        found = await at.ring.recognise(issued.text.encode())
        assert found == issued.stored
        assert (found.tenant_id, found.scopes, found.name) == ("acme", ("runs", "wheels"), "ci")
        assert issued.text.removeprefix(f"pyoco_{found.api_key_id}_") not in repr(found)

    run(scenario)


@pytest.mark.spec("004 REQ-0016", "004 ERR-PYOCO-0015")
def test_unknown_wrong_and_malformed_keys_are_refused_alike() -> None:
    async def scenario(at: Setting) -> None:
        issued = await at.desk.create("acme")
        wrong = issued.text[:-1] + ("0" if issued.text[-1] != "0" else "1")
        unknown = key_text("k" + "0" * 16, b"\1" * 32)
        texts = {await at.refusal(text) for text in (wrong, unknown, "", "x", issued.text.upper(), f"{issued.text} ")}
        assert texts == {"the API key is not valid"}

    run(scenario)


@pytest.mark.spec("004 REQ-0016", "004 ERR-PYOCO-0015")
def test_a_key_that_is_no_longer_valid_is_refused_with_the_reason() -> None:
    async def scenario(at: Setting) -> None:
        ends = at.clock.now().timestamp() + 60
        short, revoked = await at.desk.create("acme", expires_at=ends), await at.desk.create("acme")
        assert await at.ring.recognise(short.text.encode()) == short.stored
        await at.desk.revoke(revoked.stored.api_key_id)
        assert "revoked" in await at.refusal(revoked.text)
        await at.clock.sleep(60)
        assert "expired" in await at.refusal(short.text)
        wrong = revoked.text[:-1] + ("0" if revoked.text[-1] != "0" else "1")
        assert await at.refusal(wrong) == "the API key is not valid"

    run(scenario)


def test_a_key_of_another_pepper_is_none() -> None:
    async def scenario(at: Setting) -> None:
        other = KeyService(at.store, at.clock, lambda count: b"\7" * count, pepper=b"another")
        issued = await other.create("acme")
        await at.refusal(issued.text)
        assert at.desk.state_of(issued.stored) == "other pepper"
        assert other.state_of(issued.stored) == "active"

    run(scenario)


def test_a_new_secret_replaces_the_old_one_at_once_or_after_a_while() -> None:
    async def scenario(at: Setting) -> None:
        first = await at.desk.create("acme", scopes={KeyScope.OPERATE}, name="ci")
        second = await at.desk.rotate(first.stored.api_key_id)
        await at.refusal(first.text)
        found = await at.ring.recognise(second.text.encode())
        assert (found.api_key_id, found.scopes, found.name) == (first.stored.api_key_id, ("operate",), "ci")
        third = await at.desk.rotate(first.stored.api_key_id, keep_old_sec=10)
        assert (await at.ring.recognise(second.text.encode())).api_key_id == first.stored.api_key_id
        assert await at.ring.recognise(third.text.encode()) == third.stored
        assert await at.ring.still_counts(second.text.encode())
        await at.clock.sleep(10)
        assert not await at.ring.still_counts(second.text.encode())
        await at.refusal(second.text)
        assert await at.ring.recognise(third.text.encode()) == third.stored
        await at.desk.revoke(first.stored.api_key_id)
        await at.refusal(third.text)
        with pytest.raises(InvalidInputError, match="revoked"):
            await at.desk.rotate(first.stored.api_key_id)

    run(scenario)


def test_a_revoked_key_stays_revoked_since_when_it_was() -> None:
    async def scenario(at: Setting) -> None:
        issued = await at.desk.create("acme")
        once = await at.desk.revoke(issued.stored.api_key_id)
        await at.clock.sleep(5)
        assert await at.desk.revoke(issued.stored.api_key_id) == once

    run(scenario)


def test_an_invalid_key_is_not_created() -> None:
    async def scenario(at: Setting) -> None:
        for tenant in ("", "a b", "a.b", "a--b", "-a", "a/", "x" * 41, "é"):
            with pytest.raises(InvalidInputError, match="tenant"):
                await at.desk.create(tenant)
        with pytest.raises(InvalidInputError, match="name"):
            await at.desk.create("acme", name="a\x1b[2J")
        with pytest.raises(InvalidInputError, match="past"):
            await at.desk.create("acme", expires_at=at.clock.now().timestamp())
        with pytest.raises(KeyNotFoundError):
            await at.desk.revoke("k" + "9" * 16)
        with pytest.raises(InvalidInputError) as caught:
            await at.desk.revoke("pyoco_k0_secret")
        assert "secret" not in str(caught.value)
        assert (await at.store.read()).keys == []

    run(scenario)


@pytest.mark.spec("004 REQ-0016", "004 ERR-PYOCO-0003")
def test_no_key_is_accepted_while_the_store_does_not_answer() -> None:
    async def scenario(at: Setting) -> None:
        issued = await at.desk.create("acme")
        await at.ring.recognise(issued.text.encode())
        at.store.is_away = True
        for text in (issued.text, "x"):
            with pytest.raises(UnavailableError):
                await at.ring.recognise(text.encode())
        with pytest.raises(UnavailableError):
            await at.ring.still_counts(issued.text.encode())
        at.store.is_away = False
        assert await at.ring.still_counts(issued.text.encode())

    run(scenario)


def test_many_waiting_requests_share_one_read() -> None:
    async def scenario(at: Setting) -> None:
        issued = await at.desk.create("acme")
        before = at.store.reads
        good = [at.ring.recognise(issued.text.encode()) for _ in range(100)]
        bad = [at.ring.recognise(b"wrong") for _ in range(100)]
        ends = await asyncio.gather(*good, *bad, return_exceptions=True)
        assert sum(isinstance(end, ApiKeyRefusedError) for end in ends) == 100
        assert at.store.reads - before <= 3
        at.store.is_away = True
        before = at.store.reads
        ends = await asyncio.gather(*(at.ring.recognise(b"wrong") for _ in range(100)), return_exceptions=True)
        assert all(isinstance(end, UnavailableError) for end in ends)
        assert at.store.reads - before <= 2

    run(scenario)


def test_requests_do_not_read_the_store_while_the_copy_is_fresh() -> None:
    async def scenario(at: Setting) -> None:
        issued = await at.desk.create("acme")
        await at.ring.recognise(issued.text.encode())
        before = at.store.reads
        for _ in range(1_000):
            await at.ring.recognise(issued.text.encode())
        assert at.store.reads == before
        later = await at.desk.create("acme")  # counts at once all the same
        assert await at.ring.recognise(later.text.encode()) == later.stored

    run(scenario, fresh_sec=60.0)


@pytest.mark.spec("004 REQ-0016")
def test_an_unknown_id_and_a_wrong_secret_cost_the_same() -> None:
    async def scenario(at: Setting) -> None:
        issued = await at.desk.create("acme")
        wrong = (issued.text[:-1] + ("0" if issued.text[-1] != "0" else "1")).encode()
        unknown = key_text("k" + "0" * 16, b"\1" * 32).encode()
        reads, times = {}, {wrong: [], unknown: []}  # type: ignore[var-annotated]
        for presented in (wrong, unknown):
            before = at.store.reads
            await at.refusal(presented.decode())
            reads[presented] = at.store.reads - before
        assert reads[wrong] == reads[unknown]
        for _ in range(500):
            for presented in (wrong, unknown):
                began = time.thread_time_ns()
                at.ring._match(presented)
                times[presented].append(time.thread_time_ns() - began)
        medians = [statistics.median(times[presented]) for presented in (wrong, unknown)]
        assert max(medians) < 2 * min(medians)

    run(scenario)
