"""Build the release, and use it as after an installation.

The wheel and the sdist are built twice from copies in different places and must be identical. Then the wheel is
installed, with ``constraints.txt``, into a clean environment of every supported Python on this machine. There the
programs print their version, ``pyoco-server dev`` serves a flow, a run ends, the dashboard is fetched, a project that
uses the package is type-checked, and the bill of materials names exactly what was installed.
"""

import argparse
import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
import urllib.error
import urllib.request
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from packaging.utils import canonicalize_name

from tools.licences_doc import PROJECT
from tools.sbom import bill_of

ROOT: Final = Path(__file__).resolve().parent.parent
PROGRAMS: Final = ("pyoco-server", "pyoco-server-admin", "pyoco-client", "pyoco-worker")
PYRIGHT: Final = "pyright[nodejs]==1.1.414"
"""Ships the interpreter it runs on, so that it needs only the package index."""
SAMPLE: Final = ROOT / "tests" / "release" / "sample_project"
EPOCH: Final = "1767225600"
"""The time of all files of a build without ``SOURCE_DATE_EPOCH``: 2026-01-01."""
FLOW: Final = """\
from pyoco import Flow, task


@task
def greet(name):
    return f"Hello, {name}!"


flow = Flow("hello") >> greet
"""
_ENDS: Final = ("COMPLETED", "FAILED", "CANCELLED")
_PATIENCE_SEC: Final = 60.0


class ReleaseError(Exception):
    """The release has a problem."""


class Built(NamedTuple):
    """The files of a build."""

    wheel: Path
    sdist: Path

    def contents(self) -> dict[str, bytes]:
        """Return both files by name."""
        return {path.name: path.read_bytes() for path in self}


class Python(NamedTuple):
    """An interpreter and its version."""

    version: str
    path: Path


def project() -> dict[str, Any]:
    """Return the project table of pyproject.toml."""
    found: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return found


# Building


def copy_sources(target: Path) -> Path:
    """Copy the files that a build reads, so that later edits do not change it."""
    names = ["pyproject.toml", ".gitignore", *_included()]
    for name in names:
        source = ROOT / name
        if source.is_dir():
            ignored = shutil.ignore_patterns("__pycache__", "*.pyc", "*.egg-info")
            shutil.copytree(source, target / name, ignore=ignored, copy_function=shutil.copyfile)
        else:
            target.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target / name)
    return target


def _included() -> list[str]:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]["build"]
    return [name for name in settings["targets"]["sdist"]["include"] if (ROOT / name).exists()]


def make_builder(directory: Path) -> Path:
    """Make an environment that can build the project; return its Python."""
    python = make_environment(Path(sys.executable), directory)
    requires = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["build-system"]["requires"]
    pip(python, "install", *requires)
    return python


def build(builder: Path, source: Path, target: Path) -> Built:
    """Build wheel and sdist from the sources in a directory."""
    environment = clean_environment(SOURCE_DATE_EPOCH=os.environ.get("SOURCE_DATE_EPOCH", EPOCH))
    run([builder, "-m", "hatchling", "build", "--directory", target], cwd=source, environment=environment)
    [wheel], [sdist] = target.glob("*.whl"), target.glob("*.tar.gz")
    return Built(wheel, sdist)


def check_same(first: Built, second: Built) -> None:
    """Compare two builds; ReleaseError if they differ."""
    ours, theirs = first.contents(), second.contents()
    if ours.keys() != theirs.keys():
        raise ReleaseError(f"two builds made different files: {sorted(ours)}, {sorted(theirs)}")
    if different := [name for name, content in ours.items() if theirs[name] != content]:
        raise ReleaseError(f"two builds of the same sources differ in {', '.join(different)}")


def check_wheel(wheel: Path, sources: Path) -> None:
    """Check that the wheel has exactly our package (with dashboard and ``py.typed``), the licence and the programs."""
    folder = f"pyoco_server-{project()['version']}.dist-info"
    package = sources / "src" / "pyoco_server"
    expected = {f"pyoco_server/{path.relative_to(package).as_posix()}" for path in package.rglob("*") if path.is_file()}
    expected |= {f"{folder}/{name}" for name in ("METADATA", "WHEEL", "RECORD", "entry_points.txt")}
    expected |= {f"{folder}/licenses/{name}" for name in project()["license-files"]}
    with zipfile.ZipFile(wheel) as opened:
        names = set(opened.namelist())
        entry_points = opened.read(f"{folder}/entry_points.txt").decode()
        ours = [name for name in sorted(names & expected) if not name.startswith(folder)]
        changed = [name for name in ours if opened.read(name) != (sources / "src" / name).read_bytes()]
    if names != expected:
        missing, foreign = sorted(expected - names), sorted(names - expected)
        raise ReleaseError(f"{wheel.name} lacks {missing[:5]} and has {foreign[:5]} beside what it should have")
    if changed:
        raise ReleaseError(f"{wheel.name} has other contents than the sources in {', '.join(changed[:5])}")
    if absent := [program for program in PROGRAMS if f"{program} =" not in entry_points]:
        raise ReleaseError(f"{wheel.name} does not install {', '.join(absent)}")


def check_sdist(sdist: Path) -> None:
    """Check that the sdist has what pyproject.toml lists, and no generated files."""
    with tarfile.open(sdist) as opened:
        names = [name.partition("/")[2] for name in opened.getnames()]
    tops = {name.partition("/")[0] for name in names}
    if lacking := [name for name in _included() if name not in tops]:
        raise ReleaseError(f"{sdist.name} lacks {', '.join(lacking)}")
    if made := [name for name in names if "__pycache__" in name or name.startswith((".venv", ".pyoco", "dist/"))]:
        raise ReleaseError(f"{sdist.name} has what does not belong there: {made[:5]}")


# Installing


def pythons() -> list[Python]:
    """Return one interpreter of each supported version, from the ``PATH`` and from pyenv."""
    wanted = [line.rpartition(" ")[2] for line in project()["classifiers"] if re.fullmatch(r".*Python :: 3\.\d+", line)]
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found: list[Python] = []
    for version in wanted:
        candidates = [Path(sys.executable), *sorted(pyenv.glob(f"{version}.*/bin/python"))]
        if on_path := shutil.which(f"python{version}"):
            candidates.insert(1, Path(on_path))
        found += [Python(version, path) for path in candidates if _is_version(path, version)][:1]
        if not found or found[-1].version != version:
            print(f"Python {version}: not installed, so not checked", flush=True)
    return found


def _is_version(python: Path, version: str) -> bool:
    """Return whether it runs (a shim may not), has that version, and can make environments."""
    script = "import ensurepip, sys, venv; print('%d.%d' % sys.version_info[:2])"
    done = subprocess.run([python, "-c", script], capture_output=True, text=True, check=False)  # noqa: S603 an interpreter
    return done.returncode == 0 and done.stdout.strip() == version


def make_environment(python: Path, directory: Path) -> Path:
    """Make an empty virtual environment without pip; return its interpreter."""
    run([python, "-m", "venv", "--without-pip", directory])
    return directory / "bin" / "python"


def pip(python: Path, *arguments: str | Path) -> None:
    """Run pip for an environment."""
    run([sys.executable, "-m", "pip", "--python", python, "--quiet", "--disable-pip-version-check", *arguments])


def install(python: Path, wheel: Path) -> None:
    """Install the wheel, and its dependencies in the versions that we test with."""
    pip(python, "install", "--constraint", ROOT / "constraints.txt", wheel)
    pip(python, "check")


# Using


def check_versions(python: Path) -> None:
    """Check that all programs print the version of pyproject.toml."""
    for program in PROGRAMS:
        printed = run([python.parent / program, "--version"]).strip()
        if printed != f"{program} {project()['version']}":
            raise ReleaseError(f"{program} --version prints {printed!r}, not {program} {project()['version']}")


def bill(wheel: Path) -> str:
    """Return the bill of materials of a wheel, the same for the same wheel."""
    return bill_of(wheel, epoch=int(os.environ.get("SOURCE_DATE_EPOCH", EPOCH)))


def check_bill(python: Path, document: str) -> None:
    """Check that the bill of materials names exactly what is installed, in these versions."""
    script = "from importlib import metadata as m; print(*(f'{d.name}=={d.version}' for d in m.distributions()))"
    found = {_canonical(part) for part in run([python, "-c", script]).split()} - {f"{PROJECT}=={project()['version']}"}
    named = {_canonical(f"{part['name']}=={part['version']}") for part in json.loads(document)["components"]}
    if found != named:
        raise ReleaseError(f"the bill of materials lacks {sorted(found - named)} and has {sorted(named - found)}")


def _canonical(pinned: str) -> str:
    name, _, version = pinned.partition("==")
    return f"{canonicalize_name(name)}=={version}"


def check_use(python: Path, directory: Path) -> None:
    """Submit a run and wait for its end, and fetch the dashboard as a browser does."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "hello.py").write_text(FLOW, encoding="utf-8")
    with _serving(python, directory) as url:
        submitted = fetch_json(f"{url}/runs", {"flow_name": "hello", "params": {"name": "release"}})
        run_id = str(submitted["run_id"])
        ended = _ended(url, run_id)
        if ended["status"] != "COMPLETED":
            raise ReleaseError(f"the run ended {ended['status']}: {ended.get('error')}")
        page = fetch(f"{url}/").decode()
        files = re.findall(r'(?:src|href)="(/static/[^"?]+)', page)
        if not files or not all(fetch(url + name) for name in files):
            raise ReleaseError(f"the dashboard's page names no files, or some are empty: {files}")


@contextlib.contextmanager
def _serving(python: Path, directory: Path) -> Iterator[str]:
    """Serve our flow on this machine; yields the address. The server must stop on a signal."""
    port = _free_port()
    url = f"http://127.0.0.1:{port}"
    with (directory / "dev.log").open("w+", encoding="utf-8") as log:
        process = subprocess.Popen(  # noqa: S603 our own program
            [python.parent / "pyoco-server", "dev", "hello.py", "--port", str(port)],
            cwd=directory,
            env=clean_environment(PYOCO_LOAD_DOTENV="0"),
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            _until_ready(url, process)
            yield url
            _stop(process)
        except (ReleaseError, OSError, subprocess.TimeoutExpired) as error:
            log.seek(0)
            raise ReleaseError(f"{error}\npyoco-server dev said:\n{log.read()}") from error
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()


def _stop(process: "subprocess.Popen[bytes]") -> None:
    process.send_signal(signal.SIGTERM)
    if (code := process.wait(_PATIENCE_SEC)) != 0:
        raise ReleaseError(f"pyoco-server dev ended with {code} when it was asked to stop")


def _until_ready(url: str, process: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + _PATIENCE_SEC
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise ReleaseError(f"pyoco-server dev ended at once, with {process.returncode}")
        with contextlib.suppress(OSError):
            fetch(f"{url}/health/ready")
            return
        time.sleep(0.1)
    raise ReleaseError("the gateway did not become ready")


def _ended(url: str, run_id: str) -> Mapping[str, Any]:
    deadline = time.monotonic() + _PATIENCE_SEC
    found: Mapping[str, Any] = {}
    while time.monotonic() < deadline:
        found = fetch_json(f"{url}/runs/{run_id}")
        if found["status"] in _ENDS:
            return found
        time.sleep(0.1)
    raise ReleaseError(f"the run did not end; it is {found.get('status')}")


def fetch(url: str, body: object = None) -> bytes:
    """Return the content of an answer; ``OSError`` without one."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})  # noqa: S310 our own address
    with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310 our own address
        content: bytes = answer.read()
    return content


def fetch_json(url: str, body: object = None) -> Mapping[str, Any]:
    """Return an answer that is an object."""
    found: Mapping[str, Any] = json.loads(fetch(url, body))
    return found


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def check_types(python: Path, builder: Path, directory: Path) -> None:
    """Check a project that uses the package with a strict type checker."""
    shutil.copytree(SAMPLE, directory, ignore=shutil.ignore_patterns("__pycache__"))
    pip(builder, "install", PYRIGHT)
    run([builder, "-m", "pyright", "--pythonpath", python, "--project", directory])


# Running


def clean_environment(**more: str) -> dict[str, str]:
    """Return our environment without variables that point to these sources or to the user's settings."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYOCO_", "PYTHON"))}
    return {**kept, **more}


def run(command: Sequence[str | Path], *, cwd: Path | None = None, environment: Mapping[str, str] | None = None) -> str:
    """Return the output of a command; ``ReleaseError`` with all output if it fails."""
    done = subprocess.run(  # noqa: S603 commands of our own
        [str(part) for part in command],
        cwd=cwd or tempfile.gettempdir(),
        env=dict(environment or clean_environment()),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        words = " ".join(map(str, command))
        raise ReleaseError(f"{words} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all checks; return 1 if one fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dist", type=Path, metavar="DIR", help="leave wheel and sdist in this directory")
    parser.add_argument("--build-only", action="store_true", help="install nothing")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="pyoco-release-") as name:
        try:
            _check(Path(name), given.dist, build_only=given.build_only)
        except ReleaseError as error:
            print(f"release check: {error}", file=sys.stderr)
            return 1
    return 0


def _check(work: Path, dist: Path | None, *, build_only: bool) -> None:
    builder = make_builder(work / "builder")
    sources = copy_sources(work / "sources")
    first = build(builder, sources, work / "first")
    elsewhere = shutil.copytree(sources, work / "another" / "place", copy_function=shutil.copyfile)
    second = build(builder, elsewhere, work / "second")
    check_same(first, second)
    check_wheel(first.wheel, sources)
    check_sdist(first.sdist)
    print(f"{first.wheel.name} and {first.sdist.name}: identical in two builds, and complete", flush=True)
    if dist is not None:
        dist.mkdir(parents=True, exist_ok=True)
        for path in first:
            shutil.copyfile(path, dist / path.name)
        (dist / f"{PROJECT}-{project()['version']}.cdx.json").write_text(bill(first.wheel), encoding="utf-8")
    if not build_only:
        _check_everywhere(work, builder, first.wheel)


def _check_everywhere(work: Path, builder: Path, wheel: Path) -> None:
    """Check with every Python, also after one has failed."""
    problems: list[str] = []
    for version, path in pythons():
        try:
            _check_with(path, work / version, builder, wheel)
        except ReleaseError as error:
            problems.append(f"Python {version}: {error}")
        else:
            print(f"Python {version}: installed, used, type-checked, and its version is right", flush=True)
    if problems:
        raise ReleaseError("\n".join(problems))


def _check_with(python: Path, work: Path, builder: Path, wheel: Path) -> None:
    installed = make_environment(python, work / "environment")
    install(installed, wheel)
    check_use(installed, work / "use")
    check_types(installed, builder, work / "sample")
    check_versions(installed)
    if python.samefile(sys.executable):  # another Python may need other packages
        check_bill(installed, bill(wheel))


if __name__ == "__main__":
    sys.exit(main())
