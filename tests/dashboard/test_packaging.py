"""What is installed has the dashboard in it: a wheel is built, and looked into."""

import subprocess
import sys
import zipfile
from pathlib import Path

from pyoco_server.gateway.dashboard.serving import PAGE, STATIC

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"


def test_the_wheel_has_every_file_of_the_dashboard(tmp_path: Path) -> None:
    options = ["--quiet", "--disable-pip-version-check", "--no-deps", "--wheel-dir", str(tmp_path)]
    done = subprocess.run(  # noqa: S603 our own command
        [sys.executable, "-m", "pip", "wheel", *options, str(ROOT)], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    [wheel] = tmp_path.glob("pyoco_server-*.whl")
    files = [PAGE, *(path for path in STATIC.rglob("*") if path.is_file())]
    assert len(files) > 50
    with zipfile.ZipFile(wheel) as opened:
        for path in files:
            assert opened.read(path.relative_to(SOURCE).as_posix()) == path.read_bytes(), path.name
