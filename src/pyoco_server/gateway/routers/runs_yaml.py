"""Runs that bring their flow along: a flow.yaml in the request."""

import asyncio
from typing import Annotated

from fastapi import APIRouter, File, Form, Request, UploadFile

from pyoco_server.app.submitting import Submission
from pyoco_server.core.wire import parse_object
from pyoco_server.errors import InvalidInputError
from pyoco_server.flows.flow_yaml import read_flow_yaml
from pyoco_server.flows.model import FlowModel
from pyoco_server.flows.yaml_checks import check_submitted
from pyoco_server.gateway.answers import Json, documented
from pyoco_server.gateway.bodies import FlowName, Tag
from pyoco_server.gateway.documents import YamlRunAccepted
from pyoco_server.gateway.errors import YamlTooLargeError
from pyoco_server.gateway.headers import Correlation, IdempotencyKey
from pyoco_server.gateway.principal import Asking
from pyoco_server.gateway.services import Given

router = APIRouter(prefix="/runs", tags=["runs"])
_TOLD = ("run_id", "status", "workflow_yaml_sha256", "workflow_yaml_bytes")
_ERRORS = ("ERR-PYOCO-0002", "ERR-PYOCO-0016", "ERR-PYOCO-0101", "ERR-PYOCO-0105", "ERR-PYOCO-0003")


@router.post("/yaml", summary="Submit a flow.yaml", responses=documented(*_ERRORS, ok=YamlRunAccepted))
async def submit_yaml(
    request: Request,
    given: Given,
    asking: Asking,
    workflow: Annotated[UploadFile, File(description="The flow.yaml.")],
    flow_name: Annotated[FlowName, Form()],
    tag: Annotated[Tag | None, Form()] = None,
    key: IdempotencyKey = None,
    correlation: Correlation = None,
) -> Json:
    """The flow travels in the job; of it, the snapshot keeps only the size and the SHA-256."""
    if (await request.form()).get("tag") == "":  # which the framework takes for none
        raise InvalidInputError("tag: it is empty; name one, or leave the field out")
    most = given.settings.http.workflow_yaml_max_bytes
    content = await workflow.read(most + 1)
    if len(content) > most:
        raise YamlTooLargeError(f"workflow: more than {most} bytes; make it smaller, or raise the limit")
    text = _text(content)
    model = await asyncio.to_thread(_model, text, flow_name, most)
    submission = Submission(
        flow_name=flow_name,
        params=parse_object(model.defaults),
        tag=tag or given.settings.routing.default_tag,
        workflow_yaml=text,
        tenant_id=asking.tenant_id,
        api_key_id=asking.api_key_id,
    )
    snapshot = await given.writes.noted(
        given.once.submit(submission, asking.actor, key=key, correlation_id=correlation)
    )
    return Json({name: snapshot[name] for name in _TOLD})


def _model(text: str, flow_name: str, max_bytes: int) -> FlowModel:
    model = read_flow_yaml(text, name=flow_name, max_bytes=max_bytes)
    check_submitted(model, params=model.defaults)
    return model


def _text(content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidInputError(f"workflow: not UTF-8 text (byte {error.start})") from error
