"""Usage errors: a cause, an example, exit code 1, and no request is sent."""

from pathlib import Path

import pytest

from tests.cli.gateway_commands import Caller
from tests.client.scripted_gateway import ScriptedGateway


@pytest.fixture
def call(gateway: ScriptedGateway, capsys: pytest.CaptureFixture[str]) -> Caller:
    return Caller(gateway, capsys)


MISSING = [
    ([], "the following arguments are required: COMMAND"),
    (["frobnicate"], "invalid choice: 'frobnicate'"),
    (["submit"], "one of the arguments FLOW --flow-name is required"),
    (["submit-yaml"], "one of the arguments FILE --workflow-file is required"),
    (["submit-yaml", "--flow-name", "f"], "one of the arguments FILE --workflow-file is required"),
    (["get"], "one of the arguments RUN_ID --run-id is required"),
    (["tasks"], "one of the arguments RUN_ID --run-id is required"),
    (["watch"], "one of the arguments RUN_ID --run-id is required"),
    (["events"], "one of the arguments RUN_ID --run-id is required"),
    (["replay"], "one of the arguments RUN_ID --run-id is required"),
    (["cancel"], "one of the arguments RUN_ID --run-id is required"),
    (["resume"], "the following arguments are required: RUN_ID, NODE"),
    (["resume", "r1"], "the following arguments are required: NODE"),
    (["worker-hide"], "one of the arguments WORKER_ID --worker-id is required"),
    (["worker-show"], "one of the arguments WORKER_ID --worker-id is required"),
    (["dlq", "show"], "the following arguments are required: SEQUENCE"),
    (["dlq", "drop"], "invalid choice: 'drop'"),
    (["wheel-upload"], "one of the arguments FILE --wheel-file is required"),
    (["wheel-delete"], "one of the arguments NAME --name is required"),
]
WRONG = [
    (["submit", "--flow-name", " "], "--flow-name: is empty"),
    (["submit", "--flow-name", "f", "--params", "{"], "--params is not JSON"),
    (["submit", "--flow-name", "f", "--params", "[1]"], "--params must be an object"),
    (["submit", "--flow-name", "f", "--params", '{"a": NaN}'], "NaN is not a JSON value"),
    (["submit", "--flow-name", "f", "--param", "a"], "is not of the form name=value"),
    (["submit", "--flow-name", "f", "--params-file", "no.json"], "--params-file no.json: No such file"),
    (["submit", "--flow-name", "f", "--tags", " , "], "names none"),
    (["submit", "--flow-name", "f", "--tag", ""], "--tag: is empty"),
    (["submit", "--flow-name", "f", "--idempotency-key", "é"], "idempotency_key: 'é' must be printable ASCII"),
    (["submit", "--flow-name", "f", "--unknown"], "unrecognized arguments: --unknown"),
    (["submit", "--flow", "f"], "unrecognized arguments: --flow; did you mean '--flow-name'?"),
    (["submit-yaml", "--workflow-file", "no.yaml", "--flow-name", "f"], "--workflow-file no.yaml: No such file"),
    (["submit-yaml", "--workflow-file", ".", "--flow-name", "f"], "--workflow-file .: Is a directory"),
    (["submit-yaml", "--workflow-file", "a\0b", "--flow-name", "f"], "embedded null byte"),
    (["get", ""], "run_id: '' is not valid"),
    (["get", ".."], "run_id: '..' is not valid"),
    (["get", "r1", "--run-id", "r2"], "not allowed with"),
    (["get", "r1", "r2"], "unrecognized arguments: r2"),
    (["get", "r1", "--output", "xml"], "invalid choice: 'xml'"),
    (["tasks", "r1", "--output", "status"], "invalid choice: 'status'"),
    (["list", "--status", "DONE"], "invalid choice: 'DONE'"),
    (["list", "--limit", "0"], "'0' is not a whole number from 1 to 200"),
    (["list", "--limit", "201"], "'201' is not a whole number from 1 to 200"),
    (["list", "--limit", "many"], "'many' is not a whole number"),
    (["list", "--limit", "--1"], "expected one argument"),
    (["list", "--updated-after", "yesterday"], "'yesterday' is not a time in Unix seconds"),
    (["list", "--updated-after", "nan"], "'nan' is not a time in Unix seconds"),
    (["list", "--submitted-after", "yesterday"], "'yesterday' is not a time in Unix seconds"),
    (["list", "--submitted-after", "inf"], "'inf' is not a time in Unix seconds"),
    (["list", "--cursor", ""], "--cursor: is empty"),
    (["list-vnext", "--limit", "1e3"], "'1e3' is not a whole number"),
    (["list-vnext", "--output", "status"], "invalid choice: 'status'"),
    (["watch", "r1", "--output", "table"], "invalid choice: 'table'"),
    (["watch", "r1", "--timeout-sec", "0"], "'0' is not a number of seconds above 0"),
    (["watch", "r1", "--timeout-sec", "inf"], "'inf' is not a number of seconds"),
    (["watch", "r1", "--max-events", "0"], "'0' is not a whole number, 1 or more"),
    (["watch", "r1", "--since", "x"], "'x' is not a time in Unix seconds"),
    (["submit", "f", "--flow-name", "g"], "argument --flow-name: not allowed with argument FLOW"),
    (["submit", "f", "--timeout-sec", "5"], "--timeout-sec needs --wait"),
    (["submit", "f", "--output", "xml"], "invalid choice: 'xml'"),
    (["submit", "f", "name=Ada"], "unrecognized arguments: name=Ada"),
    (
        ["submit-yaml", "a.yaml", "--workflow-file", "b.yaml"],
        "argument --workflow-file: not allowed with argument FILE",
    ),
    (["cancel", "r1", "--run-id", "r2"], "argument --run-id: not allowed with argument RUN_ID"),
    (["cancel", "--runid=r1"], "RUN_ID --run-id is required; did you mean '--run-id'?"),
    (["wheel-upload", "a.whl", "--wheel-file", "b.whl"], "argument --wheel-file: not allowed with argument FILE"),
    (["wheel-delete", "a.whl", "--name", "b.whl"], "argument --name: not allowed with argument NAME"),
    (["wheel-delete", "a.zip"], "--name: 'a.zip' is not the name of a wheel"),
    (["sumbit", "f"], "did you mean 'submit'?"),
    (["dev", "flows.py"], "invalid choice: 'dev'"),
    (["dev", "flows.py"], "; it is pyoco-server dev"),
    (["list", "--status", "failed"], "did you mean 'FAILED'?"),
    (["cancel", "--run-id", "r1", "--timeout-sec", "5"], "--timeout-sec needs --wait"),
    (["cancel", "--run-id", "r1", "--wait", "--timeout-sec", "-1"], "'-1' is not a number of seconds above 0"),
    (["resume", "r1", "ask", "--input", "{"], "--input is not JSON"),
    (["resume", "r1", "ask", "--input", "yes"], "--input is not JSON"),
    (["resume", "r1", "a//b"], "node: 'a//b' is not valid"),
    (["events", "r1", "--after", "-1"], "'-1' is not a whole number, 0 or more"),
    (["replay", "r1", "--at", "-1"], "'-1' is not a whole number, 0 or more"),
    (["replay", "r1", "--at", "x"], "'x' is not a whole number"),
    (["workers", "--scope", "some"], "invalid choice: 'some'"),
    (["workers", "--state", "idle"], "invalid choice: 'idle'"),
    (["workers", "--limit", "501"], "'501' is not a whole number from 1 to 500"),
    (["worker-hide", ""], "worker_id: '' is not valid"),
    (["metrics", "all"], "unrecognized arguments: all"),
    (["dlq", "show", "0"], "'0' is not a whole number, 1 or more"),
    (["dlq", "list", "--limit", "501"], "'501' is not a whole number from 1 to 500"),
    (["wheel-history", "--limit", "501"], "'501' is not a whole number from 1 to 500"),
    (["wheel-history", "--action", "replace"], "invalid choice: 'replace'"),
    (["wheel-history", "--wheel-name", "a.zip"], "'a.zip' is not the name of a wheel"),
    (["wheel-upload", "--wheel-file", "a.zip"], "--wheel-file a.zip: not the name of a wheel"),
    (["wheel-upload", "--wheel-file", "no.whl"], "--wheel-file no.whl: No such file"),
    (["wheel-upload", "--wheel-file", "no.whl", "--tags", ","], "names none"),
    (["wheel-delete", "--name", "../a.whl"], "is not the name of a wheel"),
    (["list", "--server", "nowhere"], "--server: 'nowhere' is not a URL such as http://127.0.0.1:8000"),
    (["--server", "http://x?y=1", "list"], "has a query or a fragment"),
    (["list", "--api-key", "a\nb"], "--api-key: must be printable ASCII"),
    (["list", "--api-key", "k", "--api-key-header", "a b"], "--api-key-header: must be printable ASCII"),
    (["list", "--lang", "fr"], "invalid choice: 'fr'"),
    (["--lang", "fr", "list"], "invalid choice: 'fr'"),
]


@pytest.mark.spec("004 REQ-0021", "004 ERR-PYOCO-0018")
@pytest.mark.parametrize(("args", "said"), MISSING + WRONG)
def test_a_usage_error_has_its_cause_and_an_example(
    call: Caller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, args: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYOCO_SERVER_URL", call.gateway.url)
    done = call.without_server(*args)
    assert done.code == 1
    assert done.out == ""
    assert said in done.err
    assert "[MSG-PYOCO-0018/ERR-PYOCO-0018]" in done.err
    assert done.err.splitlines()[-1].split("example: ")[1].count("pyoco-client ") == 1
    assert call.gateway.requests == []


def test_the_example_is_one_of_the_command_that_was_typed(call: Caller) -> None:
    done = call("submit", "--flow-name", "hello", "--params", "{")
    assert done.err.splitlines()[-1] == (
        """example: pyoco-client submit hello --params '{"name": "Ada", "count": 3}'"""
    )
