"""DBOS on PostgreSQL."""

import os
import pwd
import shutil
from pathlib import Path

from typing_extensions import override

from bench.peers.candidate import Candidate, program
from bench.peers.environments import find_program, python_environment, python_versions, run
from bench.peers.stand import CLIENT, CandidateError, Stand, free_ports

REQUIREMENTS = ("dbos==3.3.0",)


class Dbos(Candidate):
    """Workflows in the client's process, state in PostgreSQL."""

    name = "dbos"
    durable = "every step: a PostgreSQL commit, synced before it is acknowledged"
    remark = "worker and client are one process; PostgreSQL with its defaults"

    _bin: Path
    _postgres: Path

    @override
    def install(self) -> dict[str, str]:
        """DBOS from PyPI; PostgreSQL has to be there."""
        found = find_program("initdb", sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True))
        if found is None:
            raise CandidateError("there is no PostgreSQL: install the distribution's package postgresql")
        self._postgres = found.resolve().parent
        self._bin = python_environment("dbos", REQUIREMENTS)
        server = run([str(self._postgres / "postgres"), "--version"]).split()
        return {"postgresql": server[2], **python_versions(self._bin)}

    @override
    def start(self, stand: Stand) -> None:
        """PostgreSQL in a new directory, as a user other than root, because it refuses to run as root."""
        (port,) = free_ports(1)
        user, data = _unprivileged(), stand.directory / "postgres"
        data.mkdir(mode=0o700)
        if user is not None:
            stand.directory.chmod(0o755)
            shutil.chown(data, user, user)
        run([str(self._postgres / "initdb"), "-D", str(data), "-U", "bench", "-A", "trust"], cwd=data, user=user)
        listen = ["-c", "listen_addresses=127.0.0.1", "-c", f"port={port}", "-c", "unix_socket_directories="]
        stand.start("server", [str(self._postgres / "postgres"), "-D", str(data), *listen], user=user)
        ready = [str(self._postgres / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(port)]
        stand.wait("server", lambda: _succeeds(ready))
        url = f"postgresql://bench@127.0.0.1:{port}/bench"
        stand.start(CLIENT, program(self._bin, "dbos_client", url))


def _unprivileged() -> str | None:
    """Return the user to run it as; None: the current one."""
    if os.geteuid() != 0:
        return None
    known = {entry.pw_name for entry in pwd.getpwall()}
    return next(name for name in ("postgres", "nobody") if name in known)


def _succeeds(command: list[str]) -> bool:
    try:
        run(command)
    except CandidateError:
        return False
    return True
