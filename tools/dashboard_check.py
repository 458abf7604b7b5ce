"""Check the dashboard's JavaScript and CSS: types with tsc, layout with prettier (``--fix`` writes it)."""

import argparse
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tools.dashboard_setup import MissingError, node_tool

DASHBOARD: Final = Path(__file__).parents[1] / "src" / "pyoco_server" / "gateway" / "dashboard"
_STRICT: Final = (
    "--noEmit",
    "--allowJs",
    "--checkJs",
    "--strict",
    "--noUncheckedIndexedAccess",
    "--noImplicitOverride",
    "--noUnusedLocals",
    "--noUnusedParameters",
    "--noPropertyAccessFromIndexSignature",
    "--noFallthroughCasesInSwitch",
    *("--target", "es2023"),
    *("--lib", "es2023,dom,dom.iterable"),
    *("--module", "es2022"),
    *("--moduleResolution", "bundler"),
)


def types() -> subprocess.CompletedProcess[str]:
    """Run the type checker over all modules."""
    modules = sorted(str(path) for path in (DASHBOARD / "static").rglob("*.js"))
    return _node("typescript/bin/tsc", *_STRICT, str(DASHBOARD / "types.d.ts"), *modules)


def layout(*, fix: bool = False) -> subprocess.CompletedProcess[str]:
    """Check the layout with prettier, or write it with ``fix``."""
    wanted = [str(DASHBOARD / "static" / "**" / f"*.{kind}") for kind in ("js", "css")]
    mode = "--write" if fix else "--check"
    return _node("prettier/bin/prettier.cjs", mode, "--log-level=warn", "--print-width=120", *wanted)


def _node(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    node = shutil.which("node")
    if node is None:
        raise MissingError("there is no node: run 'python -m tools.dashboard_setup'")
    command = [node, str(node_tool(script)), *arguments]
    return subprocess.run(command, check=False, capture_output=True, text=True)  # noqa: S603 our own tools


def main(argv: Sequence[str] | None = None) -> int:
    """Check, and print the problems."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fix", action="store_true", help="write the layout instead of checking it")
    arguments = parser.parse_args(argv)
    try:
        done = [layout(fix=arguments.fix), types()]
    except MissingError as error:
        print(error, file=sys.stderr)
        return 1
    for one in done:
        print(one.stdout + one.stderr, end="")
    return int(any(one.returncode for one in done))


if __name__ == "__main__":
    sys.exit(main())
