"""A gateway that asks for no keys stays on this machine."""

import asyncio
import logging
import subprocess
from pathlib import Path

import pytest

from pyoco_server.bootstrap.gateway import open_gateway
from pyoco_server.gateway.exposure import ExposedError, check_exposure, is_loopback
from tests.cli.serving import clean_environment, command
from tests.gateway.auth.world import World


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost", "LOCALHOST"])
def test_this_machine(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.5", "192.168.1.2", "example.org", "localhost.evil", ""])  # noqa: S104
def test_beyond_this_machine(host: str) -> None:
    assert not is_loopback(host)


def test_an_open_gateway_is_not_put_on_the_network(world: World) -> None:
    async def scenario() -> None:
        with pytest.raises(ExposedError) as caught:
            async with open_gateway(world.settings(mode="none", host="0.0.0.0")):  # noqa: S104
                pass
        for word in ("PYOCO_HTTP_AUTH_MODE=api_key", "pyoco-server keys create", "--insecure-no-auth"):
            assert word in str(caught.value)

    asyncio.run(scenario())


def test_an_explicit_override_logs_a_warning(world: World, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        check_exposure(world.settings(mode="none", host="0.0.0.0", insecure_no_auth=True))  # noqa: S104
    [record] = caplog.records
    assert record.levelno == logging.WARNING
    assert "INSECURE" in record.getMessage()


def test_a_gateway_that_asks_for_keys_may_listen_anywhere(world: World, caplog: pytest.LogCaptureFixture) -> None:
    check_exposure(world.settings(host="0.0.0.0"))  # noqa: S104
    check_exposure(world.settings(mode="none"))
    assert not caplog.records


def test_the_command_refuses_with_exit_code_1(tmp_path: Path) -> None:
    done = subprocess.run(  # noqa: S603 our own command
        command("up", "--nats-client-port", "0", "--host", "0.0.0.0", "--port", "0"),  # noqa: S104
        cwd=tmp_path,
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert "--insecure-no-auth" in done.stderr
    assert "Traceback" not in done.stderr
