"""The catalogue against the specification's tables, which are written out here."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

import pyoco_server
from pyoco_server.app.ports.errors import LogConflictError, UnavailableError
from pyoco_server.errors import InvalidInputError
from pyoco_server.messages import CATALOGUE, Language, body_of, entry_of, error_body

SPECIFIED = {
    # number: message, user action, HTTP status, retry possible
    1: ("稼働確認に失敗しました", "起動/疎通確認", None, True),
    2: ("リクエストが不正です", "入力修正", 422, True),
    3: ("NATSが利用できません", "NATS復旧後に再試行", 503, True),
    4: ("孤児runが残っている可能性があります（best-effort cleanup失敗）", "運用確認", None, True),
    5: ("runが見つかりません", "run_id確認", 404, False),
    6: ("flowが見つかりません", "flow_name/worker配置確認", None, False),
    7: ("実行に失敗しました", "入力/コード/依存を確認", None, True),
    8: ("terminal状態の記録に失敗しました", "NATS復旧後に再試行", None, True),
    9: ("in_progress ACK の送信に失敗しました", "NATS復旧後に再試行", None, True),
    10: ("スナップショットが大きすぎます", "上限設定見直し", None, True),
    11: ("DLQへのpublishに失敗しました（best-effort）", "runスナップショットで確認", None, True),
    12: ("不正なジョブを受信しました", "producer/subject/実装を確認", None, False),
    13: ("ログ出力に失敗しました（best-effort）", "設定/実行環境を確認", None, True),
    14: ("API key が必要です", "API key を付与", 401, True),
    15: ("API key が無効です", "API key を確認/再発行", 403, True),
    16: ("ワークフローファイルが大きすぎます", "ファイルサイズを削減する / 上限設定を見直す", 413, True),
    17: ("一覧クエリが不正です", "クエリ修正", 422, True),
    18: ("CLI引数が不正です（入力形式を確認してください）", "helpと入力例を確認して修正", None, True),
    19: ("workersリクエストが不正です", "入力を修正", 422, True),
    20: ("workerが見つかりません", "worker_id確認", 404, True),
    21: ("cancel要求がタイムアウトしました（best-effort）", "worker状態/タスク実装を確認", None, True),
    22: ("wheelバージョンが不正です（同一/過去バージョンは不可）", "バージョンを上げて再試行", 409, True),
    23: ("wheelが見つかりません", "wheel名を確認", 404, True),
    24: ("wheel同期に失敗しました（best-effort）", "環境確認後に再同期", None, True),
}


def test_the_catalogue_has_every_error_of_the_specification_and_ours_use_other_numbers() -> None:
    numbers = [int(err_id.removeprefix("ERR-PYOCO-")) for err_id in CATALOGUE]
    assert [number for number in numbers if number < 100] == list(SPECIFIED)
    assert numbers == sorted(set(numbers))
    assert all(entry.msg_id.removeprefix("MSG") == err_id.removeprefix("ERR") for err_id, entry in CATALOGUE.items())


@pytest.mark.spec(*(f"004 MSG-PYOCO-{number:04}" for number in SPECIFIED))
@pytest.mark.parametrize("number", SPECIFIED)
def test_an_entry_has_the_texts_of_the_specification(number: int) -> None:
    entry = CATALOGUE[f"ERR-PYOCO-{number:04}"]
    assert (entry.err_id, entry.msg_id) == (f"ERR-PYOCO-{number:04}", f"MSG-PYOCO-{number:04}")
    assert (entry.ja, entry.action_ja, entry.http_status, entry.retryable) == SPECIFIED[number]


@pytest.mark.parametrize("entry", CATALOGUE.values(), ids=CATALOGUE)
def test_english_texts_are_english(entry: msgspec.Struct) -> None:
    fields = msgspec.structs.asdict(entry)
    for text in (fields["en"], fields["action_en"]):
        assert text
        assert text.isascii()


def test_the_catalogue_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        CATALOGUE["ERR-PYOCO-0001"] = CATALOGUE["ERR-PYOCO-0002"]  # type: ignore[index]
    with pytest.raises(AttributeError):
        CATALOGUE["ERR-PYOCO-0001"].ja = "x"  # type: ignore[misc]


def _source() -> Iterator[tuple[Path, ast.Module]]:
    for path in Path(pyoco_server.__path__[0]).rglob("*.py"):
        yield path, ast.parse(path.read_text(encoding="utf-8"))


def _ids(body: list[ast.stmt]) -> dict[str, object]:
    """The ids a class declares."""
    return {
        statement.target.id: statement.value.value
        for statement in body
        if isinstance(statement, ast.AnnAssign)
        and isinstance(statement.target, ast.Name)
        and statement.target.id in {"err_id", "msg_id"}
        and isinstance(statement.value, ast.Constant)
    }


def test_every_class_that_declares_ids_declares_a_pair_of_the_catalogue() -> None:
    pairs = {(entry.err_id, entry.msg_id) for entry in CATALOGUE.values()} | {(None, None)}
    declared = [
        (path, node.name, ids)
        for path, tree in _source()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and (ids := _ids(node.body))
    ]
    assert len(declared) >= 4
    for path, name, ids in declared:
        assert (ids.get("err_id"), ids.get("msg_id")) in pairs, f"{name} in {path}"


def test_every_id_in_the_code_is_in_the_catalogue() -> None:
    known = {*CATALOGUE, *(entry.msg_id for entry in CATALOGUE.values())}
    for path, tree in _source():
        texts = [
            node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)
        ]
        for text in texts:
            assert set(re.findall(r"(?:ERR|MSG)-PYOCO-\d+", text)) <= known, path


def test_an_exception_is_found_by_its_id() -> None:
    assert entry_of(UnavailableError("gone")) is CATALOGUE["ERR-PYOCO-0003"]
    assert entry_of(LogConflictError("run", 3)) is None
    assert entry_of(ValueError("not ours")) is None


def test_an_id_of_the_instance_overrides_that_of_the_class() -> None:
    error = InvalidInputError("no run")
    error.err_id = "ERR-PYOCO-0005"  # type: ignore[misc]
    assert entry_of(error) is CATALOGUE["ERR-PYOCO-0005"]


def test_an_unknown_id_raises_no_second_error() -> None:
    error = InvalidInputError("odd")
    error.err_id = "ERR-PYOCO-9999"  # type: ignore[misc]
    assert entry_of(error) is None


def test_the_body_of_an_error() -> None:
    body = error_body(CATALOGUE["ERR-PYOCO-0005"], Language.JA, details={"run_id": "r1"})
    assert body == {
        "error": {
            "err_id": "ERR-PYOCO-0005",
            "msg_id": "MSG-PYOCO-0005",
            "message": "runが見つかりません",
            "action": "run_id確認",
            "details": {"run_id": "r1"},
        },
        "detail": "runが見つかりません",
    }


def test_the_body_in_english_with_its_own_detail() -> None:
    mistakes = [{"loc": ["body", "flow_name"], "msg": "missing"}]
    body = error_body(CATALOGUE["ERR-PYOCO-0002"], Language.EN, detail=mistakes)
    assert body["error"]["message"] == "the request is not valid"
    assert body["error"]["action"] == "correct the input and send it again"
    assert body["error"]["details"] == {}
    assert body["detail"] == mistakes


def test_the_body_of_an_exception() -> None:
    body = body_of(UnavailableError("no answer within 5 s"), Language.JA)
    assert body["error"]["message"] == "NATSが利用できません"
    assert body["detail"] == "no answer within 5 s"
    assert body_of(UnavailableError(), Language.EN)["detail"] == "NATS is not available"


def test_an_exception_without_an_id_has_its_own_text() -> None:
    assert body_of(LogConflictError("run", 3), Language.JA, details={"after": 3}) == {
        "error": {
            "err_id": None,
            "msg_id": None,
            "message": "the log of 'run' has moved on from position 3",
            "action": None,
            "details": {"after": 3},
        },
        "detail": "the log of 'run' has moved on from position 3",
    }
