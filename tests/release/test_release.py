"""What is built, twice; and what was built, installed and used with every supported Python that is here."""

import functools
import hashlib
import json
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tools.release_check import (
    SAMPLE,
    Built,
    ReleaseError,
    bill,
    build,
    check_bill,
    check_same,
    check_sdist,
    check_use,
    check_versions,
    check_wheel,
    copy_sources,
    install,
    make_builder,
    make_environment,
    pythons,
    run,
)

OURS = "{}.{}".format(*sys.version_info)
HERE = {found.version: found.path for found in pythons()}
pytestmark = pytest.mark.timeout(300)  # the first test waits for the download of build tools, and for the build


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("release")


@pytest.fixture(scope="module")
def builder(place: Path) -> Path:
    return make_builder(place / "builder")


@pytest.fixture(scope="module")
def sources(place: Path) -> Path:
    return copy_sources(place / "sources")


@pytest.fixture(scope="module")
def built(place: Path, builder: Path, sources: Path) -> Built:
    return build(builder, sources, place / "built")


@pytest.fixture(scope="module")
def install_for(place: Path, built: Built) -> Callable[[str], Path]:
    """Makes a clean environment of that Python, with the wheel and what it needs; its interpreter."""

    @functools.cache
    def make(version: str) -> Path:
        python = make_environment(HERE[version], place / version)
        install(python, built.wheel)
        return python

    return make


@pytest.fixture
def installed(install_for: Callable[[str], Path]) -> Path:
    """The environment of the Python we run on."""
    return install_for(OURS)


def test_two_builds_in_different_places_are_identical(place: Path, builder: Path, sources: Path, built: Built) -> None:
    elsewhere = shutil.copytree(sources, place / "some" / "where" / "else", copy_function=shutil.copyfile)
    check_same(built, build(builder, elsewhere, place / "again"))


def test_a_difference_between_builds_is_an_error(tmp_path: Path, built: Built) -> None:
    other = Built(*(shutil.copyfile(path, tmp_path / path.name) for path in built))
    other.wheel.write_bytes(other.wheel.read_bytes() + b"\0")
    with pytest.raises(ReleaseError, match=r"differ in pyoco_server-.*\.whl"):
        check_same(built, other)


def test_the_wheel_has_exactly_the_package(built: Built, sources: Path) -> None:
    check_wheel(built.wheel, sources)
    for name in ("py.typed", "gateway/dashboard/index.html", "gateway/dashboard/static"):
        assert (sources / "src" / "pyoco_server" / name).exists()  # what the check goes through has them


def test_the_wheel_can_be_made_again_from_the_sdist(place: Path, builder: Path, built: Built) -> None:
    check_sdist(built.sdist)
    with tarfile.open(built.sdist) as opened:
        opened.extractall(place / "unpacked", filter="data")
    [unpacked] = (place / "unpacked").iterdir()
    check_same(built, build(builder, unpacked, place / "from-sdist"))


def test_the_bill_of_materials_names_exactly_what_is_installed(built: Built, installed: Path) -> None:
    written = bill(built.wheel)
    assert written == bill(built.wheel)
    check_bill(installed, written)
    read: Any = json.loads(written)
    assert (read["bomFormat"], read["specVersion"]) == ("CycloneDX", "1.6")
    platform = read["metadata"]["component"]
    assert platform["purl"] == f"pkg:pypi/pyoco-server@{platform['version']}"
    assert platform["hashes"] == [{"alg": "SHA-256", "content": hashlib.sha256(built.wheel.read_bytes()).hexdigest()}]
    assert all(part["licenses"] and part["purl"] for part in read["components"])
    depends = {entry["ref"]: entry.get("dependsOn", []) for entry in read["dependencies"]}
    assert len(depends[platform["purl"]]) > 10
    read["components"] = read["components"][1:]
    with pytest.raises(ReleaseError, match="the bill of materials lacks"):
        check_bill(installed, json.dumps(read))


@pytest.mark.parametrize("version", HERE)
def test_the_installed_package_runs_flows_and_serves_the_dashboard(
    install_for: Callable[[str], Path], version: str, tmp_path: Path
) -> None:
    python = install_for(version)
    where, runs_on = run([python, "-c", "import pyoco_server, sys; print(pyoco_server.__file__, sys.version)"]).split()[
        :2
    ]
    assert Path(where).is_relative_to(python.parent.parent)
    assert runs_on.startswith(f"{version}.")
    check_versions(python)
    check_use(python, tmp_path)


def test_a_project_that_uses_the_package_passes_mypy_strict(installed: Path, tmp_path: Path) -> None:
    sample = _copied(tmp_path)
    options = ["--strict", "--no-incremental", "--config-file", "", "--python-executable", str(installed)]
    done = subprocess.run(  # noqa: S603 our own command
        [sys.executable, "-m", "mypy", *options, sample.name], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_project_that_uses_the_package_passes_pyright_strict(installed: Path, tmp_path: Path) -> None:
    sample = _copied(tmp_path)
    run([Path(sys.executable), "-m", "basedpyright", "--pythonpath", installed, "--project", sample])


def _copied(directory: Path) -> Path:
    """The sample project where none of our sources are near."""
    return shutil.copytree(SAMPLE, directory / "sample_project", ignore=shutil.ignore_patterns("__pycache__"))


def test_the_release_is_checked_with_the_current_python() -> None:
    assert HERE[OURS] == Path(sys.executable)
