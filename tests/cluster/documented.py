"""The worked example of docs/production.md, as it stands there: whoever changes it, changes what is tested."""

import re
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

_PAGE = Path(__file__).parents[2] / "docs" / "production.md"


class Address(NamedTuple):
    """Where a node is, for those who use it and for the other nodes."""

    name: str
    host: str
    port: int
    route_port: int

    @property
    def url(self) -> str:
        return f"nats://{self.host}:{self.port}"


def configuration(node: Address, everybody: Collection[Address], store: Path) -> str:
    """The documented configuration of a node, with names, addresses and a directory of our own in it."""
    routes = ", ".join(f"nats://{other.host}:{other.route_port}" for other in everybody)
    ours = {
        r"port: 6222": f"host: {node.host}\n  port: {node.route_port}",
        r"routes: \[.*\]": f"routes: [{routes}]",
    }
    return _with(_block("# nats-1.conf"), {**_own(node, store), **ours})


def configuration_alone(node: Address, store: Path) -> str:
    """The documented configuration of a node without others."""
    return _with(_block("# nats.conf"), _own(node, store))


def accounts() -> str:
    """What the page adds to every configuration, so that a lost node can be removed."""
    return _block("# in the configuration of every node")


def _own(node: Address, store: Path) -> dict[str, str]:
    return {
        r"server_name: nats-1": f"server_name: {node.name}\nhost: {node.host}",
        r"port: 4222": f"port: {node.port}",
        r"store_dir: /var/lib/nats": f'store_dir: "{store}"',
    }


def _with(text: str, ours: dict[str, str]) -> str:
    """The text with ours in place of what is written there, each of which must be there once."""
    for pattern, replacement in ours.items():
        text, count = re.subn(pattern, replacement, text)
        assert count == 1, f"docs/production.md has {pattern!r} {count} times in its configuration"
    return text


def _block(beginning: str) -> str:
    """The block of code that begins so."""
    blocks = re.findall(r"```\w*\n(.*?)```", _PAGE.read_text(), re.DOTALL)
    found: str = next(block for block in blocks if block.startswith(beginning))
    return found
