"""Runs that bring their flow along: a flow.yaml in the request."""

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Form, UploadFile

from pyoco_server.app.submitting import Submission
from pyoco_server.errors import InvalidInputError
from pyoco_server.flows.flow_yaml import read_flow_yaml
from pyoco_server.gateway.bodies import FlowName, Tag
from pyoco_server.gateway.errors import YamlTooLargeError
from pyoco_server.gateway.principal import Asking
from pyoco_server.gateway.services import Services, services

router = APIRouter(prefix="/runs", tags=["runs"])


@router.post("/yaml", summary="Submit a flow.yaml")
async def submit_yaml(
    given: Annotated[Services, Depends(services)],
    asking: Asking,
    workflow: Annotated[UploadFile, Form(description="The flow.yaml.")],
    flow_name: Annotated[FlowName, Form()],
    tag: Annotated[Tag | None, Form()] = None,
) -> dict[str, Any]:
    """The flow travels in the job; of it, the snapshot keeps only the size and the SHA-256."""
    most = given.settings.http.workflow_yaml_max_bytes
    content = await workflow.read(most + 1)
    if len(content) > most:
        raise YamlTooLargeError(f"workflow: more than {most} bytes; make it smaller, or raise the limit")
    text = _text(content)
    model = await asyncio.to_thread(read_flow_yaml, text, name=flow_name, max_bytes=most)
    submission = Submission(
        flow_name=flow_name,
        params=dict(model.defaults),
        tag=tag or given.settings.routing.default_tag,
        workflow_yaml=text,
        tenant_id=asking.tenant_id,
        api_key_id=asking.api_key_id,
    )
    snapshot = await given.submitter.submit(submission, asking.actor)
    return {
        "run_id": snapshot["run_id"],
        "status": snapshot["status"],
        "workflow_yaml_sha256": snapshot["workflow_yaml_sha256"],
        "workflow_yaml_bytes": snapshot["workflow_yaml_bytes"],
    }


def _text(content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidInputError(f"workflow: not UTF-8 text (byte {error.start})") from error
