"""What requests may say: checked here, before any use case sees it."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

Tag = Annotated[
    str,
    Field(
        pattern=r"^[A-Za-z0-9_-]+$", max_length=64, description="Letters, digits, '_' and '-'.", examples=["default"]
    ),
]
FlowName = Annotated[str, Field(min_length=1, max_length=200, examples=["hello"])]


class SubmitRun(BaseModel):
    """A run somebody wants."""

    model_config = ConfigDict(strict=True)

    flow_name: FlowName
    params: Annotated[dict[str, Any], Field(description="The flow's parameters.", examples=[{"name": "Ada"}])] = {}
    tag: Tag | None = None
    tags: Annotated[list[Annotated[str, Field(max_length=64)]], Field(max_length=32)] | None = None


class SubmitBatch(BaseModel):
    """Many runs at once, each with its own result."""

    runs: Annotated[list[SubmitRun], Field(min_length=1, max_length=1_000)]


class CancelRun(BaseModel):
    """Why a run is cancelled; all of it may be left out."""

    reason: Annotated[str, Field(max_length=2_000)] | None = None


class CancelRuns(CancelRun):
    """Which runs to cancel: by id, or all that fit the filter and have not ended."""

    run_ids: Annotated[list[str], Field(max_length=1_000)] | None = None
    status: Annotated[str, Field(pattern="^(PENDING|RUNNING)$")] | None = None
    flow: str | None = None
    tag: str | None = None


class ResumeNode(BaseModel):
    """What a waiting node goes on with."""

    input: Annotated[Any, Field(description="Becomes the wait's result.")] = None
    resume_key: str | None = None


class PatchWorker(BaseModel):
    """What an operator may change of a worker."""

    model_config = ConfigDict(strict=True)

    hidden: bool
