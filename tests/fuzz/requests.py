"""Random requests for every route of the gateway, with arbitrary path, query, headers and body."""

import re
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from hypothesis import strategies as st

from tests.fuzz.documents import damaged, deep, mutated, texts, values, written
from tests.gateway.auth.routes import GRAPH, ROWS, YAML, Row
from tests.wheels.building import make_wheel, wheel_name

NODES: Final = ["work", "start", "end", "a/b", "größe"]
GRAPHS: Final = ["fuzzed", "g", "x"]
QUERIES: Final = (
    *(
        "status",
        "flow",
        "tag",
        "updated_after",
        "cursor",
        "workflow_yaml_sha256",
        "held",
        "run_id_prefix",
        "order",
        "limit",
    ),
    *("submitted_after", "include", "after", "at", "scope", "state", "timeout_sec", "since", "include_hidden"),
    "unknown",
)
HEADERS: Final = {
    "Idempotency-Key": ["k-1", "k-2", "", "x" * 300, "\xff"],
    "X-Correlation-Id": ["c-1", "", "\xff\xfe", "x" * 300],
    "Accept-Language": ["ja", "en", "", "de;q=x", "*;q=1.5,,;", "x" * 2_000],
    "Content-Type": [
        "application/json",
        "text/plain",
        "",
        "multipart/form-data",
        "multipart/form-data; boundary=",
        "\xff",
    ],
    "Content-Encoding": ["gzip", "identity", "x"],
    "Last-Event-ID": ["1", "-1", "x", "9" * 40],
    "Accept": ["*/*", "text/event-stream", "x"],
    "If-None-Match": ["*", "x", '"'],
    "Range": ["bytes=0-0", "bytes=-1", "bytes=5-1", "x"],
    "Host": ["localhost", "[::1]", "127.0.0.1:1"],
    "X-Forwarded-For": ["1.2.3.4", "x", ""],
}
BOUNDARY: Final = "fuzzed"


class Request(NamedTuple):
    """One request; ``run_id`` in the path stands for an existing run."""

    route: tuple[str, str]
    path: str
    query: list[tuple[str, str]]
    headers: dict[str, bytes]
    body: bytes


def _quoted(text: str) -> str:
    return quote(text.encode("utf-8", "replace"), safe="") or "%20"


@st.composite
def requests(draw: st.DrawFn) -> Request:
    """Draw a request for any route; about half of its values are valid."""
    route = draw(st.sampled_from(sorted(ROWS)))
    row = ROWS[route]
    names = texts.map(_quoted)
    ids = {
        "run_id": draw(st.just("{run_id}") | names),
        "execution_id": draw(st.just("{execution_id}") | names),
        "node_id": draw(st.sampled_from(NODES).map(quote) | names),
        "graph_id": draw(st.sampled_from(GRAPHS) | names),
        "worker_id": draw(names),
        "sequence": draw(st.sampled_from(["1", "0", "-1", "x", "9" * 30]) | names),
        "wheel_name": draw(st.just(wheel_name()) | names),
        "path": draw(st.sampled_from(["app.js", "../app.py", "..%2f..%2fapp.py", "%00", "a/b"]) | names),
    }
    query = [*(row.query or {}).items()]
    odd = st.tuples(st.sampled_from(QUERIES), texts | st.integers().map(str) | st.floats().map(str))
    query += draw(st.lists(odd, max_size=3))
    kind, body = draw(_bodies(row))
    headers = {"Content-Type": kind.encode()} if kind else {}
    for name in draw(st.lists(st.sampled_from(sorted(HEADERS)), max_size=3)):
        headers[name] = draw(st.sampled_from(HEADERS[name])).encode("latin-1")
    sent = [(name, value.encode("utf-8", "replace").decode()) for name, value in query]
    return Request(route, _filled(route[1], ids), sent, headers, body)


def _filled(path: str, ids: dict[str, str]) -> str:
    return re.sub(r"{(\w+)(:path)?}", lambda match: ids[match[1]], path)


def _bodies(row: Row) -> st.SearchStrategy[tuple[str, bytes]]:
    if row.files is not None:
        return st.tuples(st.just(f"multipart/form-data; boundary={BOUNDARY}"), _forms(row))
    known: Any = row.json if row.json is not None else {}
    sound = GRAPH if known is GRAPH else known
    changed = mutated([sound]) if sound else values
    return st.tuples(
        st.just("application/json"),
        st.just(written(sound)) | changed.map(written) | values.map(written) | st.binary(max_size=100) | deep,
    )


def _forms(row: Row) -> st.SearchStrategy[bytes]:
    parts = [
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode()
        for name, value in (row.form or {"replace": "1", "tags": "a,b"}).items()
    ]
    for field in row.files or {}:
        content = YAML.encode() if field == "workflow" else make_wheel()
        head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{field}"; filename="{wheel_name()}"\r\n\r\n'
        parts.append(head.encode() + content + b"\r\n")
    whole = b"".join(parts) + f"--{BOUNDARY}--\r\n".encode()
    return st.just(whole) | damaged([whole]) | st.binary(max_size=100)
