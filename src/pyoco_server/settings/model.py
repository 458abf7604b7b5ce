"""All settings, by subject: one field for each environment variable.

Names have the unit, types have the allowed values, and ``docs/settings.md`` shows the text below each field.
"""

from itertools import combinations
from pathlib import Path
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from pyoco_server.app.tenancy.quotas import QuotaLimits
from pyoco_server.flows.limits import RunLimits
from pyoco_server.settings import values as v
from pyoco_server.settings.section import BOTH, GATEWAY, UNUSED, WORKER, Section, Var, var_of

_MAY_HOLD_A_PASSWORD = Field(repr=False)


class Nats(Section):
    """The connection to NATS."""

    urls: Annotated[v.NatsUrls, Var("PYOCO_NATS_URL", BOTH), _MAY_HOLD_A_PASSWORD] = ("nats://127.0.0.1:4222",)
    """Where NATS is; several addresses are separated by commas. An address may hold a user and a password."""
    creds_file: Annotated[v.File, Var("PYOCO_NATS_CREDS", BOTH)] = None
    """The file with the credentials (JWT and seed) to log in with."""
    nkey_seed: Annotated[v.NkeySeed, Var("PYOCO_NATS_NKEY_SEED", BOTH, secret=True)] = None
    """The seed of the nkey to log in with. Secret."""
    token: Annotated[v.Secret, Var("PYOCO_NATS_TOKEN", BOTH, secret=True)] = None
    """The token to log in with. Secret. At most one of credentials, seed and token may be set."""
    tls_ca_file: Annotated[v.File, Var("PYOCO_NATS_TLS_CA", BOTH)] = None
    """The certificates (PEM) to trust in place of the system's; the connection is encrypted if this is set."""
    inbox_prefix: Annotated[v.SubjectPrefix, Var("PYOCO_NATS_INBOX_PREFIX", BOTH)] = "_INBOX"
    """Where answers of NATS come in. A user with a prefix of its own can be kept from reading others' answers."""
    plain_client: Annotated[v.Truth, Var("PYOCO_NATS_PLAIN_CLIENT", BOTH)] = False
    """Use only the public API of nats-py: slower, for a version of it that the faster client does not work with."""

    @model_validator(mode="after")
    def _one_login(self) -> Self:
        given = [name for name in ("creds_file", "nkey_seed", "token") if getattr(self, name) is not None]
        if len(given) > 1:
            raise ValueError(f"{self.variables(*given)}: at most one of them may be set")
        return self


class NameSettings(Section):
    """The names of streams, subjects and buckets. All gateways and workers of a platform must agree on these."""

    events_stream: Annotated[v.StreamName, Var("PYOCO_EVENTS_STREAM", BOTH)] = "PYOCO_EVENTS"
    """The stream that holds the log of every run."""
    events_subject_prefix: Annotated[v.SubjectPrefix, Var("PYOCO_EVENTS_SUBJECT_PREFIX", BOTH)] = "pyoco.events"
    """A run's log is on `<prefix>.<run_id>`."""
    live_subject_prefix: Annotated[v.SubjectPrefix, Var("PYOCO_LIVE_SUBJECT_PREFIX", BOTH)] = "pyoco.live"
    """Where appended events are published again for live feeds."""
    control_subject_prefix: Annotated[v.SubjectPrefix, Var("PYOCO_CONTROL_SUBJECT_PREFIX", BOTH)] = "pyoco.control"
    """On `<prefix>.<run_id>` a run's worker is notified at once of events from other processes, such as a cancel."""
    alive_subject_prefix: Annotated[v.SubjectPrefix, Var("PYOCO_ALIVE_SUBJECT_PREFIX", BOTH)] = "pyoco.alive"
    """On `<prefix>.<instance_id>` a worker process answers the liveness requests of gateways."""
    work_stream: Annotated[v.StreamName, Var("PYOCO_WORK_STREAM", BOTH)] = "PYOCO_WORK"
    """The stream jobs are queued in."""
    work_subject_prefix: Annotated[v.SubjectPrefix, Var("PYOCO_WORK_SUBJECT_PREFIX", BOTH)] = "pyoco.work"
    """Jobs are published on `<prefix>.<tag>`."""
    dlq_stream: Annotated[v.StreamName, Var("PYOCO_DLQ_STREAM", BOTH)] = "PYOCO_DLQ"
    """The stream of dead letters."""
    dlq_subject_prefix: Annotated[v.SubjectPrefix, Var("PYOCO_DLQ_SUBJECT_PREFIX", BOTH)] = "pyoco.dlq"
    """Dead letters are published on `<prefix>.<tag>`."""
    runs_kv_bucket: Annotated[v.BucketName, Var("PYOCO_RUNS_KV_BUCKET", BOTH)] = "pyoco_runs"
    """The newest snapshot of every run."""
    workers_kv_bucket: Annotated[v.BucketName, Var("PYOCO_WORKERS_KV_BUCKET", BOTH)] = "pyoco_workers"
    """The registry of workers."""
    graphs_kv_bucket: Annotated[v.BucketName, Var("PYOCO_GRAPHS_KV_BUCKET", BOTH)] = "pyoco_graphs"
    """The registered graphs."""
    auth_kv_bucket: Annotated[v.BucketName, Var("PYOCO_AUTH_KV_BUCKET", GATEWAY)] = "pyoco_auth"
    """The API keys."""
    wheel_history_kv_bucket: Annotated[v.BucketName, Var("PYOCO_WHEEL_HISTORY_KV_BUCKET", GATEWAY)] = (
        "pyoco_wheel_history"
    )
    """Who uploaded and deleted which wheel."""
    wheels_object_bucket: Annotated[v.BucketName, Var("PYOCO_WHEEL_OBJECT_STORE_BUCKET", BOTH)] = "pyoco_wheels"
    """The wheels."""
    outputs_object_bucket: Annotated[v.BucketName, Var("PYOCO_OUTPUTS_BUCKET", BOTH)] = "pyoco_outputs"
    """Outputs too large for the log."""

    @model_validator(mode="after")
    def _distinct_names(self) -> Self:
        """Refuse equal names of one kind, and a subject within another."""
        fields = type(self).model_fields
        problems = []
        for kind in ("_stream", "_subject_prefix", "_kv_bucket", "_object_bucket"):
            for one, other in combinations([field for field in fields if field.endswith(kind)], 2):
                first, second = getattr(self, one), getattr(self, other)
                if first == second:
                    problems.append(f"{self.variables(one, other)}: both are '{first}', but must differ")
                elif kind == "_subject_prefix" and f"{first}.".startswith(f"{second}."):
                    problems.append(f"{self.variables(one, other)}: '{first}' is within '{second}', but must not be")
                elif kind == "_subject_prefix" and f"{second}.".startswith(f"{first}."):
                    problems.append(f"{self.variables(other, one)}: '{second}' is within '{first}', but must not be")
        if problems:
            raise ValueError("\n".join(problems))
        return self


class Routing(Section):
    """Which workers a run goes to."""

    default_tag: Annotated[v.Tag, Var("PYOCO_DEFAULT_TAG", BOTH)] = "default"
    """The tag of a run that is submitted without one, and of a worker that is started without one."""


class Http(Section):
    """The HTTP gateway."""

    host: Annotated[v.Host, Var("PYOCO_HTTP_HOST", GATEWAY)] = "127.0.0.1"
    """The address to listen on."""
    port: Annotated[v.Port, Var("PYOCO_HTTP_PORT", GATEWAY)] = 8000
    """The port to listen on."""
    allowed_hosts: Annotated[v.Hosts, Var("PYOCO_HTTP_ALLOWED_HOSTS", GATEWAY)] = ()
    """More names under which a gateway without API keys may be reached, separated by commas. It always serves
    `localhost`, loopback addresses, and the address that it listens on."""
    allowed_origins: Annotated[v.Origins, Var("PYOCO_HTTP_ALLOWED_ORIGINS", GATEWAY)] = ()
    """Origins of web pages that may send requests, besides the gateway's own, separated by commas: where the
    dashboard is behind a proxy that changes the `Host`. Their hosts are allowed hosts, too."""
    head_timeout_sec: Annotated[v.Seconds, Var("PYOCO_HTTP_HEAD_TIMEOUT_SEC", GATEWAY)] = 10.0
    """How long the head of a request may take to arrive, and a new connection may be silent."""
    max_connections: Annotated[v.Count, Var("PYOCO_HTTP_MAX_CONNECTIONS", GATEWAY)] = 10_000
    """How many connections may be open. The gateway raises its limit of open files to that; where it cannot, it accepts
    as many as the limit allows, and says so."""
    max_connections_per_address: Annotated[v.CountOrNoLimit, Var("PYOCO_HTTP_MAX_CONNECTIONS_PER_ADDRESS", GATEWAY)] = (
        5_000
    )
    """How many of them may come from one address, at most half of all. Behind a proxy all come from its address; 0 is
    no limit."""
    workflow_yaml_max_bytes: Annotated[v.Bytes, Var("PYOCO_WORKFLOW_YAML_MAX_BYTES", GATEWAY)] = 262_144
    """The largest flow.yaml that is accepted."""
    workflow_yaml: Annotated[v.Truth, Var("PYOCO_WORKFLOW_YAML", GATEWAY)] = True
    """Whether `POST /runs/yaml` is open."""
    watch_max_connections: Annotated[v.Count, Var("PYOCO_WATCH_MAX_CONNECTIONS", GATEWAY)] = 2_000
    """How many connections may watch runs at the same time."""
    watch_max_per_client: Annotated[v.Count, Var("PYOCO_WATCH_MAX_PER_CLIENT", GATEWAY)] = 100
    """How many of them may come from one API key, or without keys from one address."""
    language: Annotated[v.LanguageOrAuto, Var("PYOCO_LANG", GATEWAY)] = "auto"
    """The language of error messages for requests without `Accept-Language`; `auto` is that of the server's locale."""
    dashboard_language: Annotated[v.LanguageOrAuto, Var("PYOCO_DASHBOARD_LANG", GATEWAY)] = "auto"
    """The language of the dashboard; `auto` is that of the server's locale."""


class Auth(Section):
    """Who may use the gateway."""

    mode: Annotated[v.AuthMode, Var("PYOCO_HTTP_AUTH_MODE", GATEWAY)] = "none"
    """Whether requests need an API key."""
    api_key_header: Annotated[v.HeaderName, Var("PYOCO_HTTP_API_KEY_HEADER", GATEWAY)] = "X-API-Key"
    """The header the key comes in."""
    pepper: Annotated[v.Secret, Var("PYOCO_AUTH_PEPPER", GATEWAY, secret=True)] = None
    """Mixed into the stored form of every key; changing it makes all keys invalid. Secret."""
    insecure_no_auth: Annotated[v.Truth, Var("PYOCO_INSECURE_NO_AUTH", GATEWAY)] = False
    """Whether the gateway may listen beyond this machine without API keys: then every client that reaches it may do
    everything."""
    rate_limit_per_sec: Annotated[v.RateOrNoLimit, Var("PYOCO_RATE_LIMIT_PER_SEC", GATEWAY)] = 0.0
    """How many requests a second one API key may make of one gateway; a second's worth may come at once."""
    max_concurrent_requests_per_key: Annotated[
        v.CountOrNoLimit, Var("PYOCO_MAX_CONCURRENT_REQUESTS_PER_KEY", GATEWAY)
    ] = 200
    """How many requests of one API key one gateway works on at a time; those that watch are counted on their own."""


class Heartbeat(Section):
    """Signs of life, and what their absence means."""

    run_interval_sec: Annotated[v.Seconds, Var("PYOCO_RUN_HEARTBEAT_INTERVAL_SEC", WORKER)] = 1.0
    """How often the snapshot of a running run is refreshed."""
    worker_interval_sec: Annotated[v.Seconds, Var("PYOCO_WORKER_HEARTBEAT_INTERVAL_SEC", WORKER)] = 5.0
    """How often a worker reports to the registry."""
    worker_disconnect_timeout_sec: Annotated[v.Seconds, Var("PYOCO_WORKER_DISCONNECT_TIMEOUT_SEC", GATEWAY)] = 20.0
    """How long a worker may be silent before it is shown as `DISCONNECTED`."""
    worker_gone_sec: Annotated[v.SecondsOrZero, Var("PYOCO_WORKER_GONE_SEC", GATEWAY)] = 3.0
    """How long a worker's connection to NATS must be gone before its jobs are given to others without waiting for the
    ack wait; 0: always wait for that."""
    workers_kv_ttl_sec: Annotated[v.SecondsOrNoLimit, Var("PYOCO_WORKERS_KV_TTL_SEC", UNUSED)] = 15.0
    """Accepted for older set-ups; without effect, because workers that are gone stay in the registry."""

    @property
    def fresh_sec(self) -> float:
        """How old the heartbeat of a run may be while a worker executes it."""
        return max(3.0, 3 * self.run_interval_sec)


class ConsumerSettings(Section):
    """How jobs are delivered. A consumer that exists keeps its settings."""

    ack_wait_sec: Annotated[v.Seconds, Var("PYOCO_CONSUMER_ACK_WAIT_SEC", WORKER)] = 30.0
    """How long a worker may be silent about a job before it is delivered to another worker."""
    ack_progress_interval_sec: Annotated[v.Seconds, Var("PYOCO_ACK_PROGRESS_INTERVAL_SEC", WORKER)] = 10.0
    """How often a worker reports that it still works on a job; must be less than the ack wait. If it is not set, it is
    never more than half of the ack wait."""
    max_deliver: Annotated[v.Count, Var("PYOCO_CONSUMER_MAX_DELIVER", WORKER)] = 20
    """How many times a job is delivered at most; the last delivery does not execute the run: it fails the
    run, or replaces the job if other runs used its deliveries up."""
    max_ack_pending: Annotated[v.Count, Var("PYOCO_CONSUMER_MAX_ACK_PENDING", WORKER)] = 200
    """How many jobs of one tag may be in flight at all workers together."""

    @model_validator(mode="after")
    def _progress_within_ack_wait(self) -> Self:
        """Refuse an interval that is too long, and shorten a default one, so that the ack wait can be set alone."""
        if "ack_progress_interval_sec" not in self.model_fields_set:
            most = min(self.ack_progress_interval_sec, self.ack_wait_sec / 2)
            object.__setattr__(self, "ack_progress_interval_sec", most)
        if self.ack_progress_interval_sec >= self.ack_wait_sec:
            raise ValueError(
                f"{self.variables('ack_progress_interval_sec')}={self.ack_progress_interval_sec:g} must be less than "
                f"{self.variables('ack_wait_sec')}={self.ack_wait_sec:g}"
            )
        return self


class DeadLetterSettings(Section):
    """What is kept of jobs that failed."""

    publish_execution_error: Annotated[v.Truth, Var("PYOCO_DLQ_PUBLISH_EXECUTION_ERROR", WORKER)] = True
    """Whether a run that failed in its own code leaves a dead letter too."""
    max_age_sec: Annotated[v.SecondsOrNoLimit, Var("PYOCO_DLQ_MAX_AGE_SEC", BOTH)] = 604_800.0
    """How long dead letters are kept."""
    max_msgs: Annotated[v.CountOrNoLimit, Var("PYOCO_DLQ_MAX_MSGS", BOTH)] = 100_000
    """How many dead letters are kept."""
    max_bytes: Annotated[v.BytesOrNoLimit, Var("PYOCO_DLQ_MAX_BYTES", BOTH)] = 536_870_912
    """How much room dead letters may take."""


class Storage(Section):
    """What is kept where, and how safely."""

    durability: Annotated[v.Durability, Var("PYOCO_DURABILITY", BOTH)] = "sync"
    """Of the embedded NATS server: with `sync` every event is on the disk before it is acknowledged, so that it
    survives a power loss; `fast` leaves that to the operating system: events survive the end of the process, but not a
    power loss."""
    data_dir: Annotated[v.Directory, Var("PYOCO_DATA_DIR", BOTH)] = Path(".pyoco")
    """Where files are kept: the embedded NATS server's and the gateway's index. Only its owner may enter it: one that
    is open to others is closed at the start, with all files in it, unless it is a home directory or like `/tmp`."""
    run_snapshot_max_bytes: Annotated[v.Bytes, Var("PYOCO_MAX_RUN_SNAPSHOT_BYTES", BOTH)] = 262_144
    """The largest snapshot; a larger one loses its `task_records`."""
    inline_output_max_bytes: Annotated[v.Bytes, Var("PYOCO_INLINE_OUTPUT_MAX_BYTES", WORKER)] = 65_536
    """The largest output that is kept in the log; a larger one is kept as an object and referred to."""


class WorkerSettings(Section):
    """The worker."""

    concurrency: Annotated[v.Count, Var("PYOCO_WORKER_CONCURRENCY", WORKER)] = 8
    """How many runs one worker works on at a time."""
    stop_timeout_sec: Annotated[v.SecondsOrZero, Var("PYOCO_WORKER_STOP_TIMEOUT_SEC", WORKER)] = 30.0
    """How long a worker that is asked to stop waits for its runs before it hands them back."""
    cancel_grace_period_sec: Annotated[v.SecondsOrZero, Var("PYOCO_CANCEL_GRACE_PERIOD_SEC", BOTH)] = 30.0
    """How long cancelled tasks may take to stop; then the run ends without them."""
    callables: Annotated[v.Callables, Var("PYOCO_CALLABLES", BOTH)] = ()
    """Which functions a flow.yaml of a client may name beside plug-ins and those that come with the worker's flow files
    and wheels. Patterns, separated by commas: `numpy` (the module and all modules in it), `math:sqrt` (one function),
    `*` for any text, `!subprocess` to deny. A gateway rejects at once what it can judge: give it the same."""
    expose_env: Annotated[v.ExposedNames, Var("PYOCO_EXPOSE_ENV", WORKER)] = ()
    """Which environment variables a flow.yaml may see if its `runtime.expose_env` lists them: names, separated by
    commas; `*` in a name is any text. PYOCO_* and names that look like secrets (KEY, TOKEN, PASSWORD, …) never are."""
    result_key: Annotated[v.ResultKey, Var("PYOCO_RESULT_KEY", WORKER, secret=True)] = None
    """The key that signs pickled results. Secret, the same for all workers. Without it a worker takes the key in the
    file `result.key` of PYOCO_DATA_DIR, which the embedded platform writes; without either, results that need pickling
    are lost to other processes."""


class Limits(Section):
    """What one run, and all runs of one tenant, may cost."""

    run_max_rounds: Annotated[v.Count, Var("PYOCO_RUN_MAX_ROUNDS", BOTH)] = 100_000
    """How many rounds one loop may have. A flow.yaml that has more is rejected, a run that comes to more fails."""
    run_max_nodes: Annotated[v.Count, Var("PYOCO_RUN_MAX_NODES", BOTH)] = 100_000
    """How many nodes one run may have; every task and every block of every round is one."""
    run_max_events: Annotated[v.Count, Var("PYOCO_RUN_MAX_EVENTS", BOTH)] = 1_000_000
    """How many events one run may have; attempts and reports of progress are events, too. Then it gets no further
    node, attempt or progress."""

    tenant_max_live_runs: Annotated[v.CountOrNoLimit, Var("PYOCO_TENANT_MAX_LIVE_RUNS", GATEWAY)] = 0
    """How many runs of one tenant may be there that have not ended."""
    tenant_max_submissions_per_min: Annotated[
        v.CountOrNoLimit, Var("PYOCO_TENANT_MAX_SUBMISSIONS_PER_MIN", GATEWAY)
    ] = 0
    """How many runs one tenant may submit within any minute."""
    tenant_max_stored_bytes: Annotated[v.BytesOrNoLimit, Var("PYOCO_TENANT_MAX_STORED_BYTES", GATEWAY)] = 0
    """How much room the runs of one tenant may take (snapshots, flow.yaml files and results) before it may submit no
    more."""

    @property
    def of_tenant(self) -> QuotaLimits:
        """The quotas of each tenant."""
        return QuotaLimits(
            live_runs=self.tenant_max_live_runs,
            submissions_per_min=self.tenant_max_submissions_per_min,
            stored_bytes=self.tenant_max_stored_bytes,
        )

    @property
    def of_run(self) -> RunLimits:
        """The limits of one run."""
        return RunLimits(rounds=self.run_max_rounds, nodes=self.run_max_nodes, events=self.run_max_events)


class Wheels(Section):
    """The registry of wheels, and how workers follow it."""

    max_bytes: Annotated[v.Bytes, Var("PYOCO_WHEEL_MAX_BYTES", GATEWAY)] = 536_870_912
    """The largest wheel that is accepted."""
    allow_startup_files: Annotated[v.Truth, Var("PYOCO_WHEEL_ALLOW_STARTUP_FILES", GATEWAY)] = False
    """Whether a wheel may bring files that run whenever Python starts (`*.pth`, `sitecustomize.py`)."""
    history_ttl_sec: Annotated[v.SecondsOrNoLimit, Var("PYOCO_WHEEL_HISTORY_TTL_SEC", GATEWAY)] = 7_776_000.0
    """How long the history is kept."""
    sync_enabled: Annotated[v.Truth, Var("PYOCO_WHEEL_SYNC_ENABLED", WORKER)] = False
    """Whether the worker installs the wheels meant for its tags."""
    sync_dir: Annotated[v.Directory, Var("PYOCO_WHEEL_SYNC_DIR", WORKER)] = Path(".pyoco/wheels")
    """Where the worker keeps them."""
    sync_interval_sec: Annotated[v.Seconds, Var("PYOCO_WHEEL_SYNC_INTERVAL_SEC", WORKER)] = 10.0
    """How often it looks for new ones."""
    install_timeout_sec: Annotated[v.Seconds, Var("PYOCO_WHEEL_INSTALL_TIMEOUT_SEC", WORKER)] = 180.0
    """How long an installation may take."""


class Logs(Section):
    """The log. An invalid setting here prevents no start: the default is used, and ERR-PYOCO-0013 reports it."""

    level: Annotated[v.LogLevel, Var("PYOCO_LOG_LEVEL", BOTH)] = "INFO"
    """The least important messages that are written."""
    format: Annotated[v.LogFormat, Var("PYOCO_LOG_FORMAT", BOTH)] = "json"
    """`json` for programs, one object a line; `text` for people."""
    utc: Annotated[v.Truth, Var("PYOCO_LOG_UTC", BOTH)] = True
    """Whether times are UTC or local; either way they say which."""
    include_traceback: Annotated[v.Truth, Var("PYOCO_LOG_INCLUDE_TRACEBACK", BOTH)] = True
    """Whether an exception is written with its traceback."""


class EnvFile(Section):
    """The file that can hold all the other variables. These two are read from the environment only."""

    load: Annotated[v.Truth, Var("PYOCO_LOAD_DOTENV", BOTH)] = True
    """Whether it is read."""
    path: Annotated[v.AnyFile, Var("PYOCO_ENV_FILE", BOTH)] = Path(".env")
    """Which file. The default need not exist; one that is named here must."""


class Settings(BaseModel):
    """All settings. ``Settings()`` has the defaults."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    nats: Nats = Nats()
    names: NameSettings = NameSettings()
    routing: Routing = Routing()
    http: Http = Http()
    auth: Auth = Auth()
    heartbeat: Heartbeat = Heartbeat()
    consumer: ConsumerSettings = ConsumerSettings()
    dead_letters: DeadLetterSettings = DeadLetterSettings()
    storage: Storage = Storage()
    worker: WorkerSettings = WorkerSettings()
    limits: Limits = Limits()
    wheels: Wheels = Wheels()
    logs: Logs = Logs()
    env_file: EnvFile = EnvFile()


def secret_variables() -> list[str]:
    """Return the names of the variables whose values are secret."""
    sections: list[type[Section]] = [type(field.get_default()) for field in Settings.model_fields.values()]
    found = [var_of(field) for section in sections for field in section.model_fields.values()]
    return [var.name for var in found if var.secret]


def doubts(settings: Settings) -> list[str]:
    """Describe settings that are allowed but probably a mistake."""
    found = []
    beat, silence = settings.heartbeat.worker_interval_sec, settings.heartbeat.worker_disconnect_timeout_sec
    if beat >= silence:
        found.append(
            f"PYOCO_WORKER_HEARTBEAT_INTERVAL_SEC={beat:g} is not less than PYOCO_WORKER_DISCONNECT_TIMEOUT_SEC="
            f"{silence:g}: workers will seem disconnected between two heartbeats"
        )
    run_beat, gone = settings.heartbeat.run_interval_sec, settings.heartbeat.worker_gone_sec
    if 0 < gone < 2 * run_beat:
        found.append(
            f"PYOCO_WORKER_GONE_SEC={gone:g} is less than twice PYOCO_RUN_HEARTBEAT_INTERVAL_SEC={run_beat:g}: a "
            "worker that cannot be asked may be taken for gone between two heartbeats of its runs"
        )
    slots, pending = settings.worker.concurrency, settings.consumer.max_ack_pending
    if slots > pending:
        found.append(
            f"PYOCO_WORKER_CONCURRENCY={slots} is more than PYOCO_CONSUMER_MAX_ACK_PENDING={pending}: a worker can "
            "never be busy with that many runs of one tag"
        )
    return found
