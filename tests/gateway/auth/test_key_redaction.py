"""A key in an unexpected place does not get into the log."""

import io
import json
import secrets
import subprocess
from pathlib import Path

import httpx
import pytest

from pyoco_server.app.api_keys.format import key_text, new_key_id
from pyoco_server.logs.formats import JsonFormatter, TextFormatter
from tests.adapters.real_nats import NatsServer
from tests.cli.serving import clean_environment, command, free_port, serving
from tests.gateway.auth.world import PEPPER
from tests.logs.log_lines import logger_into

SECRET = "0123456789abcdef" * 4
KEY_ID = "k00112233445566aa"
KEY = f"pyoco_{KEY_ID}_{SECRET}"


def test_this_is_what_keys_look_like() -> None:
    """The log knows keys by their form; this fails when only the form changes."""
    text = key_text(new_key_id(secrets.token_bytes(8)), secrets.token_bytes(32))
    assert [part.isalnum() for part in text.split("_")] == [part.isalnum() for part in KEY.split("_")]
    assert list(map(len, text.split("_"))) == list(map(len, KEY.split("_")))
    assert text.startswith("pyoco_k")


@pytest.mark.parametrize("formatter", [JsonFormatter, TextFormatter])
@pytest.mark.parametrize(
    "text",
    [
        KEY,
        f"GET /runs/{KEY}/watch",
        f"b'{KEY}'",
        f"before{KEY}behind",
        f"two of them: {KEY},{KEY}",
        f"cut off: {KEY[:-20]}",
        f"{KEY}\n{KEY}",
        f"x={KEY}",
    ],
)
def test_only_the_id_of_a_key_is_logged(text: str, formatter: type[JsonFormatter]) -> None:
    stream = io.StringIO()
    with logger_into(stream, formatter) as logger:
        logger.error(
            text,
            exc_info=LookupError(text),
            extra={"reason": text, "nested": {text: [text.encode()]}},
            stack_info=True,
        )
        logger.error("%s and %r", text, (text,))
        logger.error("too few: %d", text)
    assert SECRET[:20] not in stream.getvalue()
    assert f"{KEY_ID}_***" in stream.getvalue()


def test_a_gateway_that_is_sent_keys_everywhere_logs_none(
    auth_nats: NatsServer, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    port = free_port()
    variables = {
        "PYOCO_HTTP_AUTH_MODE": "api_key",
        "PYOCO_AUTH_PEPPER": PEPPER,
        "PYOCO_LOG_LEVEL": "DEBUG",
        "PYOCO_NATS_URL": auth_nats.url,
        "PYOCO_DATA_DIR": str(tmp_path),
        "PYOCO_LOAD_DOTENV": "0",
    }
    good = _created(variables, tmp_path)
    with serving(tmp_path, "up", "--port", str(port), port=port, **variables) as served:
        for key in (good, KEY):
            with httpx.Client(base_url=served.url, headers={"X-API-Key": key}, timeout=20) as client:
                answers = [_send_everywhere(client, key)]
                answers.append(client.get("/runs", headers={"X-API-Key": key[:-1] + "g"}).text)
        code, logged = served.stop()
    assert code == 0, logged
    assert "request_refused" in logged
    for key in (good, KEY):
        secret = key.rpartition("_")[2]
        assert secret[:24] not in logged
    assert PEPPER not in logged
    assert good.rpartition("_")[2] not in capfd.readouterr().err


def _created(variables: dict[str, str], directory: Path) -> str:
    scopes = ["--scope", "runs", "--scope", "operate", "--scope", "wheels"]
    done = subprocess.run(  # noqa: S603 our own command
        command("keys", "create", "--tenant", "acme", *scopes, "--json"),
        cwd=directory,
        env=clean_environment(**variables),
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    text: str = json.loads(done.stdout)["api_key"]
    assert text not in done.stderr
    return text


def _send_everywhere(client: httpx.Client, key: str) -> str:
    """In addresses, headers, forms and bodies of every kind, right and wrong."""
    answers = [
        client.get(f"/runs/{key}"),
        client.get(f"/runs/{key}/watch", params={"timeout_sec": key}),
        client.get("/runs", params={"cursor": key, "api_key": key, "tag": key}),
        client.get("/dlq", params={"limit": key}),
        client.patch(f"/workers/{key}", json={"hidden": key}),
        client.post("/runs", json={"flow_name": key, "tag": key, "params": {"key": key}}),
        client.post("/runs", json={"flow_name": "f", key: key}),
        client.post("/runs", content=f"{{{key}", headers={"Content-Type": "application/json"}),
        client.post("/runs", json={"flow_name": "f"}, headers={"Idempotency-Key": key, "X-Correlation-Id": key}),
        client.post("/runs/yaml", data={"flow_name": key}, files={"workflow": (key, f"{key}: [".encode(), key)}),
        client.post("/wheels", files={"wheel": (f"{key}.whl", key.encode())}, data={"tags": key}),
        client.post("/wheels", content=key, headers={"Content-Type": f"multipart/form-data; boundary={key}"}),
        client.put(f"/graphs/{key}", json={"nodes": key}),
        client.post(f"/executions/{key}/nodes/{key}/fail", json={"error": {"code": key, "message": key}}),
        client.delete(f"/wheels/{key}.whl"),
        client.request(key[:20], "/runs"),
    ]
    assert all(answer.status_code < 500 for answer in answers), [answer.status_code for answer in answers]
    return "".join(answer.text for answer in answers)
