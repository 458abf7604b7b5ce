"""``NatsBackendConfig`` of 0.5.1, over our settings: the same fields and defaults, checked as our settings are."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Final, Self

from typing_extensions import deprecated

from pyoco_server.errors import InvalidInputError
from pyoco_server.settings import Settings, SettingsError, load_settings
from pyoco_server.settings.section import var_of

_VARIABLES: Final[Mapping[str, str]] = {
    "nats_url": "PYOCO_NATS_URL",
    "work_stream": "PYOCO_WORK_STREAM",
    "work_subject_prefix": "PYOCO_WORK_SUBJECT_PREFIX",
    "default_tag": "PYOCO_DEFAULT_TAG",
    "runs_kv_bucket": "PYOCO_RUNS_KV_BUCKET",
    "workers_kv_bucket": "PYOCO_WORKERS_KV_BUCKET",
    "workers_kv_ttl_sec": "PYOCO_WORKERS_KV_TTL_SEC",
    "http_auth_mode": "PYOCO_HTTP_AUTH_MODE",
    "http_api_key_header": "PYOCO_HTTP_API_KEY_HEADER",
    "auth_kv_bucket": "PYOCO_AUTH_KV_BUCKET",
    "auth_pepper": "PYOCO_AUTH_PEPPER",
    "run_heartbeat_interval_sec": "PYOCO_RUN_HEARTBEAT_INTERVAL_SEC",
    "worker_heartbeat_interval_sec": "PYOCO_WORKER_HEARTBEAT_INTERVAL_SEC",
    "worker_disconnect_timeout_sec": "PYOCO_WORKER_DISCONNECT_TIMEOUT_SEC",
    "cancel_grace_period_sec": "PYOCO_CANCEL_GRACE_PERIOD_SEC",
    "ack_progress_interval_sec": "PYOCO_ACK_PROGRESS_INTERVAL_SEC",
    "consumer_ack_wait_sec": "PYOCO_CONSUMER_ACK_WAIT_SEC",
    "consumer_max_deliver": "PYOCO_CONSUMER_MAX_DELIVER",
    "consumer_max_ack_pending": "PYOCO_CONSUMER_MAX_ACK_PENDING",
    "dlq_stream": "PYOCO_DLQ_STREAM",
    "dlq_subject_prefix": "PYOCO_DLQ_SUBJECT_PREFIX",
    "dlq_max_age_sec": "PYOCO_DLQ_MAX_AGE_SEC",
    "dlq_max_msgs": "PYOCO_DLQ_MAX_MSGS",
    "dlq_max_bytes": "PYOCO_DLQ_MAX_BYTES",
    "dlq_publish_execution_error": "PYOCO_DLQ_PUBLISH_EXECUTION_ERROR",
    "max_run_snapshot_bytes": "PYOCO_MAX_RUN_SNAPSHOT_BYTES",
    "wheel_object_store_bucket": "PYOCO_WHEEL_OBJECT_STORE_BUCKET",
    "wheel_sync_enabled": "PYOCO_WHEEL_SYNC_ENABLED",
    "wheel_sync_dir": "PYOCO_WHEEL_SYNC_DIR",
    "wheel_sync_interval_sec": "PYOCO_WHEEL_SYNC_INTERVAL_SEC",
    "wheel_install_timeout_sec": "PYOCO_WHEEL_INSTALL_TIMEOUT_SEC",
    "wheel_max_bytes": "PYOCO_WHEEL_MAX_BYTES",
    "wheel_history_kv_bucket": "PYOCO_WHEEL_HISTORY_KV_BUCKET",
    "wheel_history_ttl_sec": "PYOCO_WHEEL_HISTORY_TTL_SEC",
    "workflow_yaml_max_bytes": "PYOCO_WORKFLOW_YAML_MAX_BYTES",
    "dashboard_lang": "PYOCO_DASHBOARD_LANG",
}


@deprecated("NatsBackendConfig is kept for programs written for 0.5.1: set PYOCO_* variables (docs/settings.md)")
@dataclasses.dataclass(frozen=True)
class NatsBackendConfig:
    """Where NATS is and how everything is called there; ``settings`` gives our settings for it.

    A field that has its default counts as not set. ``consumer_prefix`` has no effect: a consumer is found by its tag.
    """

    nats_url: str = "nats://127.0.0.1:4222"
    work_stream: str = "PYOCO_WORK"
    work_subject_prefix: str = "pyoco.work"
    default_tag: str = "default"
    consumer_prefix: str = "pyoco_workers"
    runs_kv_bucket: str = "pyoco_runs"
    workers_kv_bucket: str = "pyoco_workers"
    workers_kv_ttl_sec: float = 15.0
    http_auth_mode: str = "none"
    http_api_key_header: str = "X-API-Key"
    auth_kv_bucket: str = "pyoco_auth"
    auth_pepper: str | None = dataclasses.field(default=None, repr=False)
    run_heartbeat_interval_sec: float = 1.0
    worker_heartbeat_interval_sec: float = 5.0
    worker_disconnect_timeout_sec: float = 20.0
    cancel_grace_period_sec: float = 30.0
    ack_progress_interval_sec: float = 10.0
    consumer_ack_wait_sec: float = 30.0
    consumer_max_deliver: int = 20
    consumer_max_ack_pending: int = 200
    dlq_stream: str = "PYOCO_DLQ"
    dlq_subject_prefix: str = "pyoco.dlq"
    dlq_max_age_sec: float = 604_800.0
    dlq_max_msgs: int = 100_000
    dlq_max_bytes: int = 536_870_912
    dlq_publish_execution_error: bool = True
    max_run_snapshot_bytes: int = 262_144
    wheel_object_store_bucket: str = "pyoco_wheels"
    wheel_sync_enabled: bool = False
    wheel_sync_dir: str = ".pyoco/wheels"
    wheel_sync_interval_sec: float = 10.0
    wheel_install_timeout_sec: float = 180.0
    wheel_max_bytes: int = 536_870_912
    wheel_history_kv_bucket: str = "pyoco_wheel_history"
    wheel_history_ttl_sec: float = 7_776_000.0
    workflow_yaml_max_bytes: int = 262_144
    dashboard_lang: str = "auto"

    @classmethod
    def from_env(cls) -> Self:
        """Read the environment and the ``.env`` file; SettingsError names every variable that is not valid."""
        return cls(**_values(load_settings().settings))

    def settings(self) -> Settings:
        """Return our settings with these values; InvalidInputError names the fields that are not valid."""
        given = {"PYOCO_LOAD_DOTENV": "0"}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name in _VARIABLES and value not in (field.default, None):
                given[_VARIABLES[field.name]] = str(int(value) if isinstance(value, bool) else value)
        try:
            return load_settings(given).settings
        except SettingsError as error:
            raise InvalidInputError("; ".join(map(_by_field, error.problems))) from error


def _by_field(problem: str) -> str:
    """Return the problem of a variable with the name of its field instead."""
    for field, variable in _VARIABLES.items():
        problem = problem.replace(f"{variable}=", f"{field}=")
    return f"NatsBackendConfig: {problem}"


def _values(settings: Settings) -> dict[str, Any]:
    """Return the values of the fields, in their types."""
    found: dict[str, Any] = {}
    for section in type(settings).model_fields:
        of_section = getattr(settings, section)
        for name, field in type(of_section).model_fields.items():
            found[var_of(field).name] = getattr(of_section, name)
    values = {field: found[variable] for field, variable in _VARIABLES.items()}
    pepper = values["auth_pepper"]
    return values | {
        "nats_url": ",".join(values["nats_url"]),
        "auth_pepper": None if pepper is None else pepper.get_secret_value(),
        "wheel_sync_dir": str(values["wheel_sync_dir"]),
    }
