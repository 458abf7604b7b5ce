"""How many processors a server uses at a time."""

from pathlib import Path

import pytest

from pyoco_server.adapters.jetstream.durability.policy import Durability
from pyoco_server.adapters.nats_server import NatsServer
from pyoco_server.adapters.nats_server.config import GO_VARIABLE, environment, processors_here
from tests.adapters.nats_server.servers import run

EVERYWHERE = "0.0.0.0"  # noqa: S104 that is what is tried


@pytest.mark.parametrize(
    ("processors", "most"), [(1, "1"), (2, "1"), (4, "1"), (7, "1"), (8, "2"), (9, None), (64, None)]
)
def test_the_server_leaves_most_processors_of_a_small_machine_to_its_clients(processors: int, most: str | None) -> None:
    made = environment({"PATH": "/bin"}, processors=processors, synced_by="clients", is_for_others=False)
    assert made == {"PATH": "/bin"} | ({} if most is None else {GO_VARIABLE: most})


def test_a_variable_that_the_user_set_is_kept() -> None:
    given = {GO_VARIABLE: "3"}
    assert environment(given, processors=2, synced_by="none", is_for_others=False) == given


def test_a_server_that_syncs_by_itself_keeps_all_processors() -> None:
    assert environment({}, processors=2, synced_by="server", is_for_others=False) == {}


def test_a_server_for_other_machines_keeps_all_processors() -> None:
    assert environment({}, processors=2, synced_by="none", is_for_others=True) == {}


def environment_of(pid: int | None) -> dict[str, str]:
    return dict(entry.partition("=")[::2] for entry in Path(f"/proc/{pid}/environ").read_text().split("\0"))


@pytest.mark.parametrize(
    ("host", "durability"), [("127.0.0.1", "sync"), ("127.0.0.1", "fast"), (EVERYWHERE, "sync"), (EVERYWHERE, "fast")]
)
def test_a_server_starts_with_this_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str, durability: Durability
) -> None:
    monkeypatch.delenv(GO_VARIABLE, raising=False)

    async def main() -> dict[str, str]:
        async with NatsServer(tmp_path, host=host, durability=durability) as server:
            return environment_of(server.pid)

    is_for_others = host == EVERYWHERE
    wanted = environment({}, processors=processors_here(), synced_by="none", is_for_others=is_for_others)
    assert run(main).get(GO_VARIABLE) == wanted.get(GO_VARIABLE)
