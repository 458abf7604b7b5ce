"""``pyoco-client run``: flows, parameters, output and exit codes."""

import re
from pathlib import Path

import pytest

from pyoco_server.cli.client import main as client
from pyoco_server.core import decode_event, encode_event, fold
from tests.cli.commands import call, write

GREET = """
@task
def greet(name="you", count=1):
    print("in the task")
    return [f"hello {name}", count]
flow = Flow("greeting") >> greet
"""
FAILING = """
@task
def divide(by=0):
    return 1 / by
flow = Flow("dividing") >> divide
"""
FILES = {
    "hello.py": GREET,
    "empty.py": "",
    "broken.py": "def (:\n",
    "raising.py": "1 / 0\n",
    "leaving.py": "raise SystemExit(0)\n",
    "notes.txt": "",
}


def test_a_flow_that_completes(tmp_path: Path) -> None:
    done = call(tmp_path, "run", write(tmp_path, "hello.py", GREET))
    assert done.returncode == 0, done.stderr
    assert re.search(r"^\d\d:\d\d:\d\d NODE_STARTED greet$", done.stdout, re.MULTILINE)
    assert re.search(r'^\d\d:\d\d:\d\d NODE_SUCCEEDED greet \["hello you", 1\]$', done.stdout, re.MULTILINE)
    assert "COMPLETED in" in done.stdout
    assert done.stderr == ""


def test_a_flow_that_fails_shows_where(tmp_path: Path) -> None:
    done = call(tmp_path, "run", write(tmp_path, "bad.py", FAILING))
    assert done.returncode == 1
    assert "FAILED in" in done.stdout
    assert "'divide' failed: ZeroDivisionError: division by zero" in done.stderr
    assert "return 1 / by" in done.stderr


def test_an_error_inside_a_block_is_printed_once(tmp_path: Path) -> None:
    done = call(tmp_path, "run", write(tmp_path, "bad.py", FAILING.replace(">> divide", ">> divide[2]")))
    assert done.returncode == 1
    assert done.stderr.count("failed: ") == 1
    assert "':repeat[0]/divide' failed: ZeroDivisionError" in done.stderr


def test_json_lines_are_the_log_and_nothing_else(tmp_path: Path) -> None:
    done = call(tmp_path, "run", write(tmp_path, "hello.py", "print('while loading')\n" + GREET), "--json")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    events = [decode_event(line) for line in lines]
    assert fold(events).status == "COMPLETED"
    assert [encode_event(event).decode() for event in events] == lines
    assert done.stderr.splitlines() == ["while loading", "in the task"]


def test_json_of_a_failure_keeps_stdout_clean(tmp_path: Path) -> None:
    done = call(tmp_path, "run", write(tmp_path, "bad.py", FAILING), "--json")
    assert done.returncode == 1
    assert fold([decode_event(line) for line in done.stdout.splitlines()]).status == "FAILED"
    assert "ZeroDivisionError" in done.stderr


def test_module_and_flow(tmp_path: Path) -> None:
    (tmp_path / "shop").mkdir()
    write(tmp_path, "shop/flows.py", GREET)
    assert call(tmp_path, "run", "shop.flows:flow", "--param", "name=Ada").returncode == 0
    assert '"hello Ada"' in call(tmp_path, "run", "shop.flows:greeting", "--param", "name=Ada").stdout


def test_a_flow_is_chosen_by_name(tmp_path: Path) -> None:
    text = GREET + "other = Flow('second') >> greet\n"
    file = write(tmp_path, "two.py", text)
    refused = call(tmp_path, "run", file)
    assert refused.returncode == 1
    assert "two.py has several flows: flow ('greeting'), other ('second')" in refused.stderr
    assert "--flow flow" in refused.stderr
    assert "flow=second" in call(tmp_path, "run", file, "--flow", "other").stdout
    assert "flow=second" in call(tmp_path, "run", file, "--flow", "second").stdout


def test_a_task_in_a_process_of_its_own(tmp_path: Path) -> None:
    text = GREET.replace("flow =", "options(greet, isolation='process')\nflow =")
    done = call(tmp_path, "run", write(tmp_path, "apart.py", text))
    assert done.returncode == 0, done.stderr


YAML = """\
version: 1
flow:
  graph: fetch >> double
  defaults: { n: 4 }
tasks:
  fetch: { callable: "beside:fetch" }
  double: { callable: "beside:double" }
"""


def test_a_yaml_flow_with_its_tasks_beside_it(tmp_path: Path) -> None:
    (tmp_path / "flows").mkdir()
    (tmp_path / "flows" / "shop.yaml").write_text(YAML)
    (tmp_path / "flows" / "beside.py").write_text("def fetch(n): return n\ndef double(fetch): return fetch * 2\n")
    done = call(tmp_path, "run", "flows/shop.yaml", "--param", "n=21")
    assert done.returncode == 0, done.stderr
    assert "flow=shop" in done.stdout
    assert "double = 42" in done.stdout


def test_a_slip_in_a_yaml_flow_is_shown_with_its_place(tmp_path: Path) -> None:
    done = call(tmp_path, "run", write(tmp_path, "slip.yaml", "flow:\n  graph: a >> >> b\n"))
    assert done.returncode == 1
    assert "slip.yaml: line 2, column " in done.stderr
    assert "MSG-PYOCO-0002/ERR-PYOCO-0002" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_yaml_flow_whose_task_cannot_be_imported(tmp_path: Path) -> None:
    done = call(tmp_path, "run", write(tmp_path, "shop.yaml", YAML))
    assert done.returncode == 1
    assert "shop.yaml: line 6, column 22: task 'fetch': cannot import 'beside:fetch'" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ([], "the following arguments are required"),
        (["walk"], "invalid choice: 'walk'"),
        (["run"], "the following arguments are required"),
        (["run", "hello.py", "--unknown"], "unrecognized arguments: --unknown"),
        (["run", "hello.py", "--json", "--plain"], "not allowed with argument --json"),
        (["run", "hello.py", "--grace-sec", "-1"], "--grace-sec"),
        (["run", "hello.py", "--grace-sec", "soon"], "--grace-sec"),
        (["run", "none.py"], "none.py: No such file"),
        (["run", "none.yaml"], "none.yaml: No such file"),
        (["run", "."], "is neither a file nor of the form MODULE:FLOW"),
        (["run", "hello"], "is neither a file nor of the form MODULE:FLOW"),
        (["run", "hello.py:flow"], "name the flow of a file with --flow flow"),
        (["run", "./hello:flow"], "'./hello' is not the name of a module"),
        (["run", "nowhere:flow"], "there is no module 'nowhere'"),
        (["run", "hello.nowhere:flow"], "cannot be imported"),
        (["run", "hello:none"], "hello has no flow 'none', it has: flow ('greeting')"),
        (["run", "hello.py", "--flow", "none"], "hello.py has no flow 'none', it has: flow ('greeting')"),
        (["run", "empty.py"], "empty.py has no flow"),
        (["run", "broken.py"], "broken.py cannot be imported: SyntaxError"),
        (["run", "raising.py"], "raising.py cannot be imported: ZeroDivisionError: division by zero ("),
        (["run", "leaving.py"], "leaving.py cannot be imported: SystemExit"),
        (["run", "notes.txt"], "notes.txt is neither Python nor YAML"),
    ],
)
def test_a_usage_error_has_an_example_and_no_traceback(
    here: Path, capsys: pytest.CaptureFixture[str], args: list[str], said: str
) -> None:
    for name, text in FILES.items():
        write(here, name, text)
    assert client.main(args) == 1
    out, err = capsys.readouterr()
    assert said in err
    assert "MSG-PYOCO-0018/ERR-PYOCO-0018" in err
    assert "example: " in err
    assert "Traceback" not in err
    assert out == ""


def test_a_terminal_that_lacks_characters_does_not_fail_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    done = call(tmp_path, "run", write(tmp_path, "hello.py", GREET), "--param", "name=Zoë")
    assert done.returncode == 0, done.stderr
    assert r"hello Zo\xeb" in done.stdout


def test_a_flow_without_tasks(tmp_path: Path) -> None:
    done = call(tmp_path, "run", write(tmp_path, "none.py", "flow = Flow()\n"))
    assert "Traceback" not in done.stderr
    assert done.returncode == 1


def test_help(tmp_path: Path) -> None:
    done = call(tmp_path, "run", "--help")
    assert done.returncode == 0
    assert "FILE|MODULE:FLOW" in done.stdout
