"""The worked example, read from docs/production.md: a change of the page changes what is tested."""

import re
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

_PAGE = Path(__file__).parents[2] / "docs" / "production.md"


class Address(NamedTuple):
    """The address of a node: for clients, and for routes of the other nodes."""

    name: str
    host: str
    port: int
    route_port: int

    @property
    def url(self) -> str:
        return f"nats://{self.host}:{self.port}"


def configuration(node: Address, nodes: Collection[Address], store: Path) -> str:
    """Return the documented configuration of a node, with the name, the addresses and the directory of the test."""
    routes = ", ".join(f"nats://{other.host}:{other.route_port}" for other in nodes)
    ours = {
        r"port: 6222": f"host: {node.host}\n  port: {node.route_port}",
        r"routes: \[.*\]": f"routes: [{routes}]",
    }
    return _with(_block("# nats-1.conf"), {**_own(node, store), **ours})


def configuration_alone(node: Address, store: Path) -> str:
    """Return the documented configuration of a single node."""
    return _with(_block("# nats.conf"), _own(node, store))


def accounts() -> str:
    """Return what the page adds to every configuration so that a lost node can be removed."""
    return _block("# in the configuration of every node")


def _own(node: Address, store: Path) -> dict[str, str]:
    return {
        r"server_name: nats-1": f"server_name: {node.name}\nhost: {node.host}",
        r"port: 4222": f"port: {node.port}",
        r"store_dir: /var/lib/nats": f'store_dir: "{store}"',
    }


def _with(text: str, replacements: dict[str, str]) -> str:
    """Return the text with each pattern replaced; each must match exactly once."""
    for pattern, replacement in replacements.items():
        text, count = re.subn(pattern, replacement, text)
        assert count == 1, f"docs/production.md has {pattern!r} {count} times in its configuration"
    return text


def _block(beginning: str) -> str:
    """Return the block of code with this beginning."""
    blocks = re.findall(r"```\w*\n(.*?)```", _PAGE.read_text(), re.DOTALL)
    found: str = next(block for block in blocks if block.startswith(beginning))
    return found
