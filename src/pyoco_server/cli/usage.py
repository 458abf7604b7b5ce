"""Mistakes of whoever typed the command, and how they are told."""

from typing import ClassVar

from pyoco_server.errors import InvalidInputError, PyocoServerError


class UsageError(InvalidInputError):
    """The command cannot be carried out as it was typed; ``example`` shows one that could."""

    err_id: ClassVar[str | None] = "ERR-PYOCO-0018"
    msg_id: ClassVar[str | None] = "MSG-PYOCO-0018"

    def __init__(self, message: str, *, example: str | None = None) -> None:
        super().__init__(message)
        self.example = example


def told(error: PyocoServerError) -> str:
    """The text for stderr: what is wrong, its identifiers, and an example if there is one."""
    ids = "/".join(part for part in (error.msg_id, error.err_id) if part)
    text = f"error: {error}" + (f" [{ids}]" if ids else "")
    example = getattr(error, "example", None)
    return f"{text}\nexample: {example}" if example else text
