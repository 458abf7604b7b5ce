"""Settings from the environment: defaults, what is read, what is refused and how."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import SecretStr, ValidationError

from pyoco_server.settings import Settings, SettingsError, load_settings
from pyoco_server.settings.loading import OF_PYOCO, sections
from pyoco_server.settings.model import ConsumerSettings
from pyoco_server.settings.section import var_of
from pyoco_server.settings.values import Allowed

NOWHERE = {"PYOCO_LOAD_DOTENV": "0"}
LOGIN = "t-123"
SEED = "SU" + "A" * 56

SPECIFIED: dict[str, object] = {
    "PYOCO_WORK_SUBJECT_PREFIX": "pyoco.work",
    "PYOCO_DEFAULT_TAG": "default",
    "PYOCO_RUNS_KV_BUCKET": "pyoco_runs",
    "PYOCO_WORKERS_KV_BUCKET": "pyoco_workers",
    "PYOCO_HTTP_AUTH_MODE": "none",
    "PYOCO_HTTP_API_KEY_HEADER": "X-API-Key",
    "PYOCO_AUTH_KV_BUCKET": "pyoco_auth",
    "PYOCO_AUTH_PEPPER": None,
    "PYOCO_RESULT_KEY": None,
    "PYOCO_RUN_HEARTBEAT_INTERVAL_SEC": 1.0,
    "PYOCO_WORKER_HEARTBEAT_INTERVAL_SEC": 5.0,
    "PYOCO_WORKERS_KV_TTL_SEC": 15.0,
    "PYOCO_WORKER_DISCONNECT_TIMEOUT_SEC": 20.0,
    "PYOCO_CANCEL_GRACE_PERIOD_SEC": 30.0,
    "PYOCO_CONSUMER_ACK_WAIT_SEC": 30.0,
    "PYOCO_CONSUMER_MAX_DELIVER": 20,
    "PYOCO_CONSUMER_MAX_ACK_PENDING": 200,
    "PYOCO_ACK_PROGRESS_INTERVAL_SEC": 10.0,
    "PYOCO_DLQ_STREAM": "PYOCO_DLQ",
    "PYOCO_DLQ_SUBJECT_PREFIX": "pyoco.dlq",
    "PYOCO_DLQ_PUBLISH_EXECUTION_ERROR": True,
    "PYOCO_DLQ_MAX_AGE_SEC": 604800,
    "PYOCO_DLQ_MAX_MSGS": 100000,
    "PYOCO_DLQ_MAX_BYTES": 536870912,
    "PYOCO_MAX_RUN_SNAPSHOT_BYTES": 262144,
    "PYOCO_WORKFLOW_YAML": True,
    "PYOCO_WORKFLOW_YAML_MAX_BYTES": 262144,
    "PYOCO_WHEEL_OBJECT_STORE_BUCKET": "pyoco_wheels",
    "PYOCO_WHEEL_MAX_BYTES": 536870912,
    "PYOCO_WHEEL_SYNC_ENABLED": False,
    "PYOCO_WHEEL_SYNC_DIR": Path(".pyoco/wheels"),
    "PYOCO_WHEEL_SYNC_INTERVAL_SEC": 10.0,
    "PYOCO_WHEEL_INSTALL_TIMEOUT_SEC": 180.0,
    "PYOCO_WHEEL_HISTORY_KV_BUCKET": "pyoco_wheel_history",
    "PYOCO_WHEEL_HISTORY_TTL_SEC": 7776000,
    "PYOCO_DASHBOARD_LANG": "auto",
    "PYOCO_LANG": "auto",
    "PYOCO_LOAD_DOTENV": True,
    "PYOCO_ENV_FILE": Path(".env"),
    "PYOCO_LOG_LEVEL": "INFO",
    "PYOCO_LOG_FORMAT": "json",
    "PYOCO_LOG_UTC": True,
    "PYOCO_LOG_INCLUDE_TRACEBACK": True,
}
"""Appendix I of the specification."""

OURS: dict[str, object] = {
    "PYOCO_NATS_URL": ("nats://127.0.0.1:4222",),
    "PYOCO_NATS_CREDS": None,
    "PYOCO_NATS_NKEY_SEED": None,
    "PYOCO_NATS_TOKEN": None,
    "PYOCO_NATS_TLS_CA": None,
    "PYOCO_NATS_INBOX_PREFIX": "_INBOX",
    "PYOCO_NATS_PLAIN_CLIENT": False,
    "PYOCO_EVENTS_STREAM": "PYOCO_EVENTS",
    "PYOCO_EVENTS_SUBJECT_PREFIX": "pyoco.events",
    "PYOCO_LIVE_SUBJECT_PREFIX": "pyoco.live",
    "PYOCO_CONTROL_SUBJECT_PREFIX": "pyoco.control",
    "PYOCO_ALIVE_SUBJECT_PREFIX": "pyoco.alive",
    "PYOCO_WORKER_GONE_SEC": 3.0,
    "PYOCO_WORK_STREAM": "PYOCO_WORK",
    "PYOCO_GRAPHS_KV_BUCKET": "pyoco_graphs",
    "PYOCO_OUTPUTS_BUCKET": "pyoco_outputs",
    "PYOCO_HTTP_HOST": "127.0.0.1",
    "PYOCO_HTTP_PORT": 8000,
    "PYOCO_HTTP_ALLOWED_HOSTS": (),
    "PYOCO_HTTP_ALLOWED_ORIGINS": (),
    "PYOCO_HTTP_HEAD_TIMEOUT_SEC": 10.0,
    "PYOCO_HTTP_MAX_CONNECTIONS": 10_000,
    "PYOCO_HTTP_MAX_CONNECTIONS_PER_ADDRESS": 5_000,
    "PYOCO_WATCH_MAX_CONNECTIONS": 2000,
    "PYOCO_WATCH_MAX_PER_CLIENT": 100,
    "PYOCO_INSECURE_NO_AUTH": False,
    "PYOCO_RATE_LIMIT_PER_SEC": 0.0,
    "PYOCO_MAX_CONCURRENT_REQUESTS_PER_KEY": 200,
    "PYOCO_DURABILITY": "sync",
    "PYOCO_DATA_DIR": Path(".pyoco"),
    "PYOCO_INLINE_OUTPUT_MAX_BYTES": 65536,
    "PYOCO_WORKER_CONCURRENCY": 8,
    "PYOCO_CALLABLES": (),
    "PYOCO_EXPOSE_ENV": (),
    "PYOCO_RUN_MAX_ROUNDS": 100_000,
    "PYOCO_RUN_MAX_NODES": 100_000,
    "PYOCO_RUN_MAX_EVENTS": 1_000_000,
    "PYOCO_TENANT_MAX_LIVE_RUNS": 0,
    "PYOCO_TENANT_MAX_SUBMISSIONS_PER_MIN": 0,
    "PYOCO_TENANT_MAX_STORED_BYTES": 0,
    "PYOCO_WORKER_STOP_TIMEOUT_SEC": 30.0,
    "PYOCO_WHEEL_ALLOW_STARTUP_FILES": False,
}


def load(**environ: str) -> Settings:
    return load_settings({**NOWHERE, **environ}).settings


def values(settings: Settings) -> dict[str, object]:
    return {
        var_of(field).name: getattr(getattr(settings, section), name)
        for section, kind in sections().items()
        for name, field in kind.model_fields.items()
    }


def problems(**environ: str) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        load(**environ)
    return list(caught.value.problems)


def test_the_defaults_are_those_of_the_specification() -> None:
    assert values(Settings()) == {**SPECIFIED, **OURS}


def test_an_empty_environment_gives_the_defaults(tmp_path: Path) -> None:
    loaded = load_settings({}, directory=tmp_path)
    assert loaded.settings == Settings()
    assert loaded.warnings == []


def test_every_variable_says_what_is_allowed_what_it_means_and_whether_it_is_secret() -> None:
    for kind in sections().values():
        for name, field in kind.model_fields.items():
            assert sum(isinstance(note, Allowed) for note in field.metadata) == 1, name
            assert field.description, name
            assert ("SecretStr" in str(field.annotation)) == var_of(field).secret, name


def test_each_variable_sets_its_field(tmp_path: Path) -> None:
    creds = tmp_path / "user.creds"
    creds.touch()
    settings = load(
        PYOCO_NATS_URL="nats://a:4222, tls://b , c:1",
        PYOCO_NATS_CREDS=str(creds),
        PYOCO_CONSUMER_ACK_WAIT_SEC="2.5",
        PYOCO_ACK_PROGRESS_INTERVAL_SEC="1",
        PYOCO_CONSUMER_MAX_DELIVER=" 3 ",
        PYOCO_AUTH_PEPPER=" as it is ",
        PYOCO_HTTP_AUTH_MODE="API_KEY",
        PYOCO_DLQ_MAX_MSGS="0",
        PYOCO_LOG_LEVEL="warn",
        PYOCO_DURABILITY="fast",
        PYOCO_DATA_DIR="/var/lib/pyoco",
        PYOCO_HTTP_HOST="::1",
        PYOCO_HTTP_ALLOWED_HOSTS="pyoco, ::2",
        PYOCO_HTTP_ALLOWED_ORIGINS="https://Pyoco.example/,http://[::1]:8",
    )
    assert settings.nats.urls == ("nats://a:4222", "tls://b", "nats://c:1")
    assert settings.nats.creds_file == creds
    assert (settings.consumer.ack_wait_sec, settings.consumer.max_deliver) == (2.5, 3)
    assert settings.auth.pepper == SecretStr(" as it is ")
    assert settings.auth.mode == "api_key"
    assert settings.dead_letters.max_msgs == 0
    assert settings.logs.level == "WARNING"
    assert settings.storage.durability == "fast"
    assert settings.storage.data_dir == Path("/var/lib/pyoco")
    assert settings.http.host == "::1"
    assert settings.http.allowed_hosts == ("pyoco", "::2")
    assert settings.http.allowed_origins == ("https://pyoco.example", "http://[::1]:8")


@pytest.mark.parametrize("text", ["1", "true", "TRUE", "yes", "Yes", "on", " on "])
def test_the_words_for_on(text: str) -> None:
    assert load(PYOCO_WHEEL_SYNC_ENABLED=text).wheels.sync_enabled is True


@pytest.mark.parametrize("text", ["0", "false", "False", "no", "NO", "off"])
def test_the_words_for_off(text: str) -> None:
    assert load(PYOCO_DLQ_PUBLISH_EXECUTION_ERROR=text).dead_letters.publish_execution_error is False


@pytest.mark.parametrize("text", ["", "  "])
def test_an_empty_variable_counts_as_not_set(text: str) -> None:
    settings = load(PYOCO_HTTP_PORT=text, PYOCO_AUTH_PEPPER=text, PYOCO_NATS_URL=text)
    assert settings == load()


@pytest.mark.parametrize(
    ("name", "text", "allowed"),
    [
        ("PYOCO_HTTP_PORT", "65536", "a port from 1 to 65535, or 0 to let the system choose"),
        ("PYOCO_HTTP_PORT", "80.0", "a port"),
        ("PYOCO_HTTP_PORT", "http", "a port"),
        ("PYOCO_HTTP_HOST", "localhost:80", "a host name or address, without a port"),
        ("PYOCO_CONSUMER_ACK_WAIT_SEC", "0", "a number of seconds greater than 0"),
        ("PYOCO_CONSUMER_ACK_WAIT_SEC", "-1", "a number of seconds greater than 0"),
        ("PYOCO_CONSUMER_ACK_WAIT_SEC", "nan", "a number of seconds greater than 0"),
        ("PYOCO_CONSUMER_ACK_WAIT_SEC", "1e300", "a number of seconds greater than 0"),
        ("PYOCO_WORKER_HEARTBEAT_INTERVAL_SEC", "5s", "a number of seconds greater than 0"),
        ("PYOCO_CANCEL_GRACE_PERIOD_SEC", "-0.1", "a number of seconds from 0"),
        ("PYOCO_CONSUMER_MAX_DELIVER", "0", "a whole number, 1 or more"),
        ("PYOCO_CONSUMER_MAX_DELIVER", "1_000", "a whole number, 1 or more"),
        ("PYOCO_CONSUMER_MAX_DELIVER", "9" * 30, "a whole number, 1 or more"),
        ("PYOCO_WORKER_CONCURRENCY", "2.5", "a whole number, 1 or more"),
        ("PYOCO_DLQ_MAX_BYTES", "-1", "a whole number of bytes, or 0 for no limit"),
        ("PYOCO_MAX_RUN_SNAPSHOT_BYTES", "256k", "a whole number of bytes, 1 or more"),
        ("PYOCO_CALLABLES", "os.system()", "patterns separated by commas: module, module:function or *"),
        ("PYOCO_CALLABLES", "math:sqrt,!", "patterns separated by commas"),
        ("PYOCO_CALLABLES", "a:b.c", "patterns separated by commas"),
        ("PYOCO_EXPOSE_ENV", "HOME,API_TOKEN", "names of variables separated by commas"),
        ("PYOCO_EXPOSE_ENV", "a-b", "names of variables separated by commas"),
        ("PYOCO_WHEEL_SYNC_ENABLED", "2", "one of 0, 1, true, false, yes, no, on, off"),
        ("PYOCO_WHEEL_SYNC_ENABLED", "y", "one of 0, 1, true, false, yes, no, on, off"),
        ("PYOCO_DEFAULT_TAG", "a.b", "a tag: 1 to 128 characters, only letters, digits, '_' and '-'"),
        ("PYOCO_DEFAULT_TAG", "*", "a tag"),
        ("PYOCO_DEFAULT_TAG", "ｇｐｕ", "a tag"),
        ("PYOCO_DEFAULT_TAG", "x" * 129, "a tag"),
        ("PYOCO_WORK_SUBJECT_PREFIX", "pyoco..work", "the beginning of a subject"),
        ("PYOCO_WORK_SUBJECT_PREFIX", "pyoco.work.", "the beginning of a subject"),
        ("PYOCO_WORK_SUBJECT_PREFIX", "pyoco.>", "the beginning of a subject"),
        ("PYOCO_WORK_SUBJECT_PREFIX", "$SYS", "the beginning of a subject"),
        ("PYOCO_DLQ_STREAM", "PYOCO DLQ", "the name of a stream"),
        ("PYOCO_RUNS_KV_BUCKET", "runs/1", "the name of a bucket"),
        ("PYOCO_OUTPUTS_BUCKET", "out.puts", "the name of a bucket"),
        ("PYOCO_HTTP_AUTH_MODE", "basic", "none or api_key"),
        ("PYOCO_HTTP_API_KEY_HEADER", "X API Key", "the name of an HTTP header"),
        ("PYOCO_DASHBOARD_LANG", "fr", "one of auto, ja, en"),
        ("PYOCO_LANG", "fr", "one of auto, ja, en"),
        ("PYOCO_DURABILITY", "async", "sync or fast"),
        ("PYOCO_NATS_CREDS", "/no/such/file", "the path of a file that exists"),
        ("PYOCO_NATS_URL", "http://127.0.0.1:4222", "nats://host:port or tls://host:port"),
        ("PYOCO_NATS_URL", "nats://", "nats://host:port"),
        ("PYOCO_NATS_URL", "nats://h:70000", "nats://host:port"),
        ("PYOCO_NATS_URL", "nats://h:4222/x", "nats://host:port"),
        ("PYOCO_NATS_URL", "nats://a,,nats://b", "nats://host:port"),
        ("PYOCO_NATS_URL", "nats://a b", "nats://host:port"),
        ("PYOCO_NATS_URL", "nats://a\nb", "nats://host:port"),
        *(
            ("PYOCO_HTTP_ALLOWED_ORIGINS", text, "origins such as https://pyoco.example.org")
            for text in ("https://", "example.org", "https://a/b", "*", "https://a b", "x,y")
        ),
        ("PYOCO_HTTP_ALLOWED_HOSTS", "https://a", "host names or addresses without ports"),
        ("PYOCO_HTTP_ALLOWED_HOSTS", "a:8000", "host names or addresses without ports"),
        ("PYOCO_HTTP_ALLOWED_HOSTS", "a,", "host names or addresses without ports"),
        ("PYOCO_LOAD_DOTENV", "maybe", "one of 0, 1"),
    ],
)
def test_a_wrong_value_is_reported_with_its_variable_and_what_is_allowed(name: str, text: str, allowed: str) -> None:
    (problem,) = problems(**{name: text})
    assert problem.startswith(f"{name}={text[:100] + '…' * (len(text) > 100)!r} must be {allowed}")


def test_all_problems_are_reported_at_once() -> None:
    found = problems(
        PYOCO_HTTP_PORT="x", PYOCO_DEFAULT_TAG="a.b", PYOCO_DLQ_MAX_MSGS="-5", PYOCO_ACK_PROGRESS_INTERVAL_SEC="30"
    )
    assert [problem.partition("=")[0] for problem in found] == [
        "PYOCO_DEFAULT_TAG",
        "PYOCO_HTTP_PORT",
        "PYOCO_ACK_PROGRESS_INTERVAL_SEC",
        "PYOCO_DLQ_MAX_MSGS",
    ]


def test_the_error_has_its_ids_and_a_line_for_each_problem() -> None:
    with pytest.raises(SettingsError) as caught:
        load(PYOCO_HTTP_PORT="x", PYOCO_DEFAULT_TAG="a.b")
    assert (caught.value.err_id, caught.value.msg_id) == ("ERR-PYOCO-0018", "MSG-PYOCO-0018")
    assert len(str(caught.value).splitlines()) == 3


@pytest.mark.parametrize(("progress", "wait"), [("30", "30"), ("31", "30"), ("10", "5")])
def test_the_progress_interval_must_be_less_than_the_ack_wait(progress: str, wait: str) -> None:
    found = problems(PYOCO_ACK_PROGRESS_INTERVAL_SEC=progress, PYOCO_CONSUMER_ACK_WAIT_SEC=wait)
    assert found == [f"PYOCO_ACK_PROGRESS_INTERVAL_SEC={progress} must be less than PYOCO_CONSUMER_ACK_WAIT_SEC={wait}"]


@pytest.mark.spec("004 REQ-0010")
@pytest.mark.parametrize(("wait", "interval"), [("3", 1.5), ("0.5", 0.25), ("19", 9.5), ("20", 10.0), ("600", 10.0)])
def test_a_shorter_ack_wait_shortens_the_default_interval(wait: str, interval: float) -> None:
    assert load(PYOCO_CONSUMER_ACK_WAIT_SEC=wait).consumer.ack_progress_interval_sec == interval


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"PYOCO_WORK_SUBJECT_PREFIX": "pyoco.dlq"}, "both are 'pyoco.dlq', but must differ"),
        ({"PYOCO_WORK_SUBJECT_PREFIX": "pyoco.dlq.x"}, "'pyoco.dlq.x' is within 'pyoco.dlq', but must not be"),
        ({"PYOCO_DLQ_SUBJECT_PREFIX": "pyoco.work.dlq"}, "'pyoco.work.dlq' is within 'pyoco.work', but must not be"),
        ({"PYOCO_DLQ_STREAM": "PYOCO_WORK"}, "both are 'PYOCO_WORK', but must differ"),
        ({"PYOCO_AUTH_KV_BUCKET": "pyoco_runs"}, "both are 'pyoco_runs', but must differ"),
        ({"PYOCO_OUTPUTS_BUCKET": "pyoco_wheels"}, "both are 'pyoco_wheels', but must differ"),
    ],
)
def test_equal_or_nested_names_are_refused(environ: dict[str, str], expected: str) -> None:
    (problem,) = problems(**environ)
    assert next(iter(environ)) in problem
    assert problem.endswith(expected)


def test_similar_names_are_accepted() -> None:
    settings = load(PYOCO_WORK_SUBJECT_PREFIX="pyoco.dlq2", PYOCO_OUTPUTS_BUCKET="pyoco_runs")
    assert settings.names.work_subject_prefix == "pyoco.dlq2"


def test_more_than_one_login_is_refused() -> None:
    assert problems(PYOCO_NATS_TOKEN=LOGIN, PYOCO_NATS_NKEY_SEED=SEED) == [
        "PYOCO_NATS_NKEY_SEED, PYOCO_NATS_TOKEN: at most one of them may be set"
    ]


def test_secrets_appear_in_no_text() -> None:
    settings = load(
        PYOCO_AUTH_PEPPER="hot pepper", PYOCO_NATS_TOKEN=LOGIN, PYOCO_NATS_URL="nats://me:passw0rd@127.0.0.1"
    )
    assert settings.auth.pepper is not None
    assert settings.auth.pepper.get_secret_value() == "hot pepper"
    assert settings.nats.urls == ("nats://me:passw0rd@127.0.0.1",)
    for secret in ("hot pepper", LOGIN, "passw0rd"):
        assert secret not in f"{settings!r} {settings}"


@pytest.mark.parametrize(
    "url", ["nats://me:pa/ss@h:x", "me:pa,ss@h:x", "nats://a:1@h,nats://me:pass@h:x", "x://pass@h"]
)
def test_a_wrong_address_is_reported_without_its_password(url: str) -> None:
    (problem,) = problems(PYOCO_NATS_URL=url)
    assert "***@h" in problem
    assert "pa" not in problem.partition(" must be ")[0].replace("PYOCO", "")


def test_a_wrong_secret_is_not_shown() -> None:
    assert problems(PYOCO_NATS_NKEY_SEED="SUSECRET") == [
        "PYOCO_NATS_NKEY_SEED must be the seed of a user's nkey: 58 characters that begin with SU"
    ]


def test_an_unknown_variable_is_a_warning_with_the_most_similar_name() -> None:
    loaded = load_settings(
        {**NOWHERE, "PYOCO_NATS_ULR": "secret?", "pyoco_http_port": "1", "PYOCO_ZZZ": "", "PYOCOX": ""}
    )
    assert [warning.text for warning in loaded.warnings] == [
        "PYOCO_NATS_ULR is not a setting; did you mean PYOCO_NATS_URL?",
        "PYOCO_ZZZ is not a setting",
        "pyoco_http_port is not a setting; did you mean PYOCO_HTTP_PORT?",
    ]


def test_variables_of_the_pyoco_package_are_ignored() -> None:
    assert load_settings({**NOWHERE, **dict.fromkeys(OF_PYOCO, "1")}).warnings == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("PYOCO_LOG_LEVEL", "LOUD"),
        ("PYOCO_LOG_FORMAT", "xml"),
        ("PYOCO_LOG_UTC", "perhaps"),
        ("PYOCO_LOG_INCLUDE_TRACEBACK", "perhaps"),
    ],
)
def test_a_wrong_setting_of_the_log_prevents_no_start(name: str, text: str) -> None:
    loaded = load_settings({**NOWHERE, name: text, "PYOCO_HTTP_PORT": "81"})
    assert loaded.settings.logs == Settings().logs
    assert loaded.settings.http.port == 81
    (warning,) = loaded.warnings
    assert warning.err_id == "ERR-PYOCO-0013"
    assert warning.text.startswith(f"{name}='{text}' must be ")
    assert warning.text.endswith("the default is used instead")


def test_improbable_settings_are_warned_about() -> None:
    given = {
        "PYOCO_WORKER_DISCONNECT_TIMEOUT_SEC": "5",
        "PYOCO_WORKER_GONE_SEC": "1.9",
        "PYOCO_CONSUMER_MAX_ACK_PENDING": "7",
    }
    loaded = load_settings({**NOWHERE, **given})
    assert [warning.text.partition("=")[0] for warning in loaded.warnings] == [
        "PYOCO_WORKER_HEARTBEAT_INTERVAL_SEC",
        "PYOCO_WORKER_GONE_SEC",
        "PYOCO_WORKER_CONCURRENCY",
    ]


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(ValidationError):
        Settings().http.port = 1
    with pytest.raises(ValidationError):
        Settings().http = Settings().http


def test_settings_can_be_made_in_code() -> None:
    assert (
        Settings(consumer=ConsumerSettings(ack_wait_sec=1.0, ack_progress_interval_sec=0.5)).consumer.ack_wait_sec
        == 1.0
    )
    assert ConsumerSettings(ack_wait_sec=1.0).ack_progress_interval_sec == 0.5
    with pytest.raises(ValidationError):
        ConsumerSettings(ack_wait_sec=1.0, ack_progress_interval_sec=1.0)
    with pytest.raises(ValidationError):
        ConsumerSettings.model_validate({"ack_wait": 1.0})


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from([*SPECIFIED, *OURS]), st.text(max_size=30), max_size=6))
def test_any_text_is_accepted_or_reported(environ: dict[str, str]) -> None:
    problems: tuple[str, ...] = ("PYOCO_ is in every problem",)
    try:
        load_settings({**environ, **NOWHERE})
    except SettingsError as error:
        problems = error.problems
    assert all("PYOCO_" in problem for problem in problems)
