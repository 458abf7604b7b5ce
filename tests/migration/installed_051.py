"""The real pyoco-server 0.5.1, installed once into an environment of its own and kept."""

import stat
from pathlib import Path

from bench.peers.candidate import PROGRAMS
from bench.peers.environments import python_environment
from bench.peers.public_pyoco import REQUIREMENTS

ROOT = Path(__file__).parents[2]
_PROGRAMS = ("pyoco-server", "pyoco-server-admin", "pyoco-client", "pyoco-worker")


def install_051(place: Path) -> Path:
    """Put the programs of 0.5.1 into ``place/bin``, and return that directory.

    Its worker runs with the one fault mended that makes it hang on Python 3.11: it may lose its own cancel.
    """
    environment = python_environment("pyoco-0.5.1", REQUIREMENTS)
    (place / "bin").mkdir(parents=True)
    for name in _PROGRAMS:
        script = place / "bin" / name
        command = str(environment / name)
        if name == "pyoco-worker":
            command = f"env PYTHONPATH={ROOT} {environment / 'python'} -m {PROGRAMS}.public_worker"
        script.write_text(f'#!/bin/sh\nexec {command} "$@"\n', encoding="utf-8")
        script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return place / "bin"
