"""From 1 to 1,000 nodes a run, one after the other and side by side."""

from collections.abc import Iterator

from bench.flows import SIZES
from bench.growth.curves import Bounded, Plot, Points
from bench.rows import Size
from bench.serving import one_site
from bench.subjects.steps import whole_run

NODES = 3_000
"""So many are measured at every size, in as many runs as that takes."""
MOST_RUNS = 100
KINDS = ("chain", "fan")


def plots(size: Size) -> Iterator[Plot]:
    """Chains and fans."""
    cpu: dict[str, Points] = {kind: Points() for kind in KINDS}
    wall: dict[str, Points] = {kind: Points() for kind in KINDS}
    bounded = Bounded()
    with one_site() as site:
        for kind in KINDS:
            for nodes in SIZES:
                runs = max(2, min(MOST_RUNS, size.choose(NODES, 200) // nodes))
                measured = bounded.at(nodes, whole_run(site, f"{kind}-{nodes}", runs))
                if measured is None:
                    break
                wall[kind].append((nodes, measured[0] / nodes))
                cpu[kind].append((nodes, measured[1] / nodes))
    note = f"no-op coroutines, one run at a time, durable; a run's own cost is shared by its nodes{bounded.note}"
    yield Plot("nodes-cpu", "CPU a node, all but the client", "nodes a run", "ms", cpu, note)
    yield Plot("nodes-time", "time a node, from submission to end", "nodes a run", "ms", wall, note)
