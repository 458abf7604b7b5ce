"""Which paths are open, and which scope the others need. What is not named here needs a key, whatever it is."""

from typing import Final

from pyoco_server.app.key_texts import Scope

OPEN_PATHS: Final = frozenset({"/", "/health", "/health/ready"})
OPEN_FOLDER: Final = "/static/"

SCOPES: Final = {
    "runs": Scope.RUNS,
    "executions": Scope.RUNS,
    "graphs": Scope.RUNS,
    "workers": Scope.OPERATE,
    "metrics": Scope.OPERATE,
    "dlq": Scope.OPERATE,
    "wheels": Scope.WHEELS,
}
"""The scope by the first part of the path."""

ANY_KEY: Final = frozenset({"docs", "openapi.json"})
"""What describes the API: for everybody who has a key, and nobody else."""


def is_open(path: str) -> bool:
    """May anybody have this? Only the page people log in on, and whether the gateway is well."""
    return path in OPEN_PATHS or path.startswith(OPEN_FOLDER)


def scope_for(path: str) -> Scope | None:
    """The scope a path needs; None: any key will do (there is nothing there, or only a description)."""
    _, first, *others = path.split("/")
    if first in {"runs", "executions"} and len(others) == 2 and others[1] == "archive":
        return Scope.OPERATE
    return SCOPES.get(first)
