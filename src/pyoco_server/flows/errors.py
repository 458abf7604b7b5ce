"""The errors of flows: in a flow itself, its names, expressions and prompts, and in an answer to a wait."""

from typing import ClassVar

from pyoco_server.core.json_codec import JsonObject
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
    """The file is larger than the limit; it was not read."""

    err_id: ClassVar[str | None] = "ERR-PYOCO-0016"
    msg_id: ClassVar[str | None] = "MSG-PYOCO-0016"


class CallableNotAllowedError(FlowSyntaxError):
    """A flow.yaml of a client names a function that the operator of the worker does not allow."""

    err_id: ClassVar[str | None] = "ERR-PYOCO-0110"
    msg_id: ClassVar[str | None] = "MSG-PYOCO-0110"


class EnvironmentNotExposedError(FlowError):
    """A flow.yaml lists an environment variable that it may not see."""

    err_id: ClassVar[str | None] = "ERR-PYOCO-0112"
    msg_id: ClassVar[str | None] = "MSG-PYOCO-0112"


class UnknownNameError(FlowError):
    """A name that nothing in the flow has; ``task`` is the task it was found at, ``remedy`` what to write instead."""

    def __init__(self, problem: str, remedy: str, task: str | None) -> None:
        super().__init__(f"{problem}; {remedy}")
        self.problem = problem
        self.remedy = remedy
        self.task = task


class OutOfBoundsError(FlowError):
    """The expression costs too much time or memory, or its path is not allowed; ``remedy`` says what to do instead."""

    def __init__(self, problem: str, remedy: str = "compute the value in a task") -> None:
        super().__init__(f"{problem}; {remedy}")
        self.problem = problem
        self.remedy = remedy


class PromptError(FlowError):
    """A prompt that cannot be rendered; the text names the place in the prompt, and the template."""


class AnswerError(InvalidInputError, ValueError):
    """An answer does not fit the form of its wait, which continues.

    ``details`` lists the fields that are wrong; ``summary`` names the first five in one line.
    """

    def __init__(self, node_id: str, problems: list[JsonObject]) -> None:
        self.summary = "; ".join(f"{'.'.join(problem['loc'])}: {problem['msg']}" for problem in problems[:5])
        super().__init__(f"the answer does not fit the form of '{node_id}': {self.summary}; the wait continues")
        self.details: JsonObject = {"node_id": node_id, "problems": problems}
