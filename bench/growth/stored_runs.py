"""From 1,000 to 1,000,000 stored runs: a page of the list, and a submission."""

import asyncio
from collections.abc import Iterator, Sequence

from bench.growth.curves import Plot, Points
from bench.rows import Size
from bench.serving import GATEWAY, stand_here
from bench.stored import Filled, filled_sites
from bench.subjects.pages import SIZES, middle_path, page_ms
from bench.subjects.submitting import submitted

ROUNDS = 3


def plots(size: Size) -> Iterator[Plot]:
    """Every size has a site of its own, and they take turns."""
    with stand_here() as stand:
        filled, problem = filled_sites(stand, size.choose(SIZES, SIZES[:2]))
        count = size.choose(300, 50)
        newest = asyncio.run(page_ms(filled, ["/runs"] * len(filled), count))
        middle = asyncio.run(page_ms(filled, [middle_path(one) for one in filled], count))
        latency, cpu = _submissions(filled, size.choose(300, 100))
        starts = {
            "without an index": _over(filled, [one.indexed_sec for one in filled]),
            "with the index of before": _over(filled, [one.started_sec for one in filled]),
        }
    of, note = "stored runs", f"over HTTP, the median of many that took turns{problem}"
    pages = {"the newest 50": _over(filled, newest), "50 in the middle": _over(filled, middle)}
    yield Plot("stored-page", "a page of the list", of, "ms", pages, note)
    submissions = {"from request to answer": latency, "CPU of the gateway": cpu}
    yield Plot("stored-submit", "a submission", of, "ms", submissions, "fast (nothing is synced), no worker takes them")
    note = "an index is made of all that is stored before the gateway answers, and kept for its next start"
    yield Plot("stored-start", "a gateway starts", of, "s", starts, note)


def _over(filled: Sequence[Filled], figures: Sequence[float]) -> Points:
    return [(one.size, figure) for one, figure in zip(filled, figures, strict=True)]


def _submissions(filled: Sequence[Filled], count: int) -> tuple[Points, Points]:
    """The best of some rounds: noise only ever adds."""
    latencies, used = [list[float]() for _ in filled], [list[float]() for _ in filled]
    for _ in range(ROUNDS):
        for place, one in enumerate(filled):
            _, latency, by_role = asyncio.run(submitted(one.site, count))
            latencies[place].append(latency)
            used[place].append(by_role[f"{GATEWAY}-{one.size}"])
    return _over(filled, [min(figures) for figures in latencies]), _over(filled, [min(figures) for figures in used])
