"""Celery on Redis."""

import os
from pathlib import Path

from typing_extensions import override

from bench.peers.candidate import PROGRAMS, Candidate, program
from bench.peers.environments import debian_packages, find_program, python_environment, python_versions, run
from bench.peers.stand import CLIENT, CandidateError, Stand, free_ports, listening

REQUIREMENTS = ("celery[redis]==5.7.0",)
REDIS = ("redis-server", "redis-tools", "liblzf1", "libjemalloc2")


class Celery(Candidate):
    """A chain of three tasks; one worker with a process for every core."""

    name = "celery"
    durable = "nothing: Redis without appendonly (Debian's default), so that a crash of Redis loses runs"
    remark = "it has no list of runs"
    has_list = False
    beside = "ours-fast"

    _bin: Path
    _redis: Path

    @override
    def install(self) -> dict[str, str]:
        """Celery from PyPI; Redis from the system, or unpacked from Debian's packages."""
        found = find_program("redis-server", [])
        self._redis = found or debian_packages("redis", REDIS) / "usr" / "bin" / "redis-server"
        self._bin = python_environment("celery", REQUIREMENTS)
        version = run(["env", *_libraries(self._redis), str(self._redis), "--version"])
        return {"redis": version.partition("v=")[2].split(" ")[0], **python_versions(self._bin)}

    @override
    def start(self, stand: Stand) -> None:
        """Redis, then the worker."""
        (port,) = free_ports(1)
        quiet = ["--bind", "127.0.0.1", "--port", str(port), "--dir", str(stand.directory), "--appendonly", "no"]
        libraries = dict(pair.split("=", 1) for pair in _libraries(self._redis))
        stand.start("server", [str(self._redis), *quiet, "--daemonize", "no"], env=libraries)
        stand.wait("server", listening(port))
        env = {"BENCH_REDIS_URL": f"redis://127.0.0.1:{port}/0", "C_FORCE_ROOT": "1"}
        work = ["worker", "--concurrency", str(os.cpu_count() or 1), "--loglevel", "WARNING", "--without-gossip"]
        stand.start("worker", [str(self._bin / "celery"), "-A", f"{PROGRAMS}.celery_app", *work], env=env)
        stand.start(CLIENT, program(self._bin, "celery_client"), env=env)


def _libraries(redis: Path) -> list[str]:
    """What an unpacked Redis needs to find its libraries, as NAME=VALUE."""
    unpacked = redis.parents[1] / "lib"
    found = sorted({path.parent for path in unpacked.glob("*/libjemalloc.so*")})
    if redis.parents[2].name != "redis":
        return []
    if not found:
        raise CandidateError("the unpacked Redis lacks its libraries")
    return [f"LD_LIBRARY_PATH={found[0]}"]
