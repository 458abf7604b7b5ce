"""Which environment variables a flow.yaml may see: those that it lists, bounded by the operator of the worker.

Expressions and inputs of a flow.yaml name variables as ``$env.X``. What the file lists in ``runtime.expose_env`` is a
wish of its author, who may be any client; ``PYOCO_EXPOSE_ENV`` of the worker is the bound. The platform's own variables
and names that look like secrets are never visible. Code that a task calls sees the environment of its process.
"""

from collections.abc import Collection, Mapping
from fnmatch import fnmatchcase
from typing import Final

from pyoco_server.flows.errors import EnvironmentNotExposedError

PLATFORM_PREFIX: Final = "PYOCO_"

SECRET_WORDS: Final = (
    *("AUTH", "COOKIE", "CREDENTIAL", "CREDS", "DSN", "KEY", "PASS", "PEPPER", "PRIVATE", "PWD", "SECRET", "SEED"),
    *("SESSION", "SIGNATURE", "TOKEN"),
)
"""A name with one of these in it looks like that of a secret."""

_HARMLESS: Final = frozenset({"PWD", "OLDPWD"})
"""Variables of every shell that have such a word in their names."""


def is_protected(name: str) -> bool:
    """Return whether a variable is never visible to a flow.yaml: one of the platform, or one that may hold a secret."""
    upper = name.upper()
    if upper.startswith(PLATFORM_PREFIX):
        return True
    return upper not in _HARMLESS and any(word in upper for word in SECRET_WORDS)


def is_exposed(name: str, patterns: Collection[str] | None) -> bool:
    """Return whether a flow.yaml that lists a variable may see it; without patterns, only protection counts."""
    if is_protected(name):
        return False
    return patterns is None or any(fnmatchcase(name, pattern) for pattern in patterns)


def visible_names(listed: Collection[str] | None, patterns: Collection[str] | None) -> frozenset[str] | None:
    """Return the variables that a flow may see; None, which is all, for a flow written in Python."""
    return None if listed is None else frozenset(name for name in listed if is_exposed(name, patterns))


def check_exposed(listed: Collection[str] | None, patterns: Collection[str] | None) -> None:
    """Refuse a flow.yaml that lists a variable that it may not see: EnvironmentNotExposedError."""
    for name in listed or ():
        if is_protected(name):
            raise EnvironmentNotExposedError(
                f"runtime.expose_env: '{name[:60]}' is never visible to a flow.yaml, because it is a variable of the "
                "platform or its name looks like that of a secret; read it in the code of a task"
            )
        if not is_exposed(name, patterns):
            raise EnvironmentNotExposedError(
                f"runtime.expose_env: this worker does not show the variable '{name[:60]}'; remove it, pass the value "
                f"as a parameter, or let the operator allow it with PYOCO_EXPOSE_ENV={name[:60]}"
            )


def environment_of_children(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for a process that runs code of users: without the settings of the platform."""
    return {name: value for name, value in environment.items() if not name.upper().startswith(PLATFORM_PREFIX)}
