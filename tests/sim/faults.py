"""What goes wrong in a world, chosen by its seed: some kinds of trouble, never all of them at once.

A world with every fault at once shows little: one hides the other. So each seed has a few kinds, some of them often.
"""

import random
from typing import Final

import msgspec
from typing_extensions import override

from tests.sim.network import FAULTS, Fate

MANY: Final = 20


class Faults(msgspec.Struct, frozen=True, kw_only=True):
    """The trouble of one world."""

    rates: dict[Fate, float]
    """How many calls meet which fate."""
    hint_loss: float
    """How many announcements of the log and of snapshots are lost."""
    repeat: float
    """How many deliveries come back early."""
    crashes: int
    pauses: int
    """Processes stopped, some for longer than the ack wait."""
    cuts: int
    """Times a process cannot reach the store."""
    stops: int
    """Workers told to stop, as by a deployment."""
    skew_sec: float
    """How wrong clocks are at most."""
    slow_disk_sec: float
    """How long a gateway's disk takes at most."""
    max_deliver: int
    sweeps: bool
    """Do gateways sweep? Without, nothing goes wrong but with workers, and what they do must suffice by itself."""
    wake_loss: float = 0.0
    """How many wake-ups get lost where nobody sweeps: whoever sends them must not leave it at that."""

    @override
    def __str__(self) -> str:
        told = {name: value for name, value in msgspec.structs.asdict(self).items() if value}
        told["rates"] = {str(fate): round(rate, 3) for fate, rate in self.rates.items()}
        return ", ".join(f"{name}={value}" for name, value in told.items())


def choose(chance: random.Random) -> Faults:
    """The trouble a seed has in store."""
    kinds = [fate for fate in FAULTS if chance.random() < 0.4]
    most = chance.choice([0.0, 0.03, 0.08, 0.15])
    if chance.random() < 0.3:
        return _without_sweeps(chance)
    return Faults(
        rates={fate: most * chance.random() for fate in kinds} if most else {},
        hint_loss=chance.choice([0.0, 0.0, 0.3, 1.0]),
        repeat=chance.choice([0.0, 0.0, 0.3]),
        crashes=chance.choice([0, 0, 1, 2, 4]),
        pauses=chance.choice([0, 0, 1, 2]),
        cuts=chance.choice([0, 0, 0, 1, 2]),
        stops=chance.choice([0, 0, 0, 1]),
        skew_sec=chance.choice([0.0, 0.0, 0.7]),
        slow_disk_sec=chance.choice([0.0, 0.0, 0.0, 1.0]),
        max_deliver=chance.choice([MANY, MANY, MANY, MANY, 4]),
        sweeps=True,
    )


def _without_sweeps(chance: random.Random) -> Faults:
    """Sweeps make up for much, and hide what makes them necessary: here are none."""
    return Faults(
        rates={},
        hint_loss=chance.choice([0.0, 0.3, 1.0]),
        repeat=chance.choice([0.0, 0.3]),
        crashes=chance.choice([0, 1, 2]),
        pauses=chance.choice([0, 1, 2]),
        cuts=0,
        stops=chance.choice([0, 0, 1]),
        skew_sec=chance.choice([0.0, 0.7]),
        slow_disk_sec=0.0,
        max_deliver=MANY,
        sweeps=False,
        wake_loss=chance.choice([0.0, 0.5, 1.0]),
    )
