"""Which environment variables a flow.yaml may see."""

from pathlib import Path

import pytest

from pyoco_server.app.runtime.context import Place, RunScope
from pyoco_server.engine import Engine
from pyoco_server.flows.environment import check_exposed, is_exposed, is_protected, visible_names
from pyoco_server.flows.errors import EnvironmentNotExposedError
from pyoco_server.flows.yaml.document import read_flow_yaml

PROTECTED = (
    *("PYOCO_AUTH_PEPPER", "PYOCO_NATS_URL", "pyoco_lang", "Pyoco_Data_Dir", "AWS_SECRET_ACCESS_KEY", "OPENAI_API_KEY"),
    *("GITHUB_TOKEN", "PGPASSWORD", "DB_PASSWORD1", "db_passwd", "MY_CREDENTIALS", "SSH_AUTH_SOCK", "SENTRY_DSN"),
    *("DB_PWD", "APIKEY", "ssh_private_x", "SESSION_ID", "MyToken"),
)
PLAIN = ("HOME", "PATH", "LANG", "MAIL_HOST", "PWD", "OLDPWD", "APP_MODE")


@pytest.mark.parametrize("name", PROTECTED)
def test_the_platforms_variables_and_secrets_are_never_visible(name: str) -> None:
    assert is_protected(name)
    assert not is_exposed(name, None)
    assert not is_exposed(name, ("*", name))
    with pytest.raises(EnvironmentNotExposedError, match=f"'{name}' is never visible"):
        check_exposed((name,), ("*",))


@pytest.mark.parametrize("name", PLAIN)
def test_other_variables_are_visible_if_the_operator_says_so(name: str) -> None:
    assert is_exposed(name, None)
    assert is_exposed(name, (name,))
    assert is_exposed(name, ("*",))
    assert not is_exposed(name, ())
    assert not is_exposed(name, ("OTHER", f"{name}_X"))
    with pytest.raises(EnvironmentNotExposedError, match=f"PYOCO_EXPOSE_ENV={name}"):
        check_exposed((name,), ())


def test_a_flow_sees_what_it_lists_within_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("APP_ONE", "APP_TWO", "MAIL_HOST", "APP_TOKEN"):
        monkeypatch.setenv(name, name.lower())
    visible = visible_names(("APP_ONE", "MAIL_HOST", "APP_TOKEN", "APP_GONE"), ("APP_*",))
    context = RunScope("r", "f", {}, "", visible=visible).context(Place())
    assert context.env_data() == {"APP_ONE": "app_one"}
    assert context.resolve("$env.APP_ONE") == "app_one"
    for name in ("APP_TWO", "MAIL_HOST", "APP_TOKEN", "APP_GONE", "PATH"):
        with pytest.raises(KeyError, match="not shown by this worker"):
            context.resolve(f"$env.{name}")
    assert visible_names(None, ()) is None
    assert RunScope("r", "f", {}, "").context(Place()).resolve("$env.MAIL_HOST") == "mail_host"


def test_a_run_without_a_server_shows_what_the_file_lists_but_no_secrets(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("APP_MODE", "fast")
    monkeypatch.setenv("APP_TOKEN", "secret")
    task = "tasks: { a: { callable: 'os.path:basename', inputs: { p: $env.APP_MODE } } }"
    text = f"version: 1\nflow: {{ graph: a }}\n{task}\nruntime: {{ expose_env: [%s] }}\n"
    with Engine(artifacts=tmp_path) as engine:
        assert engine.run(read_flow_yaml(text % "APP_MODE", name="f")).results["a"] == "fast"
        with pytest.raises(EnvironmentNotExposedError, match="'APP_TOKEN' is never visible"):
            engine.run(read_flow_yaml(text.replace("APP_MODE", "APP_TOKEN") % "APP_TOKEN", name="f"))
