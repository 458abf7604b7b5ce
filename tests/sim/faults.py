"""Chooses the faults of a world by its seed.

A world with every fault at once shows little, because faults hide each other. So each seed has a few kinds of faults.
"""

import random
from typing import Final

import msgspec
from typing_extensions import override

from tests.sim.network import FAULTS, Fate

MANY: Final = 20


class Faults(msgspec.Struct, frozen=True, kw_only=True):
    """The faults of one world."""

    rates: dict[Fate, float]
    """The share of calls that meet each fate."""
    hint_loss: float
    """The share of notifications of the log and of snapshots that are lost."""
    repeat: float
    """The share of deliveries that the queue repeats early."""
    crashes: int
    pauses: int
    """How many times a process pauses, sometimes for longer than the ack wait."""
    cuts: int
    """How many times a process cannot reach the store."""
    stops: int
    """How many times a worker gets a stop signal, as in a deployment."""
    skew_sec: float
    """The largest error of a clock."""
    slow_disk_sec: float
    """The longest time that a gateway's disk takes."""
    max_deliver: int
    sweeps: bool
    """Whether gateways reconcile. Otherwise only workers have faults, and must recover without the reconciler."""
    wake_loss: float = 0.0
    """The share of wake-ups that are lost, if no gateway reconciles: their sender must repeat them."""

    @override
    def __str__(self) -> str:
        shown = {name: value for name, value in msgspec.structs.asdict(self).items() if value}
        shown["rates"] = {str(fate): round(rate, 3) for fate, rate in self.rates.items()}
        return ", ".join(f"{name}={value}" for name, value in shown.items())


def choose(chance: random.Random) -> Faults:
    """Choose the faults of a world."""
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
    """Choose the faults of a world without reconcilers, which would repair, and so hide, faults of workers."""
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
