"""``pyoco-server dev --submit`` where keys are asked for."""

import asyncio
import subprocess
from pathlib import Path

import pytest

from pyoco_server.adapters.nats_server import NatsServer
from pyoco_server.bootstrap.gateway import open_key_service
from pyoco_server.settings import load_settings
from tests.cli.serving import clean_environment, command, free_port
from tests.gateway.auth.world import PEPPER

FLOW = """\
import os

from pyoco import task
from pyoco.core.models import Flow


@task
def look():
    assert not set(os.environ) & {"PYOCO_API_KEY", "PYOCO_AUTH_PEPPER"}


flow = Flow(name="looking")
flow >> look
"""
KEYS = {"PYOCO_HTTP_AUTH_MODE": "api_key", "PYOCO_AUTH_PEPPER": PEPPER, "PYOCO_HTTP_API_KEY_HEADER": "X-Team-Key"}


def run(directory: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603 our own command
        command(*arguments),
        cwd=directory,
        env=clean_environment(**KEYS, **variables),
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )


def dev(directory: Path, *more: str, **variables: str) -> subprocess.CompletedProcess[str]:
    (directory / "flows.py").write_text(FLOW, encoding="utf-8")
    arguments = ("dev", "flows.py", "--port", str(free_port()), "--submit", "looking", "--once", *more)
    return run(directory, *arguments, **variables)


def test_a_missing_key_is_reported_before_anything_starts(tmp_path: Path) -> None:
    done = dev(tmp_path)
    assert done.returncode == 1
    assert "PYOCO_API_KEY" in done.stderr
    assert "ERR-PYOCO-0018" in done.stderr
    assert not (tmp_path / ".pyoco").exists()


def test_a_wrong_key_is_reported_but_not_shown(tmp_path: Path) -> None:
    wrong = f"pyoco_k{'0' * 16}_{'1' * 64}"
    done = dev(tmp_path, PYOCO_API_KEY=wrong)
    assert done.returncode == 1
    assert "ERR-PYOCO-0015" in done.stderr
    assert "1" * 64 not in done.stdout + done.stderr


@pytest.mark.parametrize("how", ["variable", "option"])
def test_the_run_is_submitted_with_the_key_and_flows_do_not_get_it(tmp_path: Path, how: str) -> None:
    key = _made_in_advance(tmp_path)
    done = dev(tmp_path, *(["--api-key", key] if how == "option" else []), **_as_variable(key, how))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "COMPLETED" in done.stdout
    assert "not a setting" not in done.stderr
    assert key not in done.stdout + done.stderr


def _as_variable(key: str, how: str) -> dict[str, str]:
    return {"PYOCO_API_KEY": key} if how == "variable" else {}


def _made_in_advance(directory: Path) -> str:
    """A key in the NATS that ``dev`` is going to start."""

    async def scenario() -> str:
        async with NatsServer(directory / ".pyoco" / "nats", durability="fast") as server:
            settings = load_settings({"PYOCO_NATS_URL": server.url, "PYOCO_LOAD_DOTENV": "0", **KEYS}).settings
            async with open_key_service(settings) as desk:
                return (await desk.create("acme")).text

    return asyncio.run(scenario())
