"""Tables in narrow terminals: nothing is cut, and every value can be copied whole."""

from pathlib import Path
from typing import Any

import pytest

from tests.cli.screen import Screen
from tests.client.scripted_gateway import ScriptedGateway, says

RUN = "0c6a4d0e-6f0b-4b7e-9a53-0d5f7f3f8b11"
OTHER = "7bd27cb2-3d3e-4ad2-8f3f-3a2a1f2f9c22"
WHEEL = "a_rather_long_name-1.22.3-cp311-cp311-manylinux_2_17_x86_64.manylinux2014_x86_64.whl"
ERROR = "RuntimeError: the source of the numbers did not answer, and asking again did not help"
ROWS: dict[str, tuple[str, list[dict[str, Any]], list[str]]] = {
    "list": (
        "/runs",
        [
            {"run_id": RUN, "status": "COMPLETED", "flow_name": "monthly-report", "tag": "default", "updated_at": 1.0},
            {"run_id": OTHER, "status": "FAILED", "flow_name": "monthly-report", "tag": "default", "error": ERROR},
        ],
        [RUN, OTHER, "COMPLETED", "FAILED", "monthly-report", "default"],
    ),
    "workers": (
        "/workers",
        [
            {
                "worker_id": "a-machine-with-a-long-name-4711",
                "state": "DISCONNECTED",
                "tags": ["cpu", "gpu"],
                "current_run_id": RUN,
                "last_run_id": OTHER,
                "last_seen_at": 1.0,
            }
        ],
        ["a-machine-with-a-long-name-4711", "DISCONNECTED", "cpu, gpu", RUN, OTHER],
    ),
    "wheels": (
        "/wheels",
        [{"name": WHEEL, "size_bytes": 123456, "tags": ["cpu"], "modified": 1.0, "sha256_hex": "00ff" * 16}],
        [WHEEL, "123456", "cpu", "00ff00ff00ff"],
    ),
}


def _shown(gateway: ScriptedGateway, folder: Path, command: str, columns: int) -> list[str]:
    path, rows, _ = ROWS[command]
    gateway.on("GET", path, says(rows))
    code, drawn = Screen(folder, command, "--server", gateway.url, columns=columns).end()
    assert code == 0, drawn
    return [line.rstrip() for line in drawn.replace("\r\n", "\n").splitlines() if line.strip()]


@pytest.mark.parametrize("columns", [40, 60, 72, 80, 100, 132])
@pytest.mark.parametrize("command", ROWS)
def test_a_narrow_terminal_cuts_no_value(gateway: ScriptedGateway, tmp_path: Path, command: str, columns: int) -> None:
    lines = _shown(gateway, tmp_path, command, columns)
    for whole in ROWS[command][2]:
        assert any(whole in line for line in lines), f"{whole} is not in\n" + "\n".join(lines)
    assert "…" not in "".join(lines)


def test_columns_without_room_are_below_by_name(gateway: ScriptedGateway, tmp_path: Path) -> None:
    lines = _shown(gateway, tmp_path, "list", 80)
    assert lines[0].split() == ["RUN", "ID", "STATUS", "FLOW", "TAG"]
    assert lines[1].split() == [RUN, "COMPLETED", "monthly-report", "default"]
    assert lines[2].startswith("  updated: ")
    assert lines[3].split() == [OTHER, "FAILED", "monthly-report", "default"]
    assert lines[4] == f"  error: {ERROR}"
    assert len(lines) == 5


def test_a_wide_terminal_shows_a_row_on_a_line(gateway: ScriptedGateway, tmp_path: Path) -> None:
    lines = _shown(gateway, tmp_path, "list", 200)
    assert lines[0].split() == ["RUN", "ID", "STATUS", "FLOW", "TAG", "SUBMITTED", "UPDATED", "ERROR"]
    assert len(lines) == 3
    assert lines[2].endswith(ERROR)
