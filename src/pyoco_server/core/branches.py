"""What to call the branches that meet at a join.

A fork names its branches by the nodes they begin with. The join that closes the fork should use the same names, though
it sees only the nodes the branches end with. The link between the two is dominance: if a branch of the fork is the
only way to the edge's source, that branch is what arrives here. Where a join gathers branches of no single fork, each
is called by the node it ends with.
"""

from collections.abc import Mapping, Sequence

Sources = Mapping[str, Sequence[str]]


def branch_names(order: Sequence[str], sources: Sources, forks: frozenset[str], joins: Sequence[str]) -> Sources:
    """For every join, the names of its branches in the order of its incoming edges.

    ``order`` lists all nodes with every edge pointing forward, the start first; ``sources`` says where each node's
    incoming edges come from.
    """
    dominators = _Dominators(order, sources)
    return {join: _names(sources[join], dominators, dominators.of(join), forks) for join in joins}


def _names(tails: Sequence[str], dominators: "_Dominators", fork: str, forks: frozenset[str]) -> Sequence[str]:
    if fork not in forks:
        return tails
    heads = [dominators.step_below(fork, tail) for tail in tails]
    proper = len(set(heads)) == len(heads) and fork not in tails
    return tuple(heads) if proper else tails


class _Dominators:
    """The nearest node through which every path to a node must go, found in one pass because the order is known."""

    def __init__(self, order: Sequence[str], sources: Sources) -> None:
        start = order[0]
        self._above: dict[str, str] = {start: start}
        self._depth: dict[str, int] = {start: 0}
        for node_id in order[1:]:
            first, *others = sources[node_id]
            common = first
            for source in others:
                common = self._meet(common, source)
            self._above[node_id] = common
            self._depth[node_id] = self._depth[common] + 1

    def of(self, node_id: str) -> str:
        return self._above[node_id]

    def step_below(self, upper: str, lower: str) -> str:
        """The ancestor of ``lower`` that stands directly below ``upper``, or ``lower`` if that is ``upper``."""
        below = lower
        while lower != upper:
            below, lower = lower, self._above[lower]
        return below

    def _meet(self, one: str, other: str) -> str:
        while one != other:
            if self._depth[one] < self._depth[other]:
                one, other = other, one
            one = self._above[one]
        return one
