"""``GET /docs``: the OpenAPI document as one page, without scripts and without anything from other hosts."""

import base64
import hashlib
import html
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from fastapi import APIRouter, Request, Response

router = APIRouter(include_in_schema=False)
_STYLE: Final = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #1c2330; }
details { border: 1px solid #c8cfda; border-radius: 4px; margin: .4rem 0; padding: .4rem .8rem; }
summary { cursor: pointer; }
code, pre { font: 14px/1.4 ui-monospace, monospace; }
pre { background: #f2f4f8; padding: .6rem; overflow-x: auto; }
table { border-collapse: collapse; width: 100%; }
td, th { border-top: 1px solid #c8cfda; padding: .3rem .5rem; text-align: left; vertical-align: top; }
.method { display: inline-block; min-width: 4.5rem; font-weight: 700; }
"""
_POLICY: Final = (
    f"default-src 'none'; style-src 'sha256-{base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()}'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_METHODS: Final = ("get", "post", "put", "patch", "delete")
_REFERENCE: Final = re.compile(r"&quot;#/components/schemas/(\w+)&quot;")


@router.api_route("/docs", methods=["GET", "HEAD"], summary="The routes, as a page")
async def docs(request: Request) -> Response:
    """Describe every route, with its parameters, bodies and answers."""
    page = _page(request.app.openapi())
    return Response(page, media_type="text/html", headers={"Content-Security-Policy": _POLICY})


def _page(document: Mapping[str, Any]) -> str:
    title = f"{_text(document['info']['title'])} {_text(document['info']['version'])}"
    operations = "\n".join(_operations(document["paths"]))
    schemas = "\n".join(_schemas(document.get("components", {}).get("schemas", {})))
    return (
        f'<!doctype html>\n<html lang="en">\n<head><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head>\n<body>\n<h1>{title}</h1>\n'
        f"<p>{_text(document['info'].get('description', ''))} For Swagger UI and other tools: "
        f'<a href="/openapi.json">openapi.json</a>.</p>\n{operations}\n<h2>Schemas</h2>\n{schemas}\n</body>\n</html>\n'
    )


def _operations(paths: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Yield the operations, with a heading above those of each tag."""
    by_tag: dict[str, list[str]] = {}
    for path, item in paths.items():
        for method in _METHODS:
            if method in item:
                tag = (item[method].get("tags") or ["other"])[0]
                by_tag.setdefault(tag, []).append(_operation(method, path, item[method]))
    for tag, operations in by_tag.items():
        yield f"<h2>{_text(tag)}</h2>"
        yield from operations


def _operation(method: str, path: str, operation: Mapping[str, Any]) -> str:
    parts = [
        (
            f'<details><summary><span class="method">{method.upper()}</span> <code>{_text(path)}</code> '
            f"{_text(operation.get('summary', ''))}</summary>"
        ),
        f"<p>{_text(operation.get('description', ''))}</p>",
    ]
    if operation.get("parameters"):
        parts.append(_table(("parameter", "in", "schema", "meaning"), map(_parameter, operation["parameters"])))
    for kind, content in operation.get("requestBody", {}).get("content", {}).items():
        parts.append(f"<p>Body, <code>{_text(kind)}</code>:</p><pre>{_json(content.get('schema', {}))}</pre>")
    rows = (
        (f"<code>{_text(status)}</code>", _text(answer.get("description", "")), ", ".join(_answered_with(answer)))
        for status, answer in operation["responses"].items()
    )
    return "\n".join([*parts, _table(("status", "answer", "schema"), rows), "</details>"])


def _parameter(one: Mapping[str, Any]) -> tuple[str, ...]:
    place = f"{_text(one['in'])}, required" if one.get("required") else _text(one["in"])
    return f"<code>{_text(one['name'])}</code>", place, _json(one.get("schema", {})), _text(one.get("description", ""))


def _answered_with(answer: Mapping[str, Any]) -> Iterator[str]:
    for kind, content in answer.get("content", {}).items():
        yield f"<code>{_text(kind)}</code> {_json(content['schema']) if content.get('schema') else ''}"


def _schemas(schemas: Mapping[str, Any]) -> Iterator[str]:
    for name, schema in schemas.items():
        shown = _text(name)
        yield f'<details id="{shown}"><summary><code>{shown}</code></summary><pre>{_json(schema)}</pre></details>'


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    cells = "".join(f"<th>{name}</th>" for name in head)
    lines = ("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><tr>{cells}</tr>{''.join(lines)}</table>"


def _json(schema: Any) -> str:  # noqa: ANN401 a schema, or a part of one
    """Return a schema as text, whose references lead to the schemas below."""
    written = _text(json.dumps(schema, ensure_ascii=False, indent=1))
    linked = _REFERENCE.sub(r'<a href="#\1">\1</a>', written)
    return f"<code>{linked}</code>"


def _text(value: object) -> str:
    return html.escape(str(value))
