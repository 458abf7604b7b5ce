"""Parameters of a run: from a file, as an object, one by one."""

import json
from pathlib import Path
from typing import Any

import pytest

from pyoco_server.cli.client import main as client
from pyoco_server.cli.shared.errors import UsageError
from pyoco_server.cli.shared.params import read_params
from tests.cli.commands import call, write

SHOW = "@task\ndef show(ctx): return dict(ctx.params)\nflow = Flow() >> show\n"


def shown(folder: Path, *args: str) -> Any:
    """The parameters that a run started with these arguments sees."""
    done = call(folder, "run", write(folder, "p.py", SHOW), *args)
    assert done.returncode == 0, done.stderr
    line = next(line for line in done.stdout.splitlines() if line.startswith("show = "))
    return json.loads(line.removeprefix("show = "))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("p.json", '{"a": "file", "b": "file", "c": "file", "d": [1]}'),
        ("p.yaml", "# mine\na: file\nb: file\nc: file\nd: [1]\n"),
    ],
)
def test_parameters_in_all_forms_and_the_later_wins(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    given = ["--param", "c=3", "--param", "e=x=y", "--param", "f=one", "--param", 'f={"g": null}']
    objects = ["--params", '{"b": "text", "c": "text"}', "--params-file", name]
    expected = {"a": "file", "b": "text", "c": 3, "d": [1], "e": "x=y", "f": {"g": None}}
    assert shown(tmp_path, *given, *objects) == expected


@pytest.mark.parametrize(
    ("name", "text", "params"),
    [
        ("p.json", b'\xef\xbb\xbf{"a": 1e3}\r\n', {"a": 1000.0}),
        ("p.JSON", b'{"a": {"b": [true, null]}}', {"a": {"b": [True, None]}}),
        ("p.yml", b"\xef\xbb\xbfa: 1\r\nb:\r\n  - yes\r\n  - 'yes'\r\n", {"a": 1, "b": [True, "yes"]}),
        ("p.yaml", b'{"a": "json is yaml too", "b": 1.5}', {"a": "json is yaml too", "b": 1.5}),
        ("p.yaml", b"{}", {}),
        ("params", b'  {"a": 1e3}', {"a": 1000.0}),
        ("params", b"a: 1", {"a": 1}),
        ("p.txt", "name: Zoë".encode(), {"name": "Zoë"}),
    ],
)
def test_files_of_both_kinds(tmp_path: Path, name: str, text: bytes, params: dict[str, Any]) -> None:
    (tmp_path / name).write_bytes(text)
    assert read_params([], None, str(tmp_path / name)) == params


@pytest.mark.parametrize(
    ("typed", "value"),
    [
        ("3", 3),
        ("3.5", 3.5),
        ("true", True),
        ("True", "True"),
        ("null", None),
        ("", ""),
        ('"3"', "3"),
        ("[1, 2]", [1, 2]),
        ("[1, 2", "[1, 2"),
        ("007", "007"),
        ("NaN", "NaN"),
        ("a=b", "a=b"),
        (" two words ", " two words "),
    ],
)
def test_a_typed_value_is_json_if_it_is_json_and_text_otherwise(typed: str, value: Any) -> None:
    assert read_params([f"x={typed}"], None, None) == {"x": value}


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("p.json", "", "is not JSON: Expecting value"),
        ("p.json", "a: 1", "is not JSON"),
        ("p.json", "[1]", 'must be an object, such as {"count": 3}'),
        ("p.json", '{"a": NaN}', "NaN is not a JSON value"),
        ("params", '{"a": NaN}', "NaN is not a JSON value"),
        ("p.yaml", "", "line 1, column 1: the file is empty; write keys and values"),
        ("p.yaml", "- 1", "must be an object"),
        ("p.yaml", "just text", "must be an object"),
        ("p.yaml", "a: &x 1\nb: *x", "line 1, column 4: anchor '&x'; remove it"),
        ("p.yaml", "a: !!python/object/apply:os.system [ls]", "line 1, column 4: tag"),
        ("p.yaml", "a: 1\na: 2", "line 2, column 1: key 'a' stands here twice"),
        ("p.yaml", "a: 2024-01-01", "put it in quotes if it is meant as text: '2024-01-01'"),
        ("p.yaml", "a: .inf", "line 1, column 4: '.inf' is not a finite number"),
        ("p.yaml", "a:\n\t- 1", "line 2, column 1: "),
        ("p.yaml", "a: 1\n---\nb: 1", "line 2, column 1: a second document"),
        ("p.yaml", '1: "a"', "the key 1 is not text"),
        ("p.yaml", r'a: "\ud800"', "p.yaml: "),
        ("p.yaml", "a: " + "x" * 300_000, "more than 262144 bytes"),
        ("p.yaml", b"a: \xff", "p.yaml: "),
    ],
)
def test_a_file_that_is_not_understood(tmp_path: Path, name: str, text: str | bytes, said: str) -> None:
    (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(UsageError) as refused:
        read_params([], None, str(tmp_path / name))
    assert f"--params-file {tmp_path / name}" in str(refused.value)
    assert said in str(refused.value)
    assert "--params-file params.yaml" in str(refused.value.example)


@pytest.mark.parametrize(
    ("args", "said", "example"),
    [
        (["--param", "novalue"], "--param 'novalue' is not of the form name=value", "--param name=Ada"),
        (["--param", "=1"], "is not of the form name=value", "--param name=Ada"),
        (["--param", "a=\udcff"], "is not UTF-8 text", "--param name=Ada"),
        (["--params", "{"], "--params is not JSON", '--params \'{"name": "Ada"'),
        (["--params", "{name: Ada}"], "--params is not JSON", '--params \'{"name": "Ada"'),
        (["--params", "[1]"], "--params must be an object", '--params \'{"name": "Ada"'),
        (["--params", '{"a": NaN}'], "NaN is not a JSON value", "--params"),
        (["--params", '{"a": 1e999}'], "1e999 is not a JSON value", "--params"),
        (["--params", r'{"a": "\ud800"}'], "half of a surrogate pair", "--params"),
        (["--params", "[" * 100_000], "nested too deeply", "--params"),
        (["--params-file", "none.json"], "none.json: No such file", "--params-file params.yaml"),
        (["--params-file", "."], "Is a directory", "--params-file params.yaml"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_usage_error_has_a_corrected_example(
    here: Path, capsys: pytest.CaptureFixture[str], args: list[str], said: str, example: str
) -> None:
    assert client.main(["run", write(here, "p.py", SHOW), *args]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err
    assert "MSG-PYOCO-0018/ERR-PYOCO-0018" in err
    assert example in err.splitlines()[-1]
    assert "Traceback" not in err
