"""How much one key may ask for: so many requests a second, and so many at a time."""

import asyncio

import pytest

from pyoco_server.gateway.key_limits import KeyLimits, LimitReachedError
from tests.gateway.auth.test_every_route import error
from tests.gateway.auth.world import World, issued
from tests.waiting import wait_until


def test_a_seconds_worth_may_come_at_once_and_then_so_many_a_second() -> None:
    limits = KeyLimits(per_sec=5)
    for _ in range(5):
        limits.admit("k", 100.0)
    with pytest.raises(LimitReachedError) as caught:
        limits.admit("k", 100.0)
    assert caught.value.retry_after_sec == 1
    limits.admit("other", 100.0)
    limits.admit("k", 100.2)
    with pytest.raises(LimitReachedError):
        limits.admit("k", 100.3)
    for _ in range(5):
        limits.admit("k", 200.0)
    with pytest.raises(LimitReachedError):
        limits.admit("k", 200.0)


def test_less_than_one_a_second_says_how_long_to_wait() -> None:
    limits = KeyLimits(per_sec=0.1)
    limits.admit("k", 0.0)
    with pytest.raises(LimitReachedError) as caught:
        limits.admit("k", 1.0)
    assert caught.value.retry_after_sec == 9


def test_an_ended_request_frees_its_place_once() -> None:
    limits = KeyLimits(at_once=2)
    first = limits.admit("k", 0.0)
    limits.admit("k", 0.0)
    with pytest.raises(LimitReachedError):
        limits.admit("k", 0.0)
    first()
    first()
    limits.admit("k", 0.0)
    assert limits.under_way("k") == 2
    with pytest.raises(LimitReachedError):
        limits.admit("k", 0.0)


def test_a_limit_of_zero_is_no_limit() -> None:
    limits = KeyLimits()
    for _ in range(10_000):
        limits.admit("k", 0.0)
    assert limits.under_way("k") == 10_000


def test_one_key_too_many_requests(world: World) -> None:
    async def scenario() -> None:
        async with (
            world.open(world.settings(rate_limit_per_sec=2.0)) as gateway,
            gateway.client(await issued(gateway, "acme")) as greedy,
            gateway.client(await issued(gateway, "acme")) as other,
            gateway.client() as stranger,
        ):
            answers = [await greedy.get("/runs") for _ in range(8)]
            refused = [answer for answer in answers if answer.status_code == 429]
            assert len(refused) >= 4
            assert {error(answer) for answer in refused} == {(429, "ERR-PYOCO-0102")}
            assert all(int(answer.headers["retry-after"]) >= 1 for answer in refused)
            assert (await other.get("/runs")).status_code == 200
            assert all([(await stranger.get("/health")).status_code == 200 for _ in range(8)])

    asyncio.run(scenario())


def test_one_key_too_many_requests_at_a_time_but_watching_is_counted_on_its_own(world: World) -> None:
    async def scenario() -> None:
        async with world.listening(world.settings(max_concurrent_requests_per_key=2)) as gateway:
            key = await issued(gateway, "acme")
            async with gateway.client(key) as acme, gateway.client(await issued(gateway, "acme")) as other:
                run_id = (await acme.post("/runs", json={"flow_name": "f"})).json()["run_id"]
                watch = f"/runs/{run_id}/watch"
                async with acme.stream("GET", watch), acme.stream("GET", watch), acme.stream("GET", watch):
                    await wait_until(lambda: gateway.services.hub.streams.count == 3)
                    assert gateway.services.limits.under_way(key.stored.api_key_id) == 0
                    assert (await acme.get("/runs")).status_code == 200
                ends = [gateway.services.limits.admit(key.stored.api_key_id, 0.0) for _ in range(2)]
                refused = await acme.get("/runs")
                assert error(refused) == (429, "ERR-PYOCO-0102")
                assert refused.headers["retry-after"] == "1"
                assert (await other.get("/runs")).status_code == 200
                ends[0]()
                assert (await acme.get("/runs")).status_code == 200
                assert gateway.services.limits.under_way(key.stored.api_key_id) == 1

    asyncio.run(scenario())
