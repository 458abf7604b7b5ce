"""Print the figures that say how readable the source tree is, as a markdown table with one column for each tree.

A tree is a folder or a git revision of this repository; without arguments it is the working copy. The figures count the
Python files below ``src``, always by the definitions here, so that columns of different versions can be compared.
"""

import ast
import re
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from statistics import median, quantiles
from typing import Final, NamedTuple

from tools.pages import ROOT, table
from tools.plain_language import problems

SHORT: Final = 40
"""A file with fewer lines is rarely a subject of its own."""

CLOCK_CALLS: Final = re.compile(
    r"(uuid[14]|random\.\w+|secrets\.\w+|urandom|monotonic(_ns)?|perf_counter(_ns)?|time\.time(_ns)?|datetime\.now)\("
)
"""Calls that read a clock or randomness: the function depends on more than its arguments."""


class Module(NamedTuple):
    """A parsed source file; ``name`` is its dotted name, without ``__init__``."""

    name: str
    is_package: bool
    text: str
    tree: ast.Module

    @property
    def lines(self) -> int:
        """The number of lines, with comments and blank lines."""
        return self.text.count("\n")


def figures(root: Path) -> dict[str, str]:
    """Return the figures of the tree in a folder, by what they count."""
    modules = [*_modules(root / "src")]
    if not modules:
        raise ValueError(f"{root} has no Python files below src: name the root of a working copy, or a git revision")
    nodes = [node for module in modules for node in ast.walk(module.tree)]
    total = sum(module.lines for module in modules)
    classes = Counter(node.name.lstrip("_") for node in nodes if isinstance(node, ast.ClassDef))
    importers = _importers(modules)
    blind = sum(isinstance(node, ast.ExceptHandler) and _is_blind(node) for node in nodes)
    clock = sum(len(CLOCK_CALLS.findall(module.text)) for module in modules)
    return {
        "files": f"{len(modules):,}",
        "lines": f"{total:,}",
        "file length: median / p90 / max": _spread(module.lines for module in modules),
        "function length: median / p90 / max": _spread(
            (node.end_lineno or node.lineno) - node.lineno + 1
            for node in nodes
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        ),
        f"files under {SHORT} lines": str(sum(module.lines < SHORT for module in modules)),
        "… of these not `__init__`": str(sum(module.lines < SHORT and not module.is_package for module in modules)),
        "modules with exactly one importer (without `__init__`)": str(
            sum(importers[module.name] == 1 and not module.is_package for module in modules)
        ),
        "class names used more than once": str(sum(count > 1 for count in classes.values())),
        "idioms in `src/`": str(sum(problem.startswith("src/") for problem in problems(root))),
        "blind excepts per 1,000 lines": f"{1000 * blind / total:.1f}",
        "clock and randomness calls per 1,000 lines": f"{1000 * clock / total:.1f}",
    }


def _modules(source: Path) -> Iterator[Module]:
    for path in sorted(source.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        name = ".".join(path.relative_to(source).with_suffix("").parts).removesuffix(".__init__")
        yield Module(name, path.name == "__init__.py", text, ast.parse(text, str(path)))


def _importers(modules: Collection[Module]) -> Counter[str]:
    """Count for each module the modules that import it or a name from it."""
    known = {module.name for module in modules}
    return Counter(name for module in modules for name in known & _imported(module.tree) - {module.name})


def _imported(tree: ast.Module) -> set[str]:
    """Return the dotted names that a module imports; the tree has no relative imports."""
    found = set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def _is_blind(handler: ast.ExceptHandler) -> bool:
    return handler.type is None or (isinstance(handler.type, ast.Name) and handler.type.id == "Exception")


def _spread(lengths: Iterable[int]) -> str:
    counts = [*lengths]
    return f"{median(counts):.0f} / {quantiles(counts, n=10)[-1]:.0f} / {max(counts)}"


def _of(tree: str) -> dict[str, str]:
    """Return the figures of a folder, or of a git revision when there is no such folder."""
    if Path(tree).is_dir():
        return figures(Path(tree))
    git = ["git", "-C", str(ROOT), "archive", "--format", "tar", tree]
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as packed:
        if subprocess.run(git, stdout=packed, check=False).returncode:  # noqa: S603 our own command
            raise SystemExit(f"{tree!r} is neither a folder nor a git revision")
        packed.seek(0)
        with tarfile.open(fileobj=packed) as archive:
            archive.extractall(folder, filter="data")
        return figures(Path(folder))


def main() -> int:
    """Print one column for each tree given as an argument; the exit code."""
    trees = sys.argv[1:] or [str(ROOT)]
    columns = [_of(tree) for tree in trees]
    head = ["", *(Path(tree).name if Path(tree).is_dir() else f"`{tree}`" for tree in trees)]
    print(table(head, ([what, *(column[what] for column in columns)] for what in columns[0])))
    return 0


if __name__ == "__main__":
    sys.exit(main())
