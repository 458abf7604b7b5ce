"""Which modules installed code provides, and how a running interpreter comes to use it."""

import importlib
import importlib.machinery
import importlib.metadata
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

_OURS: Final = "pyoco-server"
_SUFFIXES: Final = (".py", ".pyc", ".so", ".pyd")
_BEGINNINGS: Final = tuple(f"__init__{suffix}" for suffix in importlib.machinery.all_suffixes())


def provided_modules(site: Path) -> set[str]:
    """Return the full names of the modules and packages in a directory, without the content of packages.

    A folder without ``__init__`` may be shared with other wheels: its content counts, not the folder.
    """
    return set(_provided(site, ""))


def _provided(folder: Path, prefix: str) -> Iterator[str]:
    for path in folder.iterdir():
        if path.is_dir():
            if not path.name.isidentifier() or path.name == "__pycache__":
                continue
            if any((path / name).exists() for name in _BEGINNINGS):
                yield f"{prefix}{path.name}"
            else:
                yield from _provided(path, f"{prefix}{path.name}.")
        elif path.suffix in _SUFFIXES and (name := path.name.partition(".")[0]).isidentifier():
            yield f"{prefix}{name}"


def platform_modules() -> frozenset[str]:
    """Return the top-level names of modules that the worker itself uses, which no wheel may replace."""
    distributions = _requirements_of(_OURS)
    found = importlib.metadata.packages_distributions()
    needed = {module for module, names in found.items() if not distributions.isdisjoint(map(canonicalize_name, names))}
    return frozenset({"pyoco_server", *needed, *sys.stdlib_module_names})


def _requirements_of(name: str) -> set[str]:
    """Return a distribution and all its installed requirements."""
    known, waiting = set[str](), [name]
    while waiting:
        current = canonicalize_name(waiting.pop())
        if current in known:
            continue
        known.add(current)
        try:
            required = importlib.metadata.requires(current) or ()
        except importlib.metadata.PackageNotFoundError:
            continue
        for text in required:
            try:
                requirement = Requirement(text)
            except InvalidRequirement:
                continue
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                waiting.append(requirement.name)
    return known


def switched_paths(before: Sequence[Path], after: Sequence[Path]) -> list[str]:
    """Return the search path with the directories ``after`` in place of ``before``.

    They stand behind the standard library, which wheels cannot replace, and before installed packages, which they can.
    """
    left = [path for path in sys.path if path not in {str(path) for path in before}]
    place = next((number for number, path in enumerate(left) if _is_site(path)), len(left))
    return [*left[:place], *(str(path) for path in after), *left[place:]]


def switch_paths(before: Sequence[Path], after: Sequence[Path]) -> None:
    """Import from ``after`` in place of ``before``, and forget the modules that would now come from elsewhere."""
    gone = {str(path) for path in before if path not in after}
    replaced = {name for path in after if path not in before for name in provided_modules(path)}
    sys.path[:] = switched_paths(before, after)
    for path in gone:
        sys.path_importer_cache.pop(path, None)
    forget_modules([name for name in [*sys.modules] if _is_any_of(name, replaced) or _comes_from(name, gone)])


def forget_modules(names: Sequence[str]) -> None:
    """Remove modules from memory, so that the next import loads them again."""
    for name in names:
        sys.modules.pop(name, None)
    importlib.invalidate_caches()


def _is_site(path: str) -> bool:
    return Path(path).name in {"site-packages", "dist-packages"}


def _is_any_of(name: str, roots: set[str]) -> bool:
    """Return whether this is one of these modules, or inside one of them."""
    parts = name.split(".")
    return any(".".join(parts[:length]) in roots for length in range(1, len(parts) + 1))


def _comes_from(name: str, folders: set[str]) -> bool:
    module = sys.modules.get(name)
    places = [getattr(module, "__file__", None), *_search_path(module)]
    return any(isinstance(place, str) and any(place.startswith(f"{folder}/") for folder in folders) for place in places)


def _search_path(module: object) -> list[object]:
    try:
        return list(getattr(module, "__path__", ()))
    except (TypeError, KeyError, AttributeError):  # a shared folder whose parent is gone has no path
        return []
