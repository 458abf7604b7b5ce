"""The files in deploy/, as far as they can be checked without the programs that read them."""

import json
import re
import shlex
import shutil
import subprocess
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from pyoco_server.cli.server import main as server
from pyoco_server.cli.worker import main as worker
from pyoco_server.gateway.middleware.connections import RESERVED_FILES
from pyoco_server.settings import Settings
from pyoco_server.settings.section import Section, var_of
from tests.docs.pages import ROOT

DEPLOY = ROOT / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
INSTRUCTIONS = {"ARG", "CMD", "COPY", "ENV", "EXPOSE", "FROM", "RUN", "STOPSIGNAL", "USER", "VOLUME", "WORKDIR"}
LONG_LIVED = {"nats-server": 150, "pyoco-server": 20, "pyoco-worker": 60}


def compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))
    return found


def known_variables() -> set[str]:
    sections: list[type[Section]] = [type(field.get_default()) for field in Settings.model_fields.values()]
    return {var_of(field).name for section in sections for field in section.model_fields.values()}


def commands() -> Iterator[tuple[str, list[str]]]:
    """Where a program of ours is started, and how."""
    for unit in UNITS:
        [line] = re.findall(r"^ExecStart=(.*)$", unit.read_text(encoding="utf-8"), re.MULTILINE)
        yield unit.name, shlex.split(line.replace("/opt/pyoco/bin/", ""))
    for name, service in compose()["services"].items():
        yield f"compose.yaml: {name}", [re.sub(r"\$\{\w+:-(.*)\}", r"\1", part) for part in service["command"]]
    [line] = re.findall(r"^CMD (\[.*\])$", (DEPLOY / "Containerfile").read_text(encoding="utf-8"), re.MULTILINE)
    yield "Containerfile", json.loads(line)


@pytest.mark.parametrize(("where", "command"), [*commands()])
def test_our_programs_take_the_arguments_they_are_started_with(where: str, command: list[str]) -> None:
    program, *arguments = command
    parsers = {"pyoco-server": server._parser, "pyoco-worker": worker._parser}
    if program in parsers:
        assert callable(parsers[program]().parse_args(arguments).run), where
    else:
        assert (program, arguments[0]) == ("nats-server", "--config"), where


def test_every_setting_they_name_exists() -> None:
    files = [path for path in DEPLOY.rglob("*") if path.is_file()]
    variable = re.compile(r"(?<![.\w])PYOCO_[A-Z_]+\b")  # behind a dot it is a stream, as in a subject of NATS
    named = {name for path in files for name in variable.findall(path.read_text(encoding="utf-8"))}
    assert {"PYOCO_NATS_URL", "PYOCO_AUTH_PEPPER"} <= named
    assert named <= known_variables()


def test_nats_takes_its_configuration() -> None:
    binary = shutil.which("nats-server", path=sysconfig.get_path("scripts")) or shutil.which("nats-server")
    assert binary
    done = subprocess.run([binary, "-t", "-c", DEPLOY / "nats.conf"], capture_output=True, text=True, check=False)  # noqa: S603
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_finds_nothing_wrong_with_the_units(tmp_path: Path) -> None:
    for unit in UNITS:
        text = re.sub(r"/opt/pyoco/bin/[\w-]+", "/bin/true", unit.read_text(encoding="utf-8"))
        (tmp_path / unit.name.replace("@.", "@cpu.")).write_text(re.sub(r"User=[\w-]+", "User=root", text))
    made = sorted(map(str, tmp_path.iterdir()))
    done = subprocess.run(  # noqa: S603 a program of the system
        ["systemd-analyze", "verify", *made],  # noqa: S607 wherever it is
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    about_ours = [line for line in (done.stdout + done.stderr).splitlines() if str(tmp_path) in line]
    assert (done.returncode, about_ours) == (0, []), done.stderr


def test_everything_has_the_time_it_needs_to_stop() -> None:
    for unit in UNITS:
        text = unit.read_text(encoding="utf-8")
        [program] = re.findall(r"^ExecStart=/opt/pyoco/bin/([\w-]+)", text, re.MULTILINE)
        assert f"TimeoutStopSec={LONG_LIVED[program]}" in text
    for service in compose()["services"].values():
        assert service["stop_grace_period"] == f"{LONG_LIVED[service['command'][0]]}s"
    assert LONG_LIVED["pyoco-worker"] > Settings().worker.stop_timeout_sec


def test_a_worker_gets_neither_the_pepper_nor_the_user_of_the_gateway() -> None:
    units = {unit.name: unit.read_text(encoding="utf-8") for unit in UNITS}
    users = {name: re.findall(r"^User=(.*)$", text, re.MULTILINE) for name, text in units.items()}
    assert users["pyoco-worker@.service"] == ["pyoco-worker"]
    assert ["pyoco-worker"] not in (users["pyoco-server.service"], users["nats.service"])
    files = {name: re.findall(r"^EnvironmentFile=(.*)$", text, re.MULTILINE) for name, text in units.items()}
    assert files["pyoco-worker@.service"] == ["/etc/pyoco/worker.env"]
    assert files["pyoco-server.service"] == ["/etc/pyoco/gateway.env"]
    assert "PEPPER" not in (DEPLOY / "systemd" / "worker.env.example").read_text(encoding="utf-8")
    assert "PYOCO_AUTH_PEPPER" not in compose()["services"]["worker"]["environment"]


def test_the_compose_file_fits_together() -> None:
    services, volumes = compose()["services"], compose()["volumes"]
    assert set(services) == {"nats", "gateway", "worker"}
    for service in services.values():
        assert set(service.get("depends_on", {})) <= set(services)
        for mount in service.get("volumes", ()):
            source = str(mount).partition(":")[0]
            assert source in volumes or source.startswith("${") or (DEPLOY / source).exists(), mount
    build = services["nats"]["build"]
    assert (DEPLOY / build["context"] / build["dockerfile"]).resolve() == DEPLOY / "Containerfile"


def test_the_containerfile_copies_what_there_is() -> None:
    text = (DEPLOY / "Containerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line.split() for line in text.splitlines() if line and not line.startswith("#")]
    assert {line[0] for line in lines} <= INSTRUCTIONS
    for _, *words in (line for line in lines if line[0] == "COPY" and "--from=build" not in line):
        assert all((ROOT / source).exists() for source in words[:-1])


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_our_programs_may_open_as_many_files_as_they_need(unit: Path) -> None:
    [limit] = re.findall(r"^LimitNOFILE=(\d+)$", unit.read_text(encoding="utf-8"), re.MULTILINE)
    assert int(limit) >= Settings().http.max_connections + RESERVED_FILES
