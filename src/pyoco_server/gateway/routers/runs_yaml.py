"""``POST /runs/yaml``: a run whose flow is a flow.yaml in the request."""

import asyncio
from typing import Annotated

from fastapi import APIRouter, Depends, File, Form, Request, UploadFile

from pyoco_server.app.runs.submit import Submission
from pyoco_server.core.json_codec import parse_object
from pyoco_server.errors import InvalidInputError
from pyoco_server.flows.callables import CallablePolicy
from pyoco_server.flows.limits import RunLimits, check_size
from pyoco_server.flows.model import FlowModel
from pyoco_server.flows.yaml.checks import check_reach, check_submitted
from pyoco_server.flows.yaml.document import read_flow_yaml
from pyoco_server.gateway.errors import YamlClosedError, YamlTooLargeError
from pyoco_server.gateway.principal import PrincipalDep
from pyoco_server.gateway.responses import Json, documented
from pyoco_server.gateway.routers.runs_submit import QUOTAS_REACHED
from pyoco_server.gateway.schemas.parameters import Correlation, IdempotencyKey
from pyoco_server.gateway.schemas.requests import FlowName, Tag
from pyoco_server.gateway.schemas.responses import YamlRunAccepted
from pyoco_server.gateway.services import ServicesDep

router = APIRouter(prefix="/runs", tags=["runs"])
_SHOWN = ("run_id", "status", "workflow_yaml_sha256", "workflow_yaml_bytes")
_ERRORS = (
    "ERR-PYOCO-0002",
    "ERR-PYOCO-0016",
    "ERR-PYOCO-0101",
    "ERR-PYOCO-0105",
    "ERR-PYOCO-0110",
    "ERR-PYOCO-0111",
    "ERR-PYOCO-0112",
    "ERR-PYOCO-0113",
    *QUOTAS_REACHED,
    "ERR-PYOCO-0003",
)


def _route_is_open(services: ServicesDep) -> None:
    """Refuse the request before its form is checked: a flow.yaml that is right would not help."""
    if not services.settings.http.workflow_yaml:
        raise YamlClosedError("this gateway accepts no flow.yaml (PYOCO_WORKFLOW_YAML); submit a flow by its name")


@router.post(
    "/yaml",
    summary="Submit a flow.yaml",
    responses=documented(*_ERRORS, ok=YamlRunAccepted),
    dependencies=[Depends(_route_is_open)],
)
async def submit_yaml(
    request: Request,
    services: ServicesDep,
    principal: PrincipalDep,
    workflow: Annotated[UploadFile, File(description="The flow.yaml.")],
    flow_name: Annotated[FlowName, Form()],
    tag: Annotated[Tag | None, Form()] = None,
    key: IdempotencyKey = None,
    correlation: Correlation = None,
) -> Json:
    """The flow is sent to the worker in the job; the snapshot keeps only its size and SHA-256."""
    if (await request.form()).get("tag") == "":  # FastAPI treats it as missing
        raise InvalidInputError("tag: it is empty; set it, or leave the field out")
    most = services.settings.http.workflow_yaml_max_bytes
    content = await workflow.read(most + 1)
    if len(content) > most:
        raise YamlTooLargeError(f"workflow: more than {most} bytes; make it smaller, or raise the limit")
    text = _text(content)
    policy = CallablePolicy(services.settings.worker.callables)
    limits = services.settings.limits.of_run
    model = await asyncio.to_thread(_model, text, flow_name, most, policy, limits)
    submission = Submission(
        flow_name=flow_name,
        params=parse_object(model.defaults),
        tag=tag or services.settings.routing.default_tag,
        workflow_yaml=text,
        tenant_id=principal.tenant_id,
        api_key_id=principal.api_key_id,
    )
    snapshot = await services.writes.noted(
        services.once.submit(submission, principal.actor, key=key, correlation_id=correlation)
    )
    return Json({name: snapshot[name] for name in _SHOWN})


def _model(text: str, flow_name: str, max_bytes: int, policy: CallablePolicy, limits: RunLimits) -> FlowModel:
    model = read_flow_yaml(text, name=flow_name, max_bytes=max_bytes)
    check_submitted(model, params=model.defaults)
    check_reach(model, policy)
    check_size(model, limits)
    return model


def _text(content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidInputError(f"workflow: not UTF-8 text (byte {error.start})") from error
