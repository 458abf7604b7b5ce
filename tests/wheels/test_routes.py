"""The routes of the specification, on a real gateway."""

import hashlib
import random
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from packaging.version import Version

from pyoco_server.adapters.jetstream.primitives.names import object_stream
from pyoco_server.app.ports.wheels import WheelEvent
from pyoco_server.gateway.services import Services
from tests.gateway.stand import Stand, check_error
from tests.wheels.building import make_wheel, upload, uploaded, wheel_name
from tests.wheels.conftest import MAX_BYTES
from tests.wheels.test_checking import MALICIOUS

KINDS = [
    "not an archive",
    "parent path",
    "absolute path",
    "link",
    "duplicate",
    "trailing data",
    "other name in the header",
    "more than it says",
    "startup file",
    "no METADATA",
    "no RECORD",
    "other metadata",
    "wrong hash",
    "not listed",
    "bomb",
]
FIELDS = {"name", "size_bytes", "bucket", "nuid", "modified", "sha256_hex", "tags"}


def names(client: httpx.Client) -> set[str]:
    return {wheel["name"] for wheel in client.get("/wheels").json()}


@pytest.mark.spec("004 REQ-0025")
def test_a_wheel_is_uploaded_listed_downloaded_and_deleted(client: httpx.Client, package: str) -> None:
    name, data = wheel_name(package), make_wheel(package, files={f"{package}/data.bin": bytes(600_000)})
    answer = upload(client, name, data, tags="cpu, linux,cpu", replace="true")
    assert answer.status_code == 200, answer.text
    wheel = answer.json()
    assert set(wheel) == FIELDS
    assert wheel["name"] == name
    assert wheel["size_bytes"] == len(data)
    assert wheel["bucket"] == "pyoco_wheels"
    assert wheel["sha256_hex"] == hashlib.sha256(data).hexdigest()
    assert wheel["tags"] == ["cpu", "linux"]
    assert isinstance(wheel["modified"], float)
    assert wheel in client.get("/wheels").json()

    got = client.get(f"/wheels/{name}")
    assert got.status_code == 200
    assert got.content == data
    assert got.headers["content-type"] == "application/octet-stream"
    assert got.headers["content-disposition"] == f'attachment; filename="{name}"'
    assert got.headers["content-length"] == str(len(data))

    assert client.delete(f"/wheels/{name}").json() == {"name": name, "deleted": True}
    assert name not in names(client)
    check_error(client.get(f"/wheels/{name}"), 404, "ERR-PYOCO-0023")
    check_error(client.delete(f"/wheels/{name}"), 404, "ERR-PYOCO-0023")


@pytest.mark.spec("004 REQ-0025", "004 ERR-PYOCO-0023")
@pytest.mark.parametrize("name", ["never-1.0-py3-none-any.whl", "nothing", "..%2Fx.whl", "x%00.whl", "a" * 500])
def test_an_unknown_wheel_is_not_found(client: httpx.Client, name: str) -> None:
    for method in ("GET", "DELETE"):
        answer = client.request(method, f"/wheels/{name}")
        assert answer.status_code == 404
    if "%2F" not in name:
        check_error(client.get(f"/wheels/{name}"), 404, "ERR-PYOCO-0023")


@pytest.mark.spec("004 REQ-0025", "004 ERR-PYOCO-0022")
@pytest.mark.parametrize(
    ("version", "replace"),
    [("1.5", "true"), ("1.5", "false"), ("1.5.0", "true"), ("1.4", "true"), ("1.5rc1", "1"), ("0!1.5", "0")],
)
def test_the_same_or_an_older_version_is_refused(
    client: httpx.Client, package: str, version: str, replace: str
) -> None:
    uploaded(client, package, "1.5")
    before = client.get("/wheels").json()
    answer = upload(client, wheel_name(package, version), make_wheel(package, version), replace=replace)
    error = check_error(answer, 409, "ERR-PYOCO-0022")
    assert error["details"]["newest"] == "1.5"
    assert client.get("/wheels").json() == before


@pytest.mark.spec("004 REQ-0025")
@pytest.mark.parametrize("version", ["1.5.post1", "1.6.dev0", "1.5+local", "1!0.1", "1.10"])
def test_a_newer_version_is_accepted_however_it_is_spelled(client: httpx.Client, package: str, version: str) -> None:
    uploaded(client, package.capitalize(), "1.5")
    uploaded(client, package, version)
    assert {name for name in names(client) if name.lower().startswith(f"{package}-")} == {
        wheel_name(package.capitalize(), "1.5"),
        wheel_name(package, version),
    }


def test_other_platforms_do_not_make_a_version_new(client: httpx.Client, package: str) -> None:
    uploaded(client, package, "1.0")
    answer = upload(client, wheel_name(package, "1.0", "cp311-cp311-linux_x86_64"), make_wheel(package, "1.0"))
    check_error(answer, 409, "ERR-PYOCO-0022")


def test_a_version_that_was_deleted_may_come_again(client: httpx.Client, package: str) -> None:
    first = uploaded(client, package, "1.0")
    client.delete(f"/wheels/{first['name']}")
    second = uploaded(client, package, "1.0")
    assert second["nuid"] != first["nuid"]
    assert client.get(f"/wheels/{first['name']}").content == make_wheel(package, "1.0")


@pytest.mark.spec("004 REQ-0025", "004 ERR-PYOCO-0002")
@pytest.mark.parametrize("kind", KINDS)
def test_a_refused_upload_leaves_nothing_behind(stand: Stand, client: httpx.Client, kind: str) -> None:
    reason, make = MALICIOUS[kind]
    stored = stand.call(_messages)
    error = check_error(upload(client, "demo-1.0-py3-none-any.whl", make()), 422, "ERR-PYOCO-0002")
    assert error["details"]["reason"] == reason
    assert stand.call(_messages) == stored
    assert client.get("/wheels/history", params={"wheel_name": "demo-1.0-py3-none-any.whl"}).json() == []


async def _messages(given: Services) -> int:
    connection: Any = given.store
    info = await connection.js.stream_info(object_stream("pyoco_wheels"))
    count: int = info.state.messages
    return count


@pytest.mark.spec("004 REQ-0025", "004 ERR-PYOCO-0002")
@pytest.mark.parametrize(
    ("files", "form"),
    [
        ([], {"tags": "cpu"}),
        ([("wheel", ("", b"x"))], {}),
        ([("wheel", ("demo.zip", b"x"))], {}),
        ([("other", ("demo-1.0-py3-none-any.whl", b"x"))], {}),
        ([("wheel", ("demo-1.0-py3-none-any.whl", b"x"))] * 2, {}),
        ([("wheel", ("demo-1.0-py3-none-any.whl", make_wheel()))], {"tags": "a.b"}),
        ([("wheel", ("demo-1.0-py3-none-any.whl", make_wheel()))], {"tags": "a b"}),
        ([("wheel", ("demo-1.0-py3-none-any.whl", make_wheel()))], {"tags": ",".join(map(str, range(40)))}),
        ([("wheel", ("demo-1.0-py3-none-any.whl", make_wheel()))], {"replace": "perhaps"}),
    ],
)
def test_a_form_that_is_not_right(
    client: httpx.Client, files: list[tuple[str, tuple[str, bytes]]], form: dict[str, str]
) -> None:
    check_error(client.post("/wheels", files=files or {"x": ("x", b"")}, data=form), 422, "ERR-PYOCO-0002")
    assert wheel_name() not in names(client)


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"{}", "application/json"),
        (b"", "multipart/form-data"),
        (b"--x\r\nnonsense", "multipart/form-data; boundary=x"),
        (
            b"--x\r\nContent-Disposition: form-data; name=wheel; filename=a\r\n\r\nhalf",
            "multipart/form-data; boundary=x",
        ),
    ],
)
def test_what_is_no_form_at_all(client: httpx.Client, content: bytes, kind: str) -> None:
    answer = client.post("/wheels", content=content, headers={"Content-Type": kind})
    check_error(answer, 422, "ERR-PYOCO-0002")


@pytest.mark.spec("004 REQ-0025", "004 ERR-PYOCO-0002")
@pytest.mark.parametrize("more", [1, 1_000_000, 40_000_000])
@pytest.mark.parametrize("declared", [True, False])
def test_an_upload_that_is_too_large(client: httpx.Client, package: str, more: int, declared: bool) -> None:
    body = _form_of(wheel_name(package), bytes(MAX_BYTES + more))
    sent: Any = body if declared else iter([body[at : at + 65_536] for at in range(0, len(body), 65_536)])
    headers = {"Content-Type": "multipart/form-data; boundary=x"}
    answer = client.post("/wheels", content=sent, headers=headers)
    error = check_error(answer, 413, "ERR-PYOCO-0002")
    assert error["details"]["max_bytes"] == MAX_BYTES
    assert wheel_name(package) not in names(client)


def _form_of(name: str, data: bytes) -> bytes:
    head = f'--x\r\nContent-Disposition: form-data; name="wheel"; filename="{name}"\r\n\r\n'
    return head.encode() + data + b"\r\n--x--\r\n"


@pytest.mark.spec("004 REQ-0025")
def test_the_history_says_which_key_did_what(client: httpx.Client, package: str) -> None:
    client.headers["User-Agent"] = "tests/1"
    wheel = uploaded(client, package, tags="cpu", replace="false")
    client.delete(f"/wheels/{wheel['name']}")
    deletion, upload_event = client.get("/wheels/history", params={"wheel_name": wheel["name"]}).json()
    assert upload_event["action"] == "upload"
    assert upload_event["replace"] is False
    assert deletion["action"] == "delete"
    assert deletion["replace"] is None
    for event in (deletion, upload_event):
        assert set(event) == set(WheelEvent.__struct_fields__)
        assert event["wheel_name"] == wheel["name"]
        assert event["tags"] == ["cpu"]
        assert event["size_bytes"] == wheel["size_bytes"]
        assert event["sha256_hex"] == wheel["sha256_hex"]
        assert event["actor"] == {"tenant_id": None, "api_key_id": None}
        assert event["source"] == {
            "remote_addr": "127.0.0.1",
            "x_forwarded_for": None,
            "x_real_ip": None,
            "user_agent": "tests/1",
            "host": client.base_url.netloc.decode(),
            "scheme": "http",
        }
    assert deletion["occurred_at"] >= upload_event["occurred_at"]


def test_the_history_keeps_the_headers_of_proxies(client: httpx.Client, package: str) -> None:
    client.headers.update({"X-Forwarded-For": "10.0.0.1, 10.0.0.9", "X-Real-IP": "1" * 5_000})
    wheel = uploaded(client, package)
    [event] = client.get("/wheels/history", params={"wheel_name": wheel["name"]}).json()
    assert event["source"]["x_forwarded_for"] == "10.0.0.1, 10.0.0.9"
    assert event["source"]["x_real_ip"] == "1" * 512


@pytest.mark.spec("004 REQ-0025")
def test_the_history_is_filtered_and_limited(client: httpx.Client, package: str) -> None:
    for version in ("1", "2", "3"):
        uploaded(client, package, version)
    client.delete(f"/wheels/{wheel_name(package, '2')}")
    newest = client.get("/wheels/history", params={"limit": 2}).json()
    assert [event["action"] for event in newest] == ["delete", "upload"]
    assert newest[1]["wheel_name"] == wheel_name(package, "3")
    deleted = client.get("/wheels/history", params={"action": "delete", "wheel_name": wheel_name(package, "2")}).json()
    assert [event["wheel_name"] for event in deleted] == [wheel_name(package, "2")]


@pytest.mark.spec("004 REQ-0025", "004 ERR-PYOCO-0002")
@pytest.mark.parametrize(
    "query", [{"limit": "0"}, {"limit": "501"}, {"limit": "x"}, {"wheel_name": "x"}, {"action": "look"}]
)
def test_a_history_query_that_is_not_right(client: httpx.Client, query: dict[str, str]) -> None:
    check_error(client.get("/wheels/history", params=query), 422, "ERR-PYOCO-0002")


@pytest.mark.spec("004 REQ-0025", "004 ERR-PYOCO-0022")
def test_of_many_uploads_of_one_version_one_wins(stand: Stand, client: httpx.Client, package: str) -> None:
    before = stand.call(_messages)
    answers = _at_once(stand, [(package, "1.0", f"{number}") for number in range(8)])
    assert sorted(answer.status_code for answer in answers) == [200] + [409] * 7
    [winner] = [answer.json() for answer in answers if answer.status_code == 200]
    assert hashlib.sha256(client.get(f"/wheels/{winner['name']}").content).hexdigest() == winner["sha256_hex"]
    assert stand.call(_messages) == before + 2, "one chunk and one message that announces it"
    assert len(client.get("/wheels/history", params={"wheel_name": winner["name"]}).json()) == 1


@pytest.mark.spec("004 REQ-0025", "004 ERR-PYOCO-0022")
def test_concurrent_uploads_are_accepted_only_in_rising_order(stand: Stand, client: httpx.Client, package: str) -> None:
    versions = ["1.0", "1.1", "1.2", "2.0a1", "2.0", "2.0.post1", "3.0", "10.0"]
    answers = _at_once(stand, [(package, version, "") for version in versions])
    assert {answer.status_code for answer in answers} <= {200, 409}
    accepted = [event["wheel_name"].split("-")[1] for event in reversed(_history(client, package))]
    assert [Version(version) for version in accepted] == sorted(map(Version, accepted))
    assert set(accepted) == {
        version for version, answer in zip(versions, answers, strict=True) if answer.status_code == 200
    }
    assert "10.0" in accepted


def _history(client: httpx.Client, package: str) -> list[dict[str, Any]]:
    """By when the wheels were there."""
    wheels = {wheel["name"]: wheel["modified"] for wheel in client.get("/wheels").json()}
    found = client.get("/wheels/history", params={"limit": 500}).json()
    ours = [event for event in found if event["wheel_name"].startswith(f"{package}-")]
    return sorted(ours, key=lambda event: -wheels[event["wheel_name"]])


def _at_once(stand: Stand, wheels: list[tuple[str, str, str]]) -> list[httpx.Response]:
    def one(given: tuple[str, str, str]) -> httpx.Response:
        package, version, content = given
        data = make_wheel(package, version, {f"{package}/__init__.py": content})
        with stand.client() as client:
            return upload(client, wheel_name(package, version), data)

    with ThreadPoolExecutor(len(wheels)) as pool:
        return list(pool.map(one, wheels))


def test_foreign_objects_in_the_bucket_do_no_harm(stand: Stand, client: httpx.Client, package: str) -> None:
    async def put(given: Services) -> None:
        connection: Any = given.store
        tool = await connection.js.object_store("pyoco_wheels")
        await tool.put(f"{package}.txt", b"no wheel")
        await tool.put(wheel_name(package, "9.0"), make_wheel(package, "9.0"))
        await connection.js.publish("$O.pyoco_wheels.M.bm9uc2Vuc2U=", b"nonsense")

    stand.call(put)
    [theirs] = [wheel for wheel in client.get("/wheels").json() if wheel["name"].startswith(package)]
    assert theirs["name"] == wheel_name(package, "9.0")
    assert theirs["tags"] == []
    assert client.get(f"/wheels/{theirs['name']}").content == make_wheel(package, "9.0")
    check_error(upload(client, wheel_name(package, "8.0"), make_wheel(package, "8.0")), 409, "ERR-PYOCO-0022")
    assert client.delete(f"/wheels/{theirs['name']}").status_code == 200
    assert client.get("/wheels/history", params={"wheel_name": theirs["name"]}).json()[0]["action"] == "delete"


@pytest.mark.spec("004 §付録E")
def test_the_usual_tools_see_a_wheel_and_its_tags(stand: Stand, client: httpx.Client, package: str) -> None:
    wheel = uploaded(client, package, tags="cpu,linux")

    async def look(given: Services) -> Any:
        connection: Any = given.store
        return await (await connection.js.object_store("pyoco_wheels")).get(wheel["name"])

    found = stand.call(look)
    assert found.data == make_wheel(package)
    assert found.info.nuid == wheel["nuid"]
    assert found.info.headers == {"x-pyoco-wheel-tags": ["cpu,linux"]}


def test_a_wheel_with_a_missing_chunk_is_never_returned_as_complete(
    stand: Stand, client: httpx.Client, package: str
) -> None:
    data = make_wheel(package, files={f"{package}/data.bin": random.Random(1).randbytes(1_500_000)})
    wheel = upload(client, wheel_name(package), data).json()

    async def damage(given: Services) -> None:
        connection: Any = given.store
        last = await connection.js.get_last_msg("OBJ_pyoco_wheels", f"$O.pyoco_wheels.C.{wheel['nuid']}")
        await connection.js.delete_msg("OBJ_pyoco_wheels", last.seq)

    stand.call(damage)
    with pytest.raises(httpx.RemoteProtocolError):
        client.get(f"/wheels/{wheel['name']}")


def test_a_history_that_was_not_written_is_found_with_the_wheels(
    stand: Stand, client: httpx.Client, package: str
) -> None:
    wheel = uploaded(client, package)

    async def forget(given: Services) -> None:
        connection: Any = given.store
        await connection.js.purge_stream("KV_pyoco_wheel_history")

    stand.call(forget)
    client.delete(f"/wheels/{wheel['name']}")
    found = client.get("/wheels/history", params={"wheel_name": wheel["name"]}).json()
    assert [event["action"] for event in found] == ["delete", "upload"]
