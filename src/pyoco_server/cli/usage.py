"""Mistakes of whoever typed the command, and how they are told."""

import json
from typing import ClassVar

from pyoco_server.client import ApiError, GatewayUnreachableError
from pyoco_server.errors import InvalidInputError, PyocoServerError
from pyoco_server.messages import Language, entry_of


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
