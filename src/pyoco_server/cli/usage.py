"""Mistakes of whoever typed the command, and how they are told."""

import json
from collections.abc import Mapping
from typing import ClassVar, Final

from pyoco_server.client import ApiError, GatewayUnreachableError
from pyoco_server.errors import InvalidInputError, PyocoServerError
from pyoco_server.messages import Language, entry_of

_HINTS: Final[Mapping[str, tuple[str, str]]] = {
    "ERR-PYOCO-0001": (
        "'pyoco-server dev flows.py' starts one on this machine; --server or PYOCO_SERVER_URL says where another is",
        "このマシンで起動するには 'pyoco-server dev flows.py'。別の場所は --server または PYOCO_SERVER_URL で指定",
    ),
    "ERR-PYOCO-0005": ("'pyoco-client list' shows the runs there are", "'pyoco-client list' で一覧を表示"),
    "ERR-PYOCO-0014": (
        "give it with --api-key or PYOCO_API_KEY; 'pyoco-server keys create' makes one",
        "--api-key または PYOCO_API_KEY で指定。発行は 'pyoco-server keys create'",
    ),
    "ERR-PYOCO-0015": (
        "it was taken from --api-key or PYOCO_API_KEY; 'pyoco-server keys list' shows those there are",
        "--api-key または PYOCO_API_KEY の値を確認。一覧は 'pyoco-server keys list'",
    ),
    "ERR-PYOCO-0020": (
        "'pyoco-client workers --scope all --include-hidden' shows the workers there are",
        "'pyoco-client workers --scope all --include-hidden' で一覧を表示",
    ),
    "ERR-PYOCO-0023": ("'pyoco-client wheels' shows the wheels there are", "'pyoco-client wheels' で一覧を表示"),
}
"""What a reader at a command line can do about an error from a gateway, in English and Japanese."""


class UsageError(InvalidInputError):
    """The command cannot be carried out as it was typed; ``example`` shows one that could."""

    err_id: ClassVar[str | None] = "ERR-PYOCO-0018"
    msg_id: ClassVar[str | None] = "MSG-PYOCO-0018"

    def __init__(self, message: str, *, example: str | None = None) -> None:
        super().__init__(message)
        self.example = example


def told(error: PyocoServerError, language: Language = Language.EN) -> str:
    """The text for stderr: what is wrong, its identifiers, and what to do, or an example if there is one."""
    ids = "/".join(part for part in (error.msg_id, error.err_id) if part)
    lines = [f"error: {_said(error, language)}" + (f" [{ids}]" if ids else "")]
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


def _said(error: PyocoServerError, language: Language) -> str:
    """The error's own words; they are English, unless a gateway said them, so others get the catalogue's first."""
    entry = entry_of(error)
    if isinstance(error, ApiError):  # it may repeat what some other server said
        return "".join(letter if letter.isprintable() else " " for letter in str(error))
    if language is Language.EN or entry is None:
        return str(error)
    return f"{entry.message(language)}: {error}"


def _action(error: PyocoServerError, language: Language) -> str | None:
    if isinstance(error, ApiError):
        return error.action
    entry = entry_of(error) if isinstance(error, GatewayUnreachableError) else None
    return entry.action(language) if entry is not None else None
