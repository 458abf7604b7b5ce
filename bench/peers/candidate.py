"""What is measured: one class a candidate, all with the same few things to say."""

from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar

from bench.peers.stand import Stand

PROGRAMS = "bench.peers.programs"


class Candidate(ABC):
    """Ours, or a peer."""

    name: ClassVar[str]
    durable: ClassVar[str]
    """What is on the disk when, in one line."""
    remark: ClassVar[str] = ""
    """What a reader of the figures should know."""
    in_flight: ClassVar[int] = 16
    most_runs: ClassVar[int] = 1_000_000
    """A slow one is not asked for more."""
    has_list: ClassVar[bool] = True
    beside: ClassVar[str] = "ours"
    """Which of ours is measured right before it: the one that promises as much."""

    @abstractmethod
    def install(self) -> dict[str, str]:
        """Have everything there, and return the exact versions; CandidateError says why it cannot be."""

    @abstractmethod
    def start(self, stand: Stand) -> None:
        """Start servers, one worker and the client."""


def program(bin_directory: Path, name: str, *arguments: object) -> list[str]:
    """The command of one of our programs in a candidate's environment."""
    return [str(bin_directory / "python"), "-m", f"{PROGRAMS}.{name}", *map(str, arguments)]
