"""Write docs/reference/http.md from the gateway's OpenAPI document, or check that it is current."""

import json
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from pyoco_server.gateway.app import create_app
from pyoco_server.gateway.responses import EVERYWHERE
from pyoco_server.messages import CATALOGUE
from tools.json_schema import Schema, fields, written
from tools.pages import REFERENCE, ROOT, code, json_block, run, table

PAGE: Final = REFERENCE / "http.md"
EXAMPLES: Final = ROOT / "tests" / "docs" / "site" / "http_examples.json"
SERVER: Final = "http://127.0.0.1:8000"
COMMON: Final = frozenset({"Accept-Language", "X-Correlation-Id", "Idempotency-Key"})
TITLES: Final = {
    "runs": "Runs",
    "events": "The log of a run",
    "executions": "Executions",
    "graphs": "Graphs",
    "workers": "Workers",
    "dead letters": "Dead letters",
    "wheels": "Wheels",
    "metrics": "Metrics",
    "health": "Health",
}

INTRODUCTION: Final = """\
# HTTP

Written by `make docs` from the OpenAPI document, which a gateway serves at `/openapi.json`. The examples are answers of
a real gateway; a test sends the requests again and compares.

- Bodies are JSON in UTF-8 unless a route says otherwise. Answers may get more fields at any time: ignore what you do
  not know.
- With `PYOCO_HTTP_AUTH_MODE=api_key` every route but `/health*` and the dashboard's files needs a key in `X-API-Key`
  (see [security](../security.md)).
- `Accept-Language: en` or `ja` chooses the language of error messages; without it they are in the server's
  (`PYOCO_LANG`).
- `X-Correlation-Id` names what a request is a part of; it is sent back, and kept in the events the request causes.
- `Idempotency-Key`, on requests that submit or command something: the same request under the same key has its effect
  once. The same key with another request: 409, ERR-PYOCO-0105.
- A 503 has `Retry-After`. The request may have had its effect: the gateway may not know. Send it again with the same
  `Idempotency-Key`.
- `PUT`, `POST`, `PATCH` and `DELETE` are answered when what they did is durable.

Errors have one shape, [ErrorAnswer](#erroranswer); every id and what to do about it is in [errors](../errors.md). Any
request may get these:

"""


class Route(NamedTuple):
    """A method of a path."""

    method: str
    path: str
    operation: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The name that people use."""
        return f"{self.method} {self.path}"


def page() -> str:
    """Return the page."""
    document = create_app(_never_opened).openapi()
    examples: Mapping[str, Any] = json.loads(EXAMPLES.read_text(encoding="utf-8"))
    routes = [
        Route(method.upper(), path, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    schemas = document["components"]["schemas"]
    parts = [INTRODUCTION.rstrip(), _errors_table(EVERYWHERE), "## Overview", _overview(routes)]
    for tag, title in TITLES.items():
        parts.append(f"## {title}")
        for route in routes:
            if tag in route.operation["tags"]:
                parts += _described(route, schemas, examples[route.name])
    parts += ["## Documents", "The objects in bodies and answers.", *_documents(schemas)]
    return "\n\n".join(parts) + "\n"


def _never_opened() -> Any:  # noqa: ANN401 the application is described, not started
    raise RuntimeError("the application is not started")


def _overview(routes: Iterable[Route]) -> str:
    rows = [
        (f"[`{route.name}`](#{_slug(route.name)})", route.operation["summary"])
        for tag in TITLES
        for route in routes
        if tag in route.operation["tags"]
    ]
    return table(("route", "what it does"), rows)


def _described(route: Route, schemas: Mapping[str, Schema], example: Mapping[str, Any]) -> Iterator[str]:
    operation = route.operation
    yield f"### {route.name}"
    yield f"**{operation['summary']}.** {_paragraph(operation.get('description', ''))}".replace("?.**", "?**")
    rows = [*_parameters(operation["parameters"]), *_body(operation.get("requestBody"), schemas)]
    if rows:
        yield table(("name", "in", "type", "required", "meaning"), rows)
    yield table(("answer", "what"), _answers(operation["responses"]))
    yield from _example(route, example)


def _parameters(parameters: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, ...]]:
    for one in parameters:
        if one["name"] not in COMMON:
            schema = {"description": one.get("description", ""), **one["schema"]}
            [field] = fields({"properties": {one["name"]: schema}}, _linked)
            yield f"`{field.name}`", one["in"], _without_null(field.type), _yes(one["required"]), field.description


def _body(body: Mapping[str, Any] | None, schemas: Mapping[str, Schema]) -> Iterator[tuple[str, ...]]:
    if body is None:
        return
    [(kind, content)] = body["content"].items()
    schema = _resolved(content["schema"], schemas)
    where = "body" if kind == "application/json" else "form"
    if "properties" not in schema:
        yield "", where, _without_null(written(schema, _linked)), _yes(body.get("required", False)), ""
    for field in fields(schema, _linked):
        yield f"`{field.name}`", where, _without_null(field.type), _yes(field.required), field.description


def _resolved(schema: Schema, schemas: Mapping[str, Schema]) -> Schema:
    """Return the schema itself, also for a reference or an optional one."""
    alternatives = [one for one in schema.get("anyOf", ()) if one.get("type") != "null"]
    if len(alternatives) == 1:
        return _resolved(alternatives[0], schemas)
    return schemas[str(schema["$ref"]).rpartition("/")[2]] if "$ref" in schema else schema


def _answers(responses: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    for status, answer in sorted(responses.items()):
        contents = answer.get("content", {})
        if status.startswith("2"):
            body = "; ".join(_content(kind, content) for kind, content in contents.items()) or "the file"
            yield status, body
            continue
        ids = [one for content in contents.values() for one in content.get("examples", {})]
        own = [one for one in ids if one not in EVERYWHERE]
        if own:
            yield status, "; ".join(f"`{err_id}` {CATALOGUE[err_id].en}" for err_id in own)
        elif not ids:
            yield status, answer["description"]


def _content(kind: str, content: Mapping[str, Any]) -> str:
    schema = content.get("schema") or {}
    if kind != "application/json":
        return f"`{kind}`"
    return written(schema, _linked) if schema else "object, as in the example"


def _example(route: Route, example: Mapping[str, Any]) -> Iterator[str]:
    request = example["request"]
    implied = "GET" if request is None else "POST"
    words = ["curl"] + ([] if route.method == implied else ["-X", route.method])
    is_form = any("form" in kind for kind in (route.operation.get("requestBody") or {}).get("content", ()))
    if request is not None and is_form:
        for name, value in request.items():
            words += ["-F", f"{name}={value}"]
    elif request is not None:
        words += ["--json", json.dumps(request, ensure_ascii=False)]
    yield f"```sh\n{shlex.join([*words, SERVER + example['url']])}\n```"
    answer = example["answer"]
    shown = answer if isinstance(answer, str) else None
    block = f"```text\n{shown}\n```" if shown is not None else json_block(answer)
    yield f"Answer, {example['status']}:\n\n{block}"


def _documents(schemas: Mapping[str, Schema]) -> Iterator[str]:
    for name, schema in sorted(schemas.items()):
        if name.startswith(("Body_", "HTTPValidationError", "ValidationError")):
            continue
        yield f"### {name}"
        if schema.get("description"):
            yield _paragraph(schema["description"])
        if "enum" in schema:
            yield f"One of {code(schema['enum'])}."
            continue
        rows = [
            (f"`{field.name}`", field.type, _yes(field.required), field.description)
            for field in fields(schema, _linked)
        ]
        yield table(("field", "type", "always there", "meaning"), rows)


def _errors_table(err_ids: Iterable[str]) -> str:
    entries = [CATALOGUE[err_id] for err_id in err_ids]
    return table(("status", "id", "meaning"), ((str(one.http_status), f"`{one.err_id}`", one.en) for one in entries))


def _linked(name: str) -> str:
    return f"[{name}](#{name.lower()})"


def _slug(heading: str) -> str:
    """Return the anchor of a heading, as on the site and in other Markdown viewers."""
    return "".join(letter for letter in heading.lower().replace(" ", "-") if letter.isalnum() or letter in "-_")


def _without_null(text: str) -> str:
    return text.removesuffix(" or null")


def _yes(value: bool) -> str:  # noqa: FBT001 as it stands in the document
    return "yes" if value else ""


def _paragraph(text: str) -> str:
    return " ".join(text.replace("``", "`").split())


if __name__ == "__main__":
    sys.exit(run(__doc__, {PAGE: page}))
