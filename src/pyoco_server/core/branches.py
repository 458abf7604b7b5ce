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
    """The nearest node through which every path to a node must go, found in one pass because the order is known.

    The nodes form a tree by "nearest above". Each also knows one ancestor farther up (``_jump``), chosen so that any
    ancestor is reached in a logarithmic number of steps: long chains with many side ways stay cheap.
    """

    def __init__(self, order: Sequence[str], sources: Sources) -> None:
        start = order[0]
        self._above: dict[str, str] = {start: start}
        self._jump: dict[str, str] = {start: start}
        self._depth: dict[str, int] = {start: 0}
        for node_id in order[1:]:
            first, *others = sources[node_id]
            common = first
            for source in others:
                common = self._meet(common, source)
            self._add(node_id, common)

    def of(self, node_id: str) -> str:
        return self._above[node_id]

    def step_below(self, upper: str, lower: str) -> str:
        """The ancestor of ``lower`` that stands directly below ``upper``, or ``lower`` if that is ``upper``."""
        return lower if lower == upper else self._climb(lower, self._depth[upper] + 1)

    def _add(self, node_id: str, above: str) -> None:
        far, farther = self._jump[above], self._jump[self._jump[above]]
        balanced = self._depth[above] - self._depth[far] == self._depth[far] - self._depth[farther]
        self._above[node_id] = above
        self._jump[node_id] = farther if balanced else above
        self._depth[node_id] = self._depth[above] + 1

    def _climb(self, node_id: str, depth: int) -> str:
        while self._depth[node_id] > depth:
            jump = self._jump[node_id]
            node_id = jump if self._depth[jump] >= depth else self._above[node_id]
        return node_id

    def _meet(self, one: str, other: str) -> str:
        depth = min(self._depth[one], self._depth[other])
        one, other = self._climb(one, depth), self._climb(other, depth)
        while one != other:
            if self._jump[one] != self._jump[other]:
                one, other = self._jump[one], self._jump[other]
            else:
                one, other = self._above[one], self._above[other]
        return one
