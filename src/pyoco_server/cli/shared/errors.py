"""Errors of the command line: usage errors, the text of any error for stderr, and suggestions for typing mistakes."""

import difflib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import ClassVar, Final

from pyoco_server.client import ApiError, GatewayUnreachableError
from pyoco_server.errors import InvalidInputError, PyocoServerError
from pyoco_server.messages import Language, entry_of

_HINTS: Final[Mapping[str, tuple[str, str]]] = {
    "ERR-PYOCO-0001": (
        "'pyoco-server dev flows.py' starts one on this machine; --server or PYOCO_SERVER_URL names another one",
        "このマシンで起動するには 'pyoco-server dev flows.py'。別の場所は --server または PYOCO_SERVER_URL で指定",
    ),
    "ERR-PYOCO-0005": ("'pyoco-client list' shows all runs", "'pyoco-client list' で一覧を表示"),
    "ERR-PYOCO-0014": (
        "set --api-key or PYOCO_API_KEY; 'pyoco-server keys create' creates a key",
        "--api-key または PYOCO_API_KEY で指定。発行は 'pyoco-server keys create'",
    ),
    "ERR-PYOCO-0015": (
        "check --api-key or PYOCO_API_KEY; 'pyoco-server keys list' shows all keys",
        "--api-key または PYOCO_API_KEY の値を確認。一覧は 'pyoco-server keys list'",
    ),
    "ERR-PYOCO-0020": (
        "'pyoco-client workers --scope all --include-hidden' shows all workers",
        "'pyoco-client workers --scope all --include-hidden' で一覧を表示",
    ),
    "ERR-PYOCO-0023": ("'pyoco-client wheels' shows all wheels", "'pyoco-client wheels' で一覧を表示"),
}
"""What the user of a command line can do about an error of a gateway, in English and Japanese."""


class UsageError(InvalidInputError):
    """The command is not valid as it was typed; ``example`` shows a valid one."""

    err_id: ClassVar[str | None] = "ERR-PYOCO-0018"
    msg_id: ClassVar[str | None] = "MSG-PYOCO-0018"

    def __init__(self, message: str, *, example: str | None = None) -> None:
        super().__init__(message)
        self.example = example


def error_text(error: PyocoServerError, language: Language = Language.EN) -> str:
    """Return the text for stderr: the error, its ids, and what to do, or an example if there is one."""
    ids = "/".join(part for part in (error.msg_id, error.err_id) if part)
    lines = [f"error: {_message(error, language)}" + (f" [{ids}]" if ids else "")]
    if isinstance(error, ApiError) and set(error.details) - {"problems"}:
        lines.append(f"details: {json.dumps(error.details, ensure_ascii=False)}")
    action = _action(error, language)
    if action:
        lines.append(f"action: {action}")
    hint = _HINTS.get(error.err_id or "") if isinstance(error, ApiError | GatewayUnreachableError) else None
    if hint is not None:
        lines.append(f"hint: {hint[language is Language.JA]}")
    lines += [f"hint: {remark}" for remark in getattr(error, "__notes__", ())]
    example = getattr(error, "example", None)
    if example:
        lines.append(f"example: {example}")
    return "\n".join(lines)


def _message(error: PyocoServerError, language: Language) -> str:
    """Return the message; those of this process are English, so other languages have the catalogue's text before it."""
    entry = entry_of(error)
    if isinstance(error, ApiError):  # it may contain the text of another server
        return "".join(letter if letter.isprintable() else " " for letter in str(error))
    if language is Language.EN or entry is None:
        return str(error)
    return f"{entry.message(language)}: {error}"


def _action(error: PyocoServerError, language: Language) -> str | None:
    if isinstance(error, ApiError):
        return error.action
    entry = entry_of(error) if isinstance(error, GatewayUnreachableError) else None
    return entry.action(language) if entry is not None else None


# --- Suggestions -----------------------------------------------------------------------------------------------------

_FLOW_FILES: Final = frozenset({".py", ".yaml", ".yml"})


def suggestion(typed: str, valid: Iterable[str]) -> str:
    """Return the nearest of the valid names as a question; empty if none is near."""
    by_letters = {name.lower(): name for name in valid}
    near = difflib.get_close_matches(typed.lower(), by_letters, n=1)
    return f"; did you mean '{by_letters[near[0]]}'?" if near else ""


def file_suggestion(typed: str) -> str:
    """Return the nearest file with flows in the same folder as a question; empty if there is none."""
    path = Path(typed)
    try:
        files = sorted(file.name for file in path.parent.iterdir() if file.suffix.lower() in _FLOW_FILES)
    except (OSError, ValueError):  # ValueError: not a valid folder name
        return ""
    same = [name for name in files if Path(name).stem == path.name]
    near = f"; did you mean '{same[0]}'?" if same else suggestion(path.name, files)
    return near.replace("'", f"'{path.parent}/", 1) if near and str(path.parent) != "." else near
