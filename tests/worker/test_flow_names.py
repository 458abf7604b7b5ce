"""Flows and the names they go by: models in modules, files of one name, names that were nearly right."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pyoco_server.flows.model import FlowModel
from pyoco_server.worker.flow_source import ResolverError, discover, load_resolver

pytestmark = pytest.mark.usefixtures("own_modules")

FLOW = """
from pyoco import Flow, task

@task
def only():
    return 1

flow = Flow("{name}") >> only
"""
MODEL = '''
from pyoco_server.flows.yaml.document import read_flow_yaml

TEXT = """
version: 1
flow:
  graph: base
tasks:
  base:
    callable: os.path:basename
"""
flow = read_flow_yaml(TEXT, name="{name}")
'''


def write(path: str, text: str) -> str:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(text, encoding="utf-8")
    return path


def test_a_flow_read_from_yaml_in_a_module_is_found() -> None:
    write("reading_flows.py", MODEL.format(name="read"))
    for place in ("reading_flows.py", "reading_flows"):
        found = discover([place])("read")
        assert isinstance(found, FlowModel)
        assert found.name == "read"


def test_discovery_records_where_flows_were_found() -> None:
    write("origin_flows.py", FLOW.format(name="in-a-file"))
    write("origin_pack/__init__.py", FLOW.format(name="in-a-package"))
    write("origin.yaml", "version: 1\nflow:\n  graph: a\ntasks:\n  a:\n    callable: os.path:basename\n")
    origins = discover(["origin_flows.py", "origin_pack", "origin.yaml"]).origins
    assert {name: os.path.relpath(file) for name, file in origins.items()} == {
        "in-a-file": "origin_flows.py",
        "in-a-package": os.path.join("origin_pack", "__init__.py"),  # noqa: PTH118 relpath gives a text, too
        "origin": "origin.yaml",
    }


def test_a_flow_and_a_model_of_one_name_are_two_flows() -> None:
    write("plain_flows.py", FLOW.format(name="same"))
    write("model_flows.py", MODEL.format(name="same"))
    with pytest.raises(ResolverError, match="two flows are called 'same': in plain_flows and in model_flows; rename"):
        discover(["plain_flows", "model_flows"])


@pytest.mark.parametrize(
    "files",
    [
        ("a/shared.py", "b/shared.py", "c/shared.py", "d/shared.py"),
        ("json.py", "e/json.py"),
        ("my.flows.py", "pyoco_flows_my_flows.py", "f/my.flows.py"),
        ("one.two.py", "one_two.py", "g/one.two.py"),
    ],
)
def test_files_of_one_name_do_not_take_each_others_place(files: tuple[str, ...]) -> None:
    """The name in ``sys.modules`` is what a function is pickled by: it must lead back to the function's own file."""
    for number, file in enumerate(files):
        write(file, f"def resolve(name):\n    return {number}\n")
    resolvers = [load_resolver(f"{file}:resolve") for file in files]
    assert [resolve("x") for resolve in resolvers] == list(range(len(files)))
    assert len({resolve.__module__ for resolve in resolvers}) == len(files)
    for file, resolve in zip(files, resolvers, strict=True):
        module = sys.modules[resolve.__module__]
        assert Path(str(module.__file__)).samefile(file)
        assert module.resolve is resolve


def test_another_process_finds_the_first_of_two_files_of_one_name() -> None:
    for folder in ("first", "second"):
        write(f"{folder}/twin_flows.py", f"WHERE = '{folder}'\n" + FLOW.format(name=folder))
    discover(["first/twin_flows.py", "second/twin_flows.py"])
    look = "import sys; sys.path[:] = sys.argv[1:]; import twin_flows; print(twin_flows.WHERE)"
    child = subprocess.run(  # noqa: S603 our own interpreter
        [sys.executable, "-c", look, *sys.path], capture_output=True, text=True, check=True, timeout=60
    )
    assert child.stdout.strip() == "first"


def test_a_name_that_is_nearly_right_gets_a_suggestion() -> None:
    write("near_flows.py", FLOW.format(name="hello") + '\nother = Flow("weather") >> only\n')
    flows = discover(["near_flows.py"])
    with pytest.raises(KeyError, match=r"there are hello, weather; did you mean 'hello'\?"):
        flows("helo")
    with pytest.raises(KeyError) as error:
        flows("something else")
    assert error.value.args == ("there are hello, weather",)
