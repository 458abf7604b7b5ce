"""Every error that the platform reports, as data.

The Japanese texts are the specification's, to the letter, from its tables of messages and errors. The English ones
use the specification's English words where it has them (``run not found``), and are ours otherwise. One action is taken
from REQ-0018 instead: for ERR-PYOCO-0016 the table of errors has a cause in its place.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import msgspec

from pyoco_server.messages.language import Language


class CatalogueEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of error: what it is called, what is said about it, and what can be done."""

    err_id: str
    msg_id: str
    ja: str
    en: str
    action_ja: str
    action_en: str
    http_status: int | None = None
    """The status HTTP answers with unless a route says otherwise; None if it is never an answer."""
    retryable: bool
    """Can trying again help, once the action was taken? If not, the same request fails for ever."""

    def message(self, language: Language) -> str:
        """What happened."""
        return self.ja if language is Language.JA else self.en

    def action(self, language: Language) -> str:
        """What the reader can do about it."""
        return self.action_ja if language is Language.JA else self.action_en


_ENTRIES: Final = (
    CatalogueEntry(
        err_id="ERR-PYOCO-0001",
        msg_id="MSG-PYOCO-0001",
        ja="稼働確認に失敗しました",
        en="the health check failed",
        action_ja="起動/疎通確認",
        action_en="check that the gateway is running and can be reached",
        retryable=True,
    ),
    CatalogueEntry(
        err_id="ERR-PYOCO-0002",
        msg_id="MSG-PYOCO-0002",
        ja="リクエストが不正です",
        en="the request is not valid",
        action_ja="入力修正",
        action_en="correct the input and send it again",
        http_status=422,
        retryable=True,
    ),
    CatalogueEntry(
        err_id="ERR-PYOCO-0003",
        msg_id="MSG-PYOCO-0003",
        ja="NATSが利用できません",
        en="NATS is not available",
        action_ja="NATS復旧後に再試行",
        action_en="try again once NATS is back",
        http_status=503,
        retryable=True,
    ),
    CatalogueEntry(
        err_id="ERR-PYOCO-0004",
        msg_id="MSG-PYOCO-0004",
        ja="孤児runが残っている可能性があります（best-effort cleanup失敗）",
        en="an orphaned run may have been left behind (clean-up failed, best effort)",
        action_ja="運用確認",
        action_en="look at the run and remove it if it is an orphan",
        retryable=True,
    ),
    CatalogueEntry(
        err_id="ERR-PYOCO-0005",
        msg_id="MSG-PYOCO-0005",
        ja="runが見つかりません",
        en="run not found",
        action_ja="run_id確認",
        action_en="check the run_id",
        http_status=404,
        retryable=False,
    ),
    CatalogueEntry(
        err_id="ERR-PYOCO-0006",
        msg_id="MSG-PYOCO-0006",
        ja="flowが見つかりません",
        en="flow not found",
        action_ja="flow_name/worker配置確認",
        action_en="check the flow_name and which workers have the flow",
        retryable=False,
    ),
    CatalogueEntry(
        err_id="ERR-PYOCO-0007",
        msg_id="MSG-PYOCO-0007",
        ja="実行に失敗しました",
        en="the run failed",
        action_ja="入力/コード/依存を確認",
        action_en="check the input, the code and its dependencies, then submit again",
        retryable=True,
    ),
    CatalogueEntry(
        err_id="ERR-PYOCO-0008",
        msg_id="MSG-PYOCO-0008",
        ja="terminal状態の記録に失敗しました",
        en="the final state could not be recorded",
        action_ja="NATS復旧後に再試行",
        action_en="nothing: the job is delivered again once NATS is back",
        retryable=True,
    ),
    CatalogueEntry(
        err_id="ERR-PYOCO-0009",
        msg_id="MSG-PYOCO-0009",
        ja="in_progress ACK の送信に失敗しました",
        en="the in_progress ACK for a job could not be sent to the queue",
        action_ja="NATS復旧後に再試行",
        action_en="check the connection to NATS; it is tried again",
        retryable=True,
    ),
    CatalogueEntry(
        err_id="ERR-PYOCO-0010",
        msg_id="MSG-PYOCO-0010",
        ja="スナップショットが大きすぎます",
        en="the snapshot is too large",
        action_ja="上限設定見直し",
        action_en="reconsider the limit (PYOCO_MAX_RUN_SNAPSHOT_BYTES)",
        retryable=True,
    ),
    CatalogueEntry(
        err_id="ERR-PYOCO-0011",
        msg_id="MSG-PYOCO-0011",
        ja="DLQへのpublishに失敗しました（best-effort）",
        en="the dead letter could not be published (best effort)",
        action_ja="runスナップショットで確認",
        action_en="look for the cause in the run's snapshot",
        retryable=True,
    ),
    CatalogueEntry(
        err_id="ERR-PYOCO-0012",
        msg_id="MSG-PYOCO-0012",
        ja="不正なジョブを受信しました",
        en="a job that is not valid was received",
        action_ja="producer/subject/実装を確認",
        action_en="check who published the job, on which subject, and how it is made",
        retryable=False,
    ),
    CatalogueEntry(
        err_id="ERR-PYOCO-0013",
        msg_id="MSG-PYOCO-0013",
        ja="ログ出力に失敗しました（best-effort）",
        en="logging does not work as configured (best effort)",
        action_ja="設定/実行環境を確認",
        action_en="check the log settings and where the log goes",
        retryable=True,
    ),
    CatalogueEntry(
        err_id="ERR-PYOCO-0014",
        msg_id="MSG-PYOCO-0014",
        ja="API key が必要です",
        en="an API key is required",
        action_ja="API key を付与",
        action_en="send an API key",
        http_status=401,
        retryable=True,
    ),
    CatalogueEntry(
        err_id="ERR-PYOCO-0015",
        msg_id="MSG-PYOCO-0015",
        ja="API key が無効です",
        en="the API key is not valid",
        action_ja="API key を確認/再発行",
        action_en="check the API key, or have a new one issued",
        http_status=403,
        retryable=True,
    ),
    CatalogueEntry(
        err_id="ERR-PYOCO-0016",
        msg_id="MSG-PYOCO-0016",
        ja="ワークフローファイルが大きすぎます",
        en="the workflow file is too large",
        action_ja="ファイルサイズを削減する / 上限設定を見直す",
        action_en="make the file smaller, or reconsider the limit (PYOCO_WORKFLOW_YAML_MAX_BYTES)",
        http_status=413,
        retryable=True,
    ),
    CatalogueEntry(
        err_id="ERR-PYOCO-0017",
        msg_id="MSG-PYOCO-0017",
        ja="一覧クエリが不正です",
        en="the query for the list is not valid",
        action_ja="クエリ修正",
        action_en="correct the query",
        http_status=422,
        retryable=True,
    ),
    CatalogueEntry(
        err_id="ERR-PYOCO-0018",
        msg_id="MSG-PYOCO-0018",
        ja="CLI引数が不正です（入力形式を確認してください）",
        en="the command line is not valid (check what was given)",
        action_ja="helpと入力例を確認して修正",
        action_en="correct it; --help and the example show how",
        retryable=True,
    ),
    CatalogueEntry(
        err_id="ERR-PYOCO-0019",
        msg_id="MSG-PYOCO-0019",
        ja="workersリクエストが不正です",
        en="the request about workers is not valid",
        action_ja="入力を修正",
        action_en="correct the input",
        http_status=422,
        retryable=True,
    ),
    CatalogueEntry(
        err_id="ERR-PYOCO-0020",
        msg_id="MSG-PYOCO-0020",
        ja="workerが見つかりません",
        en="worker not found",
        action_ja="worker_id確認",
        action_en="check the worker_id",
        http_status=404,
        retryable=True,
    ),
    CatalogueEntry(
        err_id="ERR-PYOCO-0021",
        msg_id="MSG-PYOCO-0021",
        ja="cancel要求がタイムアウトしました（best-effort）",
        en="a requested cancel did not take effect in time (best effort)",
        action_ja="worker状態/タスク実装を確認",
        action_en="check the worker, and whether the task's code can be interrupted",
        retryable=True,
    ),
    CatalogueEntry(
        err_id="ERR-PYOCO-0022",
        msg_id="MSG-PYOCO-0022",
        ja="wheelバージョンが不正です（同一/過去バージョンは不可）",
        en="the wheel's version is not valid (it must be newer than the one there is)",
        action_ja="バージョンを上げて再試行",
        action_en="raise the version and try again",
        http_status=409,
        retryable=True,
    ),
    CatalogueEntry(
        err_id="ERR-PYOCO-0023",
        msg_id="MSG-PYOCO-0023",
        ja="wheelが見つかりません",
        en="wheel not found",
        action_ja="wheel名を確認",
        action_en="check the name of the wheel",
        http_status=404,
        retryable=True,
    ),
    CatalogueEntry(
        err_id="ERR-PYOCO-0024",
        msg_id="MSG-PYOCO-0024",
        ja="wheel同期に失敗しました（best-effort）",
        en="the wheels could not be brought up to date (best effort)",
        action_ja="環境確認後に再同期",
        action_en="check dependencies, permissions and the network; the next synchronisation tries again",
        retryable=True,
    ),
    # Ours: the specification's ids end above, and leave room below.
    CatalogueEntry(
        err_id="ERR-PYOCO-0101",
        msg_id="MSG-PYOCO-0101",
        ja="リクエストが大きすぎます",
        en="the request is too large",
        action_ja="小さく分けて送信する",
        action_en="send less at a time",
        http_status=413,
        retryable=False,
    ),
    CatalogueEntry(
        err_id="ERR-PYOCO-0102",
        msg_id="MSG-PYOCO-0102",
        ja="上限に達しました",
        en="a limit is reached",
        action_ja="時間をおいて再試行",
        action_en="try again later",
        http_status=429,
        retryable=True,
    ),
    CatalogueEntry(
        err_id="ERR-PYOCO-0103",
        msg_id="MSG-PYOCO-0103",
        ja="コマンドは拒否されました",
        en="the command was refused",
        action_ja="現在の状態を確認する",
        action_en="look at the state as it is now",
        http_status=409,
        retryable=False,
    ),
    CatalogueEntry(
        err_id="ERR-PYOCO-0104",
        msg_id="MSG-PYOCO-0104",
        ja="見つかりません",
        en="not found",
        action_ja="名前を確認する",
        action_en="check the name",
        http_status=404,
        retryable=False,
    ),
    CatalogueEntry(
        err_id="ERR-PYOCO-0105",
        msg_id="MSG-PYOCO-0105",
        ja="既存のものと矛盾します",
        en="it does not go together with what is there",
        action_ja="別の名前またはキーを使う",
        action_en="use another name or key",
        http_status=409,
        retryable=False,
    ),
    CatalogueEntry(
        err_id="ERR-PYOCO-0106",
        msg_id="MSG-PYOCO-0106",
        ja="内部エラーが発生しました",
        en="something went wrong in here",
        action_ja="ログを確認する",
        action_en="look at the log",
        http_status=500,
        retryable=True,
    ),
    CatalogueEntry(
        err_id="ERR-PYOCO-0107",
        msg_id="MSG-PYOCO-0107",
        ja="API key の権限（scope）が足りません",
        en="the API key lacks the scope this needs",
        action_ja="必要なscopeを持つ API key を使う",
        action_en="use an API key that has the scope",
        http_status=403,
        retryable=False,
    ),
    CatalogueEntry(
        err_id="ERR-PYOCO-0108",
        msg_id="MSG-PYOCO-0108",
        ja="ノードの出力はまだありません",
        en="the node has no output",
        action_ja="ノードの状態を確認し、成功（SUCCEEDED）してから取得する",
        action_en="check the node's status; its output can be read once it has succeeded",
        http_status=409,
        retryable=False,
    ),
    CatalogueEntry(
        err_id="ERR-PYOCO-0109",
        msg_id="MSG-PYOCO-0109",
        ja="ノードの出力は失われました",
        en="the output of the node is lost",
        action_ja="JSON で表せる値を返すか、ワーカーに PYOCO_RESULT_KEY を設定して実行し直す。"
        "保存先（object store）が壊れた場合はバックアップから復元する",
        action_en="return a value that JSON can hold, or set PYOCO_RESULT_KEY for the workers, and submit the run "
        "again; if the object store is damaged, restore it from a backup",
        http_status=410,
        retryable=False,
    ),
    CatalogueEntry(
        err_id="ERR-PYOCO-0110",
        msg_id="MSG-PYOCO-0110",
        ja="callable に書かれた関数の呼び出しは許可されていません",
        en="the function that 'callable' names may not be called",
        action_ja="フローのファイルと同じ場所か wheel にあるモジュールの関数を書く。それ以外は、運用者が "
        "PYOCO_CALLABLES で許可する",
        action_en="name a function of a module that comes with the worker's flow files or with a wheel; anything else "
        "must be allowed by the operator in PYOCO_CALLABLES",
        http_status=422,
        retryable=False,
    ),
    CatalogueEntry(
        err_id="ERR-PYOCO-0111",
        msg_id="MSG-PYOCO-0111",
        ja="このゲートウェイは flow.yaml を受け付けません",
        en="this gateway accepts no flow.yaml",
        action_ja="フロー名で送信する（POST /runs）。受け付けるには PYOCO_WORKFLOW_YAML=on を設定する",
        action_en="submit a flow by its name (POST /runs); to accept flow.yaml, set PYOCO_WORKFLOW_YAML=on",
        http_status=403,
        retryable=False,
    ),
    CatalogueEntry(
        err_id="ERR-PYOCO-0112",
        msg_id="MSG-PYOCO-0112",
        ja="この環境変数は flow.yaml から参照できません",
        en="the flow.yaml may not see this environment variable",
        action_ja="expose_env から外し、値をパラメータで渡すか、タスクのコードで読む。秘密でない変数は運用者が "
        "PYOCO_EXPOSE_ENV で許可できる",
        action_en="remove it from expose_env, and pass the value as a parameter or read it in the code of a task; the "
        "operator can allow a variable that is no secret in PYOCO_EXPOSE_ENV",
        http_status=422,
        retryable=False,
    ),
    CatalogueEntry(
        err_id="ERR-PYOCO-0113",
        msg_id="MSG-PYOCO-0113",
        ja="run が大きすぎます",
        en="the run is too large",
        action_ja="作業を複数の run に分ける。上限は運用者が PYOCO_RUN_MAX_ROUNDS、PYOCO_RUN_MAX_NODES、"
        "PYOCO_RUN_MAX_EVENTS で変更できる",
        action_en="split the work among several runs; the operator can change the limits in PYOCO_RUN_MAX_ROUNDS, "
        "PYOCO_RUN_MAX_NODES and PYOCO_RUN_MAX_EVENTS",
        http_status=422,
        retryable=False,
    ),
    CatalogueEntry(
        err_id="ERR-PYOCO-0114",
        msg_id="MSG-PYOCO-0114",
        ja="テナントの実行中の run が上限に達しました",
        en="the tenant has as many live runs as it may have",
        action_ja="run の終了を待つか、キャンセルする。上限は PYOCO_TENANT_MAX_LIVE_RUNS",
        action_en="wait until runs have ended, or cancel some; the limit is PYOCO_TENANT_MAX_LIVE_RUNS",
        http_status=429,
        retryable=True,
    ),
    CatalogueEntry(
        err_id="ERR-PYOCO-0115",
        msg_id="MSG-PYOCO-0115",
        ja="テナントの1分あたりの送信数が上限に達しました",
        en="the tenant has submitted as many runs in a minute as it may",
        action_ja="間隔をあけて送信する。上限は PYOCO_TENANT_MAX_SUBMISSIONS_PER_MIN",
        action_en="submit more slowly; the limit is PYOCO_TENANT_MAX_SUBMISSIONS_PER_MIN",
        http_status=429,
        retryable=True,
    ),
    CatalogueEntry(
        err_id="ERR-PYOCO-0116",
        msg_id="MSG-PYOCO-0116",
        ja="テナントの保存量が上限に達しました",
        en="the runs of the tenant take as much room as they may",
        action_ja="運用者に古い run の削除、または PYOCO_TENANT_MAX_STORED_BYTES の変更を依頼する",
        action_en="ask the operator to remove old runs, or to raise PYOCO_TENANT_MAX_STORED_BYTES",
        http_status=413,
        retryable=True,
    ),
    CatalogueEntry(
        err_id="ERR-PYOCO-0120",
        msg_id="MSG-PYOCO-0120",
        ja="ダッシュボードが見つかりません",
        en="dashboard not found",
        action_ja="静的ファイルの配置を確認",
        action_en="check that the static files are installed with the server",
        http_status=404,
        retryable=False,
    ),
    CatalogueEntry(
        err_id="ERR-PYOCO-0121",
        msg_id="MSG-PYOCO-0121",
        ja="ダッシュボードのファイルが見つかりません",
        en="asset not found",
        action_ja="パスを確認",
        action_en="check the path",
        http_status=404,
        retryable=False,
    ),
    CatalogueEntry(
        err_id="ERR-PYOCO-0125",
        msg_id="MSG-PYOCO-0125",
        ja="NATSのストリームは確定したデータを失うことがあります",
        en="a stream of NATS can lose confirmed data",
        action_ja="persist_mode が default のストリームに移す",
        action_en="move its messages to a stream whose persist_mode is default",
        retryable=False,
    ),
    CatalogueEntry(
        err_id="ERR-PYOCO-0130",
        msg_id="MSG-PYOCO-0130",
        ja="別のサイトのページからのリクエストは受け付けません",
        en="requests from pages of other web sites are not accepted",
        action_ja="Gateway自身のページから操作するか、PYOCO_HTTP_ALLOWED_ORIGINS にそのoriginを追加する",
        action_en="use the gateway's own page, or add the origin to PYOCO_HTTP_ALLOWED_ORIGINS",
        http_status=403,
        retryable=False,
    ),
    CatalogueEntry(
        err_id="ERR-PYOCO-0131",
        msg_id="MSG-PYOCO-0131",
        ja="このホスト名では応答しません",
        en="the gateway does not serve this host name",
        action_ja="127.0.0.1 または localhost でアクセスするか、PYOCO_HTTP_ALLOWED_HOSTS に名前を追加する",
        action_en="use 127.0.0.1 or localhost, or add the name to PYOCO_HTTP_ALLOWED_HOSTS",
        http_status=403,
        retryable=False,
    ),
    CatalogueEntry(
        err_id="ERR-PYOCO-0132",
        msg_id="MSG-PYOCO-0132",
        ja="リクエストヘッダーが大きすぎます",
        en="the head of the request is too large",
        action_ja="ヘッダーを64 KiB・100項目以内にする",
        action_en="send at most 64 KiB and 100 fields of headers",
        http_status=431,
        retryable=False,
    ),
    CatalogueEntry(
        err_id="ERR-PYOCO-0133",
        msg_id="MSG-PYOCO-0133",
        ja="リクエストヘッダーが時間内に届きませんでした",
        en="the head of the request did not arrive in time",
        action_ja="接続を確認して再試行（PYOCO_HTTP_HEAD_TIMEOUT_SEC）",
        action_en="check the connection and try again (PYOCO_HTTP_HEAD_TIMEOUT_SEC)",
        http_status=408,
        retryable=True,
    ),
    CatalogueEntry(
        err_id="ERR-PYOCO-0140",
        msg_id="MSG-PYOCO-0140",
        ja="保存されている API key は無効です（署名がない、または一致しない）",
        en="a stored API key does not count (its seal is missing or does not fit)",
        action_ja="NATS に書き込めるユーザーを確認し、API key を再発行する。"
        "旧バージョンの API key は pyoco-server keys seal で署名する",
        action_en="check who may write to NATS, and issue the key again; 'pyoco-server keys seal' seals the keys of an "
        "earlier version",
        retryable=False,
    ),
    CatalogueEntry(
        err_id="ERR-PYOCO-0141",
        msg_id="MSG-PYOCO-0141",
        ja="API key が NATS への書き込みから保護されていません",
        en="INSECURE: API keys are not protected against programs that can write to NATS",
        action_ja="PYOCO_AUTH_PEPPER を設定し、NATS にユーザーを設定する（docs/security.md）",
        action_en="set PYOCO_AUTH_PEPPER, and give NATS users (docs/security.md)",
        retryable=False,
    ),
)

CATALOGUE: Final[Mapping[str, CatalogueEntry]] = MappingProxyType({entry.err_id: entry for entry in _ENTRIES})
"""All entries by their ``err_id``, in its order."""


def entry_of(error: BaseException) -> CatalogueEntry | None:
    """The entry an exception names by its ``err_id``, if it names one.

    An unknown id returns None and does not raise, because this runs while an error is reported. The tests prove that
    all our ids are in the catalogue.
    """
    err_id = getattr(error, "err_id", None)
    return CATALOGUE.get(err_id) if isinstance(err_id, str) else None
