"""Restate: its server from npm, a service in Python, its ingress over HTTP."""

import json
from pathlib import Path

from typing_extensions import override

from bench.peers.candidate import PROGRAMS, Candidate, program
from bench.peers.environments import npm_package, python_environment, python_versions
from bench.peers.stand import CLIENT, CandidateError, Stand, answering, free_ports, listening, post_or_get

SERVER = "@restatedev/restate-server@1.7.12"
REQUIREMENTS = ("restate-sdk==1.2.0", "hypercorn==0.18.0")


class Restate(Candidate):
    """Its default configuration, on ports of ours."""

    name = "restate"
    durable = "every step: its log syncs before it is acknowledged (many share a sync)"
    remark = "its default configuration; the service runs on hypercorn, one process"

    _bin: Path
    _server: Path

    @override
    def install(self) -> dict[str, str]:
        """The server's binary is in a package for the platform, beside the one that was asked for."""
        modules = npm_package("restate-server", SERVER)
        found = sorted(modules.glob("@restatedev/restate-server-*/bin/restate-server"))
        if not found:
            raise CandidateError(f"{SERVER} has no server for this platform")
        self._server = found[0]
        self._bin = python_environment("restate", REQUIREMENTS)
        package = json.loads((found[0].parents[1] / "package.json").read_text())
        return {"restate-server": package["version"], **python_versions(self._bin)}

    @override
    def start(self, stand: Stand) -> None:
        """Start the server and the service, and register the service."""
        ingress, admin, node, service = free_ports(4)
        env = {
            "RESTATE_BASE_DIR": str(stand.directory / "data"),
            "RESTATE_LISTEN_MODE": "tcp",
            "RESTATE_BIND_ADDRESS": f"127.0.0.1:{node}",
            "RESTATE_ADVERTISED_ADDRESS": f"http://127.0.0.1:{node}/",
            "RESTATE_INGRESS__BIND_ADDRESS": f"127.0.0.1:{ingress}",
            "RESTATE_ADMIN__BIND_ADDRESS": f"127.0.0.1:{admin}",
            "RESTATE_NODE_NAME": "bench",
            "RESTATE_LOG_FILTER": "warn",
            "RESTATE_DISABLE_TELEMETRY": "true",
            "DO_NOT_TRACK": "1",
        }
        stand.start("server", [str(self._server), "--no-logo"], env=env)
        serve = [str(self._bin / "hypercorn"), "--bind", f"127.0.0.1:{service}", "--log-level", "warning"]
        stand.start("worker", [*serve, f"{PROGRAMS}.restate_service:app"])
        stand.wait("worker", listening(service))
        stand.wait("server", answering(admin, "/health"))
        stand.wait("server", answering(ingress, "/restate/health"))
        post_or_get(admin, "/deployments", {"uri": f"http://127.0.0.1:{service}"})
        stand.start(CLIENT, program(self._bin, "restate_client", ingress, admin))
