"""The NATS servers, and the connection of every process to them, which can be cut."""

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Final, NamedTuple

from tests.cluster.documented import Address, accounts
from tests.cluster.nodes import Cluster, Node
from tests.kill.crew import free_port
from typing_extensions import override

from chaos.machine import Disk, disk_at
from chaos.netns import Network
from chaos.wires import Wire

NODES: Final = ("nats-1", "nats-2", "nats-3")
GATEWAYS: Final = ("g1", "g2")
WORKERS: Final = ("w1", "w2", "w3")


class Place(NamedTuple):
    """The command prefix of a process, and its address of NATS."""

    host: str
    nats_url: str
    within: tuple[str, ...] = ()


class World(ABC):
    """NATS servers, and the connections to them."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.disks: dict[str, Disk] = {}
        self.cluster = Cluster([])

    @abstractmethod
    async def open(self) -> None:
        """Start the servers."""

    async def close(self) -> None:
        """End the servers, and remove all their files and networks."""
        self.cluster.kill()
        for disk in self.disks.values():
            disk.close()
        self.disks.clear()

    @abstractmethod
    def place(self, name: str) -> Place:
        """Return the place of a gateway or a worker."""

    @abstractmethod
    def cut(self, name: str) -> None:
        """Cut this gateway or worker off from NATS."""

    @abstractmethod
    def mend(self, name: str) -> None:
        """Connect it again."""

    @abstractmethod
    def slow_down(self) -> None:
        """Make all connections to NATS slow."""

    @abstractmethod
    def speed_up(self) -> None:
        """Undo ``slow_down``."""

    def _node(self, address: Address, within: tuple[str, ...] = ()) -> Node:
        home = self.home / address.name
        disk = disk_at(home / "store")
        if disk is not None:
            self.disks[address.name] = disk
        return Node(address, home, within=within, store=home / "store" / "jetstream")


class OneNode(World):
    """One server on loopback. Every process has a wire to it that can be cut, so this needs no root rights."""

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self._wires: dict[str, Wire] = {}

    @override
    async def open(self) -> None:
        address = Address("nats-1", "127.0.0.1", free_port(), 0)
        self.cluster = Cluster([self._node(address)])
        self.cluster.start()
        for name in (*GATEWAYS, *WORKERS):
            self._wires[name] = Wire(address.port)
            await self._wires[name].open()
        await self.cluster.ready()

    @override
    async def close(self) -> None:
        for wire in self._wires.values():
            await wire.close()
        await super().close()

    @override
    def place(self, name: str) -> Place:
        return Place("127.0.0.1", self._wires[name].url)

    @override
    def cut(self, name: str) -> None:
        self._wires[name].cut()

    @override
    def mend(self, name: str) -> None:
        self._wires[name].mend()

    @override
    def slow_down(self) -> None:
        for wire in self._wires.values():
            wire.slow_down()

    @override
    def speed_up(self) -> None:
        for wire in self._wires.values():
            wire.speed_up()


class ThreeNodes(World):
    """A cluster of three, every process in a network namespace of its own."""

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self.network = Network()
        self._replaced = 0

    @override
    async def open(self) -> None:
        self.network.open()
        for name in (*NODES, *GATEWAYS, *WORKERS):
            self.network.add(name)
        addresses = [Address(name, self.network.host(name), 4222, 6222) for name in NODES]
        self.cluster = Cluster([self._node(address, self.network.within(address.name)) for address in addresses])
        self.cluster.start(accounts())
        await self.cluster.ready()

    @override
    async def close(self) -> None:
        await super().close()
        self.network.close()

    @override
    def place(self, name: str) -> Place:
        return Place(self.network.host(name), self.cluster.url, self.network.within(name))

    @override
    def cut(self, name: str) -> None:
        self.network.take_away([name])

    @override
    def mend(self, name: str) -> None:
        self.network.bring_back([name])

    @override
    def slow_down(self) -> None:
        self.network.slow_down(NODES)

    @override
    def speed_up(self) -> None:
        self.network.speed_up(NODES)

    def place_of_node(self, node: Node) -> str:
        """Return the namespace of a node: that of the node it replaced."""
        return next(name for name in NODES if self.network.host(name) == node.address.host)

    def replace(self, lost: Node) -> Node:
        """Start a node with an empty disk and a new name at the address of a lost one."""
        self._replaced += 1
        address = lost.address._replace(name=f"nats-{len(NODES) + self._replaced}")
        disk = self.disks.pop(lost.name, None)
        if disk is not None:
            disk.close()
        node = self._node(address, self.network.within(self.place_of_node(lost)))
        self.cluster.nodes[self.cluster.nodes.index(lost)] = node
        node.configure([known.address for known in self.cluster.nodes], accounts())
        node.start()
        return node
