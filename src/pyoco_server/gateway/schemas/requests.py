"""The bodies of requests, validated before any use case sees them."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, AliasChoices, BaseModel, ConfigDict, Field

from pyoco_server import identifiers
from pyoco_server.identifiers import Rule


def _by(rule: Rule) -> AfterValidator:
    """Check a text by a rule of the table, with its error text."""

    def check(text: str) -> str:
        if not rule.fits(text):
            raise ValueError(rule.problem(text))
        return text

    return AfterValidator(check)


Tag = Annotated[
    str,
    _by(identifiers.TAG),
    Field(
        description="Which workers: letters, digits, '_' and '-'.",
        examples=["default"],
        json_schema_extra=identifiers.TAG.json_schema,
    ),
]
Label = Annotated[
    str, _by(identifiers.LABEL), Field(examples=["nightly"], json_schema_extra=identifiers.LABEL.json_schema)
]
FlowName = Annotated[
    str,
    _by(identifiers.FLOW_NAME),
    Field(
        description="The flow's name as the worker knows it: any text without control characters that is not blank.",
        examples=["hello"],
        json_schema_extra=identifiers.FLOW_NAME.json_schema,
    ),
]
LONGEST_REASON = 2_000
Reason = Annotated[str, Field(max_length=LONGEST_REASON, examples=["no longer needed"])]


class _Strict(BaseModel):
    """Takes values of the right type only; unknown fields are ignored."""

    model_config = ConfigDict(strict=True)


class SubmitRun(_Strict):
    """A run to submit."""

    flow_name: FlowName
    params: Annotated[
        dict[str, Any] | None, Field(description="The flow's parameters.", examples=[{"name": "Ada"}])
    ] = None
    params_kind: Annotated[
        Literal["json", "tagged"] | None,
        Field(description="How `params` are written: as they are, or with tags for types JSON lacks."),
    ] = None
    tag: Annotated[Tag | None, Field(description="Which workers; PYOCO_DEFAULT_TAG unless given.")] = None
    tags: Annotated[
        list[Label] | None, Field(max_length=32, description="Labels to search by; the tag alone unless given.")
    ] = None


class SubmitBatch(_Strict):
    """Many runs at once. Entries are validated one by one, as each has its own result."""

    runs: Annotated[
        list[Any],
        Field(
            min_length=1,
            max_length=1_000,
            description="Each as for one run.",
            json_schema_extra={"items": {"$ref": "#/components/schemas/SubmitRun"}},
        ),
    ]


class CancelRun(_Strict):
    """Why a run is cancelled; the body may be left out."""

    reason: Reason | None = None


class CancelRuns(CancelRun):
    """Which runs to cancel: by id, or all that fit the filter and have not ended."""

    run_ids: Annotated[
        list[Annotated[str, Field(max_length=identifiers.RUN_ID.longest)]] | None, Field(max_length=1_000)
    ] = None
    status: Literal["PENDING", "RUNNING"] | None = None
    flow: FlowName | None = None
    tag: Tag | None = None


NodeNames = Annotated[list[Annotated[str, Field(min_length=1, max_length=1_000)]], Field(max_length=1_000)]


class _Redrive(_Strict):
    """What of an ended run is repeated. A redrive starts work, so an unknown field is an error, not ignored."""

    model_config = ConfigDict(strict=True, extra="forbid")

    from_: Annotated[
        Literal["failed", "start"] | Annotated[NodeNames, Field(min_length=1)],
        Field(
            alias="from",
            description="`failed`: what did not succeed, and everything behind it. `start`: everything. Or also nodes, "
            "or tasks, of these names and everything behind them.",
        ),
    ] = "failed"
    reason: Annotated[Reason | None, Field(description="Kept in the new run's log.")] = None
    dry_run: Annotated[bool, Field(description="Only return the plan.")] = False


class RedriveRun(_Redrive):
    """What of one ended run is repeated; the body may be left out."""

    params: Annotated[
        dict[str, Any] | None, Field(description="Parameters that replace those of the old run; the others stay.")
    ] = None
    params_kind: Annotated[
        Literal["json", "tagged"] | None,
        Field(description="How `params` are written: as they are, or with tags for types JSON lacks."),
    ] = None
    tag: Annotated[Tag | None, Field(description="Which workers; those of the old run unless given.")] = None
    ask_again: Annotated[NodeNames, Field(description="Waits whose answers are not kept.")] = []


class RedriveFilter(_Strict):
    """Which ended runs; every field that is given must fit."""

    model_config = ConfigDict(strict=True, extra="forbid")

    status: Annotated[Literal["FAILED", "COMPLETED", "CANCELLED"] | None, Field(description="FAILED unless given.")] = (
        None
    )
    flow: FlowName | None = None
    tag: Tag | None = None
    error_code: Annotated[str | None, Field(description="`error_code` of the run.", examples=["ConnectionError"])] = (
        None
    )
    ended_after: Annotated[float | None, Field(allow_inf_nan=False, description="Unix seconds.")] = None
    ended_before: Annotated[float | None, Field(allow_inf_nan=False, description="Unix seconds.")] = None


class RedriveRuns(_Redrive):
    """Which runs to redrive, and how fast. Each run is redriven once, however often the request is sent."""

    filter: RedriveFilter
    per_sec: Annotated[float, Field(gt=0, le=10_000, description="How many runs begin in a second at most.")] = 40.0
    limit: Annotated[int, Field(ge=1, le=1_000, description="How many runs are redriven by this request at most.")] = (
        100
    )
    cursor: Annotated[str | None, Field(description="`next_cursor` of the answer before.")] = None


class ResumeWait(_Strict):
    """The answer to a wait. A resume cannot be undone, so an unknown field is an error, not ignored."""

    model_config = ConfigDict(strict=True, extra="forbid")

    input: Annotated[Any, Field(description="Becomes the wait's result.", examples=[{"approved": True}])] = None
    input_kind: Annotated[
        Literal["json", "tagged"] | None,
        Field(description="How `input` is written: as it is, or with tags for types JSON lacks."),
    ] = None
    resume_key: Annotated[
        str | None,
        Field(
            validation_alias=AliasChoices("resumeKey", "resume_key"),
            description="If given, the key the node must be waiting for; `resume_key` is understood, too.",
            examples=["approval"],
        ),
    ] = None


class PatchWorker(_Strict):
    """What an operator can change of a worker."""

    hidden: Annotated[bool, Field(description="Whether the list leaves it out.")]
