"""What can be wrong with a flow."""

from typing import ClassVar

from pyoco_server.errors import InvalidInputError


class FlowError(InvalidInputError, ValueError):
    """The flow cannot run as it is written."""


class FlowSyntaxError(FlowError):
    """A flow.yaml that cannot be understood.

    ``line`` and ``column`` count from 1 and point into the file; ``message`` says what is wrong, ``remedy`` what to
    write instead.
    """

    def __init__(self, line: int, column: int, message: str, remedy: str) -> None:
        super().__init__(f"line {line}, column {column}: {message}; {remedy}")
        self.line = line
        self.column = column
        self.message = message
        self.remedy = remedy


class FlowTooLargeError(FlowSyntaxError):
    """The file is larger than is accepted; it was not looked at."""

    err_id: ClassVar[str | None] = "ERR-PYOCO-0016"
    msg_id: ClassVar[str | None] = "MSG-PYOCO-0016"
