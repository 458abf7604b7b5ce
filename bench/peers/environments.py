"""Where peers are installed: each in an environment of its own, outside the repository, made once."""

import contextlib
import fcntl
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from bench.peers.stand import CandidateError, environment

INSTALL_SEC = 900.0


def home() -> Path:
    """Everything that is kept between measurements."""
    return Path(os.environ.get("PYOCO_BENCH_HOME") or Path.home() / ".cache" / "pyoco-bench").expanduser().resolve()


def python_environment(name: str, requirements: Sequence[str]) -> Path:
    """The ``bin`` directory of an environment with these packages."""
    place = home() / name
    with _alone_with(place):
        if not _is_ready(place, requirements):
            shutil.rmtree(place, ignore_errors=True)
            run([sys.executable, "-m", "venv", str(place)])
            run([str(place / "bin" / "python"), "-m", "pip", "install", "--quiet", *requirements])
            _mark_ready(place, requirements)
    return place / "bin"


def python_versions(bin_directory: Path) -> dict[str, str]:
    """What is installed there."""
    listed = json.loads(run([str(bin_directory / "python"), "-m", "pip", "list", "--format", "json"]))
    return {package["name"]: package["version"] for package in listed if package["name"] not in ("pip", "setuptools")}


def npm_package(name: str, package: str) -> Path:
    """The ``node_modules`` directory with this package."""
    place = home() / name
    if not _is_ready(place, [package]):
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        run(["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", str(place), package])
        _mark_ready(place, [package])
    return place / "node_modules"


def debian_packages(name: str, packages: Sequence[str]) -> Path:
    """A directory with what these packages hold, unpacked there and not installed."""
    place = home() / name
    if not _is_ready(place, packages):
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        run(["apt-get", "download", *packages], cwd=place)
        for package in place.glob("*.deb"):
            run(["dpkg-deb", "--extract", str(package), str(place)])
        _mark_ready(place, packages)
    return place


def run(command: Sequence[str], *, cwd: Path | None = None, user: str | None = None) -> str:
    """What a command prints; CandidateError with the end of its complaint if it fails or cannot be found."""
    try:
        done = subprocess.run(  # noqa: S603 our own commands
            command,
            cwd=cwd,
            env=environment({}),
            capture_output=True,
            text=True,
            timeout=INSTALL_SEC,
            check=False,
            user=user,
            group=user,
            extra_groups=[] if user else None,
        )
    except FileNotFoundError as error:
        raise CandidateError(f"{command[0]} is not there") from error
    except subprocess.TimeoutExpired as error:
        raise CandidateError(f"{Path(command[0]).name} took more than {INSTALL_SEC:.0f} s") from error
    if done.returncode:
        output = " | ".join((done.stderr or done.stdout).split("\n"))[-600:]
        raise CandidateError(f"{' '.join(command[:4])} …: {output}")
    return done.stdout


def find_program(name: str, places: Iterable[Path]) -> Path | None:
    """A program, on the PATH or in one of these directories."""
    if found := shutil.which(name):
        return Path(found)
    return next((place / name for place in places if (place / name).exists()), None)


@contextlib.contextmanager
def _alone_with(place: Path) -> Iterator[None]:
    """Keep other processes from making the same environment meanwhile."""
    place.parent.mkdir(parents=True, exist_ok=True)
    with place.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _is_ready(place: Path, wanted: Sequence[str]) -> bool:
    mark = place / ".ready"
    return mark.exists() and mark.read_text() == "\n".join(wanted)


def _mark_ready(place: Path, wanted: Sequence[str]) -> None:
    (place / ".ready").write_text("\n".join(wanted))
