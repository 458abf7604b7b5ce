"""Install what the tests of the dashboard need: a browser, and three tools written for node.

None of it is part of the product. Chromium and node come from the system's packages (as root, or with sudo), the tools
from npm into the virtual environment.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

TOOLS: Final = Path(sys.prefix) / "dashboard"
PINNED: Final = {"axe-core": "4.11.0", "prettier": "3.6.2", "typescript": "5.9.3"}
_BROWSERS: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


class MissingError(RuntimeError):
    """A program that the tests need is missing."""


def browser() -> Path:
    """Return the path of Chromium; MissingError says how to install it."""
    named = os.environ.get("PYOCO_TEST_BROWSER")
    found = named or next(filter(None, map(shutil.which, _BROWSERS)), None)
    if not found:
        raise MissingError("there is no Chromium: run 'python -m tools.dashboard_setup', or set PYOCO_TEST_BROWSER")
    return Path(found)


def node_tool(path: str) -> Path:
    """Return a file of one of the tools; MissingError says how to install it."""
    found = TOOLS / "node_modules" / path
    if not found.exists():
        raise MissingError(f"there is no {found}: run 'python -m tools.dashboard_setup'")
    return found


def main() -> int:
    """Install what is missing."""
    try:
        _have_packages()
        _have_tools()
    except (MissingError, subprocess.CalledProcessError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _have_packages() -> None:
    missing = [] if any(map(shutil.which, _BROWSERS)) or os.environ.get("PYOCO_TEST_BROWSER") else ["chromium"]
    missing += [] if shutil.which("npm") else ["nodejs", "npm"]
    if not missing:
        return
    apt = shutil.which("apt-get")
    if apt is None:
        raise MissingError(f"install {', '.join(missing)} and put them on the PATH")
    before = [] if os.geteuid() == 0 else ["sudo", "--non-interactive"]
    print(f"installing {', '.join(missing)}")
    for arguments in (["update"], ["install", "--yes", "--no-install-recommends", *missing]):
        _run([*before, apt, "--quiet", "--quiet", *arguments])


def _have_tools() -> None:
    if all(_installed(name) == version for name, version in PINNED.items()):
        return
    npm = shutil.which("npm")
    if npm is None:
        raise MissingError("npm is not on the PATH")
    TOOLS.mkdir(parents=True, exist_ok=True)
    wanted = [f"{name}@{version}" for name, version in PINNED.items()]
    _run([npm, "install", "--prefix", str(TOOLS), "--no-save", "--no-package-lock", "--no-fund", "--no-audit", *wanted])


def _installed(name: str) -> str | None:
    described = TOOLS / "node_modules" / name / "package.json"
    if not described.exists():
        return None
    lines = (line.strip() for line in described.read_text(encoding="utf-8").splitlines())
    return next((line.split('"')[3] for line in lines if line.startswith('"version"')), None)


def _run(command: list[str]) -> None:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)  # noqa: S603 named above


if __name__ == "__main__":
    sys.exit(main())
