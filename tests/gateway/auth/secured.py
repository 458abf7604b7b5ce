"""A nats-server with the users and the TLS of deploy/nats-users.conf."""

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

import nkeys  # type: ignore[import-untyped]  # it ships no type information
import pytest

from tests.adapters.real_nats import NatsServer

PAGE = Path(__file__).parents[3] / "docs" / "security.md"
CONFIGURATION = Path(__file__).parents[3] / "deploy" / "nats-users.conf"
USERS = ("ADMIN", "GATEWAY", "WORKER")


class Nkey(NamedTuple):
    """A user's secret, and what the server knows them by."""

    seed: str
    public: str


def new_nkey() -> Nkey:
    seed = nkeys.encode_seed(os.urandom(32), nkeys.PREFIX_BYTE_USER)
    return Nkey(seed.decode(), nkeys.from_seed(bytearray(seed)).public_key.decode())


class Secured(NatsServer):
    """The server as the file configures it; its worker user has the tag ``default``."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.nkeys = {user: new_nkey() for user in USERS}
        self.ca = directory / "ca.pem"
        make_certificates(directory)
        template = re.sub(r"(?m)^#.*$", "", CONFIGURATION.read_text(encoding="utf-8"))
        values = {
            "LISTEN": "127.0.0.1:-1",
            "STORE": str(directory / "store"),
            "CERT": str(directory / "server.pem"),
            "KEY": str(directory / "server.key"),
            "TAG": "default",
            **{user: key.public for user, key in self.nkeys.items()},
        }
        filled = re.sub(r"<([A-Z]+)>", lambda match: values[match[1]], template)
        self._config.write_text(f'{filled}\nlog_file: "{self.log}"\n')

    @property
    def url(self) -> str:  # type: ignore[explicit-override]
        return f"tls://127.0.0.1:{self.port}"

    @property
    def log(self) -> Path:
        return self.directory / "server.log"

    def violations(self) -> list[str]:
        """Return the log lines of requests that the server refused."""
        return [line for line in self.log.read_text().splitlines() if "Violation" in line]


def make_certificates(directory: Path) -> None:
    """A certificate authority of our own, and a certificate for this machine."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl is needed to make certificates")
    key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes"
    signed = "-CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -copy_extensions copy"
    commands = (
        f"req -x509 {key} -keyout ca.key -out ca.pem -days 2 -subj /CN=tests -addext keyUsage=critical,keyCertSign",
        f"req {key} -keyout server.key -out server.csr -subj /CN=127.0.0.1 -addext subjectAltName=IP:127.0.0.1",
        f"x509 -req -in server.csr {signed} -out server.pem",
    )
    for command in commands:
        subprocess.run([openssl, *command.split()], cwd=directory, check=True, capture_output=True)  # noqa: S603
