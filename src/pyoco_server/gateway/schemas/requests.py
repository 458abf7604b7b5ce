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
