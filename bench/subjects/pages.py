"""A page of the list over HTTP, however many runs there are.

Every size has a site of its own, and they take turns, so that what else the machine does is the same for all.
"""

import asyncio
import statistics
import time
from collections.abc import Iterator, Sequence

from bench.asking import Asker
from bench.rows import Row, Size
from bench.serving import stand_here
from bench.stored import Filled, filled_sites
from pyoco_server.app.ports import Cursor
from pyoco_server.gateway.schemas.parameters import encode_cursor

SIZES = (1_000, 10_000, 100_000, 1_000_000)
RATIO_AT_MOST = 1.5
PAGES = 300
WARM_UP = 20


def rows(size: Size) -> Iterator[Row]:
    """The newest 50, and 50 in the middle."""
    with stand_here() as stand:
        filled, problem = filled_sites(stand, size.choose(SIZES, SIZES[:2]))
        for place, paths in (
            ("the newest 50", ["/runs"] * len(filled)),
            ("50 in the middle", [middle_path(one) for one in filled]),
        ):
            subject = f"a page of the list over HTTP, {place}"
            times = asyncio.run(page_ms(filled, paths, size.choose(PAGES, 50)))
            for one, took in zip(filled, times, strict=True):
                yield Row(subject, f"of {one.size:,} runs", took, "ms")
            note = f"{filled[-1].size:,} runs to {filled[0].size:,}"
            yield Row(subject, note, times[-1] / times[0], "times", goal=RATIO_AT_MOST)
        subject, most = "a gateway starts", filled[-1]
        note = f"{most.size / most.indexed_sec:,.0f} runs/s, with all else a start takes"
        yield Row(subject, f"on {most.size:,} runs, without an index", most.indexed_sec, "s", note=note)
        yield Row(subject, f"on {most.size:,} runs, with the index of before", most.started_sec, "s")
    if problem:
        raise RuntimeError(problem.removeprefix("; "))


def middle_path(filled: Filled) -> str:
    """The page that begins in the middle."""
    return f"/runs?cursor={encode_cursor(Cursor(filled.middle, ''), None)}"


async def page_ms(filled: Sequence[Filled], paths: Sequence[str], count: int) -> list[float]:
    """For each: the median milliseconds of many requests, which take turns."""
    askers, times = [Asker(one.site.port) for one in filled], [list[float]() for _ in filled]
    for number in range(-WARM_UP, count):
        for asker, path, taken in zip(askers, paths, times, strict=True):
            began = time.perf_counter()
            answer = await asker.http.ask("GET", path)
            if number >= 0:
                taken.append((time.perf_counter() - began) * 1e3)
            if len(answer if isinstance(answer, list) else answer["items"]) != 50:
                raise RuntimeError(f"GET {path}: not a full page")
    return [statistics.median(taken) for taken in times]
