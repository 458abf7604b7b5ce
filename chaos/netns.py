"""A network of our own: a namespace for every process, all of them on one bridge, which can be cut in pieces.

Nothing outside these namespaces and the two bridges is touched. A namespace that is away is on the second bridge, where
it reaches only those that are away with it. Two that must not reach each other, while all others reach both, are
isolated on the bridge. Slow is done by netem where the kernel has it, and by a narrow pipe where it has not.
"""

import contextlib
import os
from collections.abc import Collection
from typing import Final

from chaos.machine import NotPossibleError, run

_SLOW: Final = (
    ("netem", "delay", "80ms", "40ms", "loss", "1%"),
    ("tbf", "rate", "400kbit", "burst", "4kb", "latency", "300ms"),
)


class Network:
    """Namespaces with names and addresses."""

    def __init__(self) -> None:
        self._mark = f"pc{os.getpid()}"
        self._here, self._away = f"{self._mark}a", f"{self._mark}b"
        self._net = f"10.{200 + os.getpid() % 50}.{os.getpid() // 50 % 250}"
        self._known: dict[str, int] = {}
        self.slowed_by = ""
        """The means that made the network slow; empty before."""

    def open(self) -> None:
        """Make the bridges; Raises NotPossibleError where that is not possible."""
        if os.geteuid() != 0:
            raise NotPossibleError("network namespaces need root")
        if f"{self._net}." in run("ip", "-o", "-4", "addr"):
            raise NotPossibleError(f"the addresses {self._net}.0/24 are in use")
        for bridge in (self._here, self._away):
            run("ip", "link", "add", bridge, "type", "bridge")
            run("ip", "link", "set", bridge, "up")
        run("ip", "addr", "add", f"{self._net}.1/24", "dev", self._here)

    def close(self) -> None:
        """Remove the network; its processes must have ended."""
        for name in self._known:
            with contextlib.suppress(NotPossibleError):
                run("ip", "netns", "del", self._space(name))
        for bridge in (self._here, self._away):
            with contextlib.suppress(NotPossibleError):
                run("ip", "link", "del", bridge)

    def add(self, name: str) -> None:
        """Make a namespace with an address."""
        self._known[name] = len(self._known) + 2
        space, wire = self._space(name), self._wire(name)
        run("ip", "netns", "add", space)
        run("ip", "link", "add", wire, "type", "veth", "peer", "name", "eth0", "netns", space)
        run("ip", "link", "set", wire, "master", self._here, "up")
        run("ip", "-n", space, "addr", "add", f"{self.host(name)}/24", "dev", "eth0")
        run("ip", "-n", space, "link", "set", "eth0", "up")
        run("ip", "-n", space, "link", "set", "lo", "up")

    def host(self, name: str) -> str:
        """Return the address of a namespace."""
        return f"{self._net}.{self._known[name]}"

    def within(self, name: str) -> tuple[str, ...]:
        """Return the prefix of a command that runs in a namespace."""
        return ("ip", "netns", "exec", self._space(name))

    def take_away(self, names: Collection[str]) -> None:
        """Cut these off from all others; they reach each other."""
        for name in names:
            run("ip", "link", "set", self._wire(name), "master", self._away)

    def bring_back(self, names: Collection[str]) -> None:
        """Connect these to all others again."""
        for name in names:
            run("ip", "link", "set", self._wire(name), "master", self._here)

    def isolate(self, names: Collection[str], *, isolated: bool) -> None:
        """Keep these from reaching each other; all others reach them."""
        for name in names:
            run(
                "ip",
                "link",
                "set",
                "dev",
                self._wire(name),
                "type",
                "bridge_slave",
                "isolated",
                "on" if isolated else "off",
            )

    def slow_down(self, names: Collection[str]) -> None:
        """Delay what these send."""
        problems = []
        for way in _SLOW:
            try:
                for name in names:
                    run(*self.within(name), "tc", "qdisc", "replace", "dev", "eth0", "root", *way)
            except NotPossibleError as error:
                problems.append(str(error))
            else:
                self.slowed_by = " ".join(way)
                return
        raise NotPossibleError("; ".join(problems))

    def speed_up(self, names: Collection[str]) -> None:
        """Undo ``slow_down``."""
        for name in names:
            with contextlib.suppress(NotPossibleError):
                run(*self.within(name), "tc", "qdisc", "del", "dev", "eth0", "root")

    def _space(self, name: str) -> str:
        return f"{self._mark}-{name}"

    def _wire(self, name: str) -> str:
        return f"{self._mark}{self._known[name]}"
