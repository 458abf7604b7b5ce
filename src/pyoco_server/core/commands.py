"""The 12 commands: what a caller can request of an execution.

Undeclared fields of a command are copied into the event it becomes, so that a caller can add to the record (the input
given with a resume, for example) without a new command.
"""

from typing import Annotated, ClassVar, Final

import msgspec

from pyoco_server.core.events import Actor
from pyoco_server.core.json_codec import (
    DecodeError,
    DecodeProblem,
    Extensible,
    JsonObject,
    Name,
    Raw,
    parse_object,
    plain,
    read_extensible,
)
from pyoco_server.core.payloads import Attempt, ErrorInfo, Party, Percent
from pyoco_server.core.transitions import CommandType


class BaseCommand(Extensible, frozen=True, kw_only=True):
    """Base of all commands: for which execution, from whom, and as part of what."""

    type: ClassVar[CommandType]
    execution_id: Name
    actor: Actor
    correlation_id: str | None = None
    causation_id: str | None = None


class CreateExecution(BaseCommand, frozen=True, kw_only=True):
    """Create an execution."""

    type: ClassVar = CommandType.CREATE_EXECUTION
    graph_id: Name
    input: JsonObject | None = None


class StartExecution(BaseCommand, frozen=True, kw_only=True):
    """Start the execution."""

    type: ClassVar = CommandType.START_EXECUTION
    parts: ClassVar = {"startedBy": Party}
    started_by: JsonObject | None = None


class CancelExecution(BaseCommand, frozen=True, kw_only=True):
    """Cancel the execution, whatever its nodes do."""

    type: ClassVar = CommandType.CANCEL_EXECUTION
    parts: ClassVar = {"requestedBy": Party}
    reason: str | None = None
    requested_by: JsonObject | None = None


class ArchiveExecution(BaseCommand, frozen=True, kw_only=True):
    """Archive an execution that has ended."""

    type: ClassVar = CommandType.ARCHIVE_EXECUTION
    reason: str | None = None


class NodeCommand(BaseCommand, frozen=True, kw_only=True):
    """Base of the eight commands for one node."""

    node_id: Name


class AttemptCommand(NodeCommand, frozen=True, kw_only=True):
    """Base of the commands about one attempt; with ``attempt``, a stale one is refused."""

    attempt: Attempt | None = None


class MarkNodeReady(NodeCommand, frozen=True, kw_only=True):
    """Allow the node to run."""

    type: ClassVar = CommandType.MARK_NODE_READY


class StartNode(AttemptCommand, frozen=True, kw_only=True):
    """Start an attempt; without a number, the next one."""

    type: ClassVar = CommandType.START_NODE
    worker_id: str | None = None


class ReportNodeProgress(AttemptCommand, frozen=True, kw_only=True):
    """Report the progress of the node."""

    type: ClassVar = CommandType.REPORT_NODE_PROGRESS
    progress: Percent | None = None
    message: str | None = None
    metrics: JsonObject | None = None


class PutNodeWaiting(AttemptCommand, frozen=True, kw_only=True):
    """Make the node wait for a resume from outside."""

    type: ClassVar = CommandType.PUT_NODE_WAITING
    wait_key: str | None = None
    prompt: JsonObject | None = None


class RequestResumeNode(AttemptCommand, frozen=True, kw_only=True):
    """Record the request to resume a waiting node."""

    type: ClassVar = CommandType.REQUEST_RESUME_NODE
    parts: ClassVar = {"requestedBy": Party}
    resume_key: str | None = None
    requested_by: JsonObject | None = None


class ResumeNode(AttemptCommand, frozen=True, kw_only=True):
    """Continue a waiting node; with ``resumeKey``, only if it waits for this key."""

    type: ClassVar = CommandType.RESUME_NODE
    resume_key: str | None = None


class SucceedNode(AttemptCommand, frozen=True, kw_only=True):
    """End the node as succeeded, with its output."""

    type: ClassVar = CommandType.SUCCEED_NODE
    output: JsonObject | None = None


class FailNode(AttemptCommand, frozen=True, kw_only=True):
    """Report that the attempt failed; ``retryable: false`` fails the node even if it has attempts left."""

    type: ClassVar = CommandType.FAIL_NODE
    parts: ClassVar = {"error": ErrorInfo}
    error: JsonObject | None = None
    retryable: Annotated[bool, msgspec.Meta(description="may the node's remaining attempts be used")] = True


Report = ReportNodeProgress | PutNodeWaiting | RequestResumeNode | ResumeNode | SucceedNode | FailNode
AnyNodeCommand = MarkNodeReady | StartNode | Report
Command = CreateExecution | StartExecution | CancelExecution | ArchiveExecution | AnyNodeCommand

COMMANDS: Final[dict[str, type[Command]]] = {
    command.type.value: command
    for command in (
        CreateExecution,
        StartExecution,
        CancelExecution,
        ArchiveExecution,
        MarkNodeReady,
        StartNode,
        ReportNodeProgress,
        PutNodeWaiting,
        RequestResumeNode,
        ResumeNode,
        SucceedNode,
        FailNode,
    )
}


def decode_command(raw: Raw) -> Command:
    """Read one command; a :class:`DecodeError` names the field that is wrong and what is wrong with it."""
    fields = parse_object(raw)
    if "type" not in fields:
        raise DecodeError(DecodeProblem.MISSING_FIELD, "type is required", path="$.type")
    name = fields.pop("type")
    command_type = COMMANDS.get(name) if isinstance(name, str) else None
    if command_type is None:
        raise DecodeError(
            DecodeProblem.UNKNOWN_TYPE,
            f"{name!r:.80} is not one of the 12 commands: {', '.join(COMMANDS)}",
            path="$.type",
        )
    return read_extensible(fields, command_type)


def encode_command(command: Command) -> bytes:
    """Write one command as JSON."""
    return msgspec.json.encode({"type": command.type.value, **plain(command)})
