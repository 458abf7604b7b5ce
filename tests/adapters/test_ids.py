"""Ids are unique UUIDs, also in many threads and after a fork."""

import os
import random
import threading
import uuid
from collections.abc import Callable

import pytest

from pyoco_server.adapters.system import series_maker, uuid_maker

MAKERS = [uuid_maker, series_maker]


@pytest.mark.parametrize("maker", MAKERS)
def test_ids_are_uuids_of_version_4(maker: Callable[[], Callable[[], str]]) -> None:
    new_id = maker()
    for _ in range(1_000):
        made = new_id()
        read = uuid.UUID(made)
        assert str(read) == made
        assert (read.version, read.variant) == (4, uuid.RFC_4122)


@pytest.mark.parametrize("maker", MAKERS)
def test_ids_are_unique(maker: Callable[[], Callable[[], str]]) -> None:
    shared, found = maker(), list[str]()

    def make() -> None:
        made = [shared() for _ in range(5_000)]
        found.extend(made)

    threads = [threading.Thread(target=make) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found += [new_id() for new_id in (maker() for _ in range(20)) for _ in range(100)]
    assert len(set(found)) == len(found) == 42_000


@pytest.mark.parametrize("maker", MAKERS)
def test_forked_child_makes_other_ids(maker: Callable[[], Callable[[], str]]) -> None:
    new_id = maker()
    new_id()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, "\n".join(new_id() for _ in range(100)).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        theirs = pipe.read().split("\n")
    os.waitpid(child, 0)
    assert len(theirs) == 100
    assert not {*theirs} & {new_id() for _ in range(1_000)}


def test_seeded_source_makes_predictable_ids() -> None:
    one, other = (uuid_maker(random.Random(7)) for _ in range(2))
    assert [one() for _ in range(5)] == [other() for _ in range(5)]
