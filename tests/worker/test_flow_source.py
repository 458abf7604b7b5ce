"""Where a worker finds flows: resolvers, modules that are searched, and the errors when they cannot be used."""

import asyncio
import concurrent.futures
import json
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyoco import Flow  # type: ignore[import-untyped]  # pyoco ships no type information

from pyoco_server.errors import InvalidInputError
from pyoco_server.flows.model import (
    FlowModel,
    Isolation,
)
from pyoco_server.flows.yaml.document import read_flow_yaml
from pyoco_server.worker.flow_source import (
    FlowNotFoundError,
    Flows,
    FlowSource,
    ResolverError,
    discover,
    load_resolver,
    no_flows,
)
from pyoco_server.worker.wheel_sync.fresh_resolver import FreshResolver
from tests.app.runtime.flows import Calls, fan_flow
from tests.waiting import wait_until
from tests.worker.world import World, attempt

pytestmark = pytest.mark.usefixtures("own_modules")

FLOW = """
from pyoco import Flow, task

@task
def only():
    return 1

{variable} = Flow("{name}") >> only
"""


def write(path: str, text: str = "", **fields: str) -> str:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(text or FLOW.format(**{"variable": "flow", "name": "main", **fields}))
    return path


# --- Resolvers -------------------------------------------------------------------------------------------------------


def test_a_function_of_a_module_or_of_a_file() -> None:
    write(
        "shop_flows.py",
        FLOW.format(variable="flow", name="main") + "def resolve(name):\n    return {'main': flow}[name]\n",
    )
    for spec in ("shop_flows:resolve", "shop_flows.py:resolve", f"{Path.cwd()}/shop_flows.py:resolve"):
        assert load_resolver(spec)("main").name == "main"
        with pytest.raises(KeyError):
            load_resolver(spec)("other")


def test_a_flow_file_can_import_its_neighbours() -> None:
    write("deep/helper_of_flows.py", "NAME = 'beside'\n")
    write("deep/flows_with_help.py", "from helper_of_flows import NAME\ndef resolve(name):\n    return NAME\n")
    assert load_resolver("deep/flows_with_help.py:resolve")("x") == "beside"


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("", "is not module:function"),
        ("flows", "is not module:function"),
        ("flows:", "is not module:function"),
        (":resolve", "is not module:function"),
        ("there_is_no_such:resolve", "ModuleNotFoundError"),
        ("there_is_no_such.py:resolve", "there is no file"),
        ("good_flows.py:nothing", "has no function 'nothing'"),
        ("good_flows.py:NUMBER", "has no function 'NUMBER'"),
        ("broken_flows.py:resolve", "ZeroDivisionError"),
        ("unreadable_flows.py:resolve", "SyntaxError"),
        ("leaving_flows.py:resolve", "SystemExit"),
        ("..relative:resolve", "cannot be imported"),
    ],
)
def test_what_cannot_be_used_is_reported(spec: str, said: str) -> None:
    write("good_flows.py", "NUMBER = 1\ndef resolve(name):\n    raise KeyError(name)\n")
    write("broken_flows.py", "1 / 0\n")
    write("unreadable_flows.py", "def def\n")
    write("leaving_flows.py", "import sys\nsys.exit(4)\n")
    with pytest.raises(ResolverError, match=said) as error:
        load_resolver(spec)
    assert (error.value.err_id, error.value.msg_id) == ("ERR-PYOCO-0018", "MSG-PYOCO-0018")
    assert isinstance(error.value, InvalidInputError)


def test_a_file_does_not_take_the_place_of_a_module_that_is_there() -> None:
    write("json.py", "def resolve(name):\n    return 'ours'\n")
    write("my.flows.py", "def resolve(name):\n    return 'dotted'\n")
    assert load_resolver("json.py:resolve")("x") == "ours"
    assert sys.modules["json"] is json
    assert load_resolver("my.flows.py:resolve")("x") == "dotted"


def test_a_file_that_cannot_be_imported_leaves_nothing_behind() -> None:
    write("half_flows.py", "DONE = 1\n1 / 0\n")
    with pytest.raises(ResolverError):
        load_resolver("half_flows.py:resolve")
    assert "half_flows" not in sys.modules


# --- Searching -------------------------------------------------------------------------------------------------------


def test_flows_are_found_by_their_names_wherever_they_are() -> None:
    write("pack_of_flows/__init__.py", name="top")
    write("pack_of_flows/sub/__init__.py", "\n")
    write("pack_of_flows/sub/deep.py", name="deep", variable="anything")
    write("single_flow.py", name="single")
    resolve = discover(["pack_of_flows", "single_flow.py"])
    assert [resolve(name).name for name in ("top", "deep", "single")] == ["top", "deep", "single"]
    with pytest.raises(KeyError):
        resolve("other")


def test_the_same_flow_in_two_places_is_one_flow() -> None:
    write("origin_flows.py")
    write("again_flows.py", "from origin_flows import flow\nalias = flow\n")
    for order in (["origin_flows", "again_flows"], ["again_flows.py", "origin_flows.py"], ["origin_flows.py"] * 2):
        assert discover(order)("main").name == "main"


def test_two_flows_of_one_name_are_refused() -> None:
    write("one_flows.py")
    write("two_flows.py")
    with pytest.raises(ResolverError, match="two flows are called 'main': in one_flows and in two_flows"):
        discover(["one_flows", "two_flows"])


def test_a_package_with_a_broken_part_is_reported() -> None:
    write("partly_flows/__init__.py", "\n")
    write("partly_flows/broken/__init__.py", "1 / 0\n")
    with pytest.raises(ResolverError, match=r"'partly_flows\.broken' cannot be imported: ZeroDivisionError"):
        discover(["partly_flows"])


def test_searching_a_package_does_not_run_it_as_a_program() -> None:
    write("program_of_flows/__init__.py")
    write("program_of_flows/__main__.py", "raise SystemExit('it ran')\n")
    assert discover(["program_of_flows"])("main").name == "main"


def test_a_worker_that_was_given_no_flows_has_none() -> None:
    with pytest.raises(KeyError):
        no_flows("main")


# --- Resolving -------------------------------------------------------------------------------------------------------


def resolve(source: FlowSource, name: str = "main") -> Any:
    return asyncio.run(source.named(name))


def test_flows_and_models_are_both_understood() -> None:
    model, functions = resolve(FlowSource({"main": fan_flow(Calls())}.__getitem__))
    assert (model.name, sorted(functions)) == ("fan", ["left", "right", "seed", "total"])
    read = read_flow_yaml(
        "version: 1\nflow:\n  graph: |\n    a\ntasks:\n  a:\n    callable: os.path:join\n", name="read"
    )
    model, functions = resolve(FlowSource(lambda _: read))
    assert (model.name, functions) == ("read", {"a": os.path.join})


def test_flows_that_were_found_are_read_once_until_the_code_changes() -> None:
    made: list[Flows] = []

    def make() -> Flows:
        made.append(Flows({"fan": fan_flow(Calls())}))
        return made[-1]

    flows = FreshResolver(make, [])
    source = FlowSource(flows)
    first, again = resolve(source, "fan"), resolve(source, "fan")
    assert first[0] == again[0]
    assert resolve(source, "fan") is resolve(source, "fan")
    flows.renew()
    assert resolve(source, "fan") is not again
    assert len(made) == 2
    with pytest.raises(FlowNotFoundError, match="did you mean 'fan'"):
        resolve(source, "fam")


def test_an_unknown_flow_has_an_error_of_its_own() -> None:
    with pytest.raises(FlowNotFoundError) as error:
        resolve(FlowSource(no_flows))
    assert (error.value.err_id, error.value.msg_id) == ("ERR-PYOCO-0006", "MSG-PYOCO-0006")


def test_a_slow_resolver_does_not_block_the_event_loop() -> None:
    async def body() -> None:
        entered, leave = threading.Event(), threading.Event()

        def slow(_: str) -> Flow:
            entered.set()
            leave.wait(10)
            return fan_flow(Calls())

        resolving = asyncio.create_task(FlowSource(slow).named("fan"))
        await wait_until(entered.is_set)
        assert not resolving.done()
        leave.set()
        assert (await resolving)[0].name == "fan"

    asyncio.run(body())


# --- Isolation -------------------------------------------------------------------------------------------------------


def plain() -> int:
    return os.getpid()


async def coroutine() -> int:
    return os.getpid()


def test_plain_functions_run_where_the_worker_is_configured_to_run_them() -> None:
    """Only functions whose task does not choose, also inside loops; coroutines stay on the loop."""
    text = """version: 1
flow:
  graph: |
    plain >> coroutine >> own >> repeat(count=2){ inside }
tasks:
  plain: {callable: "tests.worker.test_flow_source:plain"}
  coroutine: {callable: "tests.worker.test_flow_source:coroutine"}
  own: {callable: "tests.worker.test_flow_source:plain", isolation: thread}
  inside: {callable: "tests.worker.test_flow_source:plain"}
"""

    async def body(world: World) -> None:
        for isolation in (None, Isolation.PROCESS):
            run_id = await world.submit("uploaded", workflow_yaml=text)
            await world.hand({}, isolation=isolation).work()
            records = (await world.stored(run_id))["task_records"].values()
            elsewhere = {record["task"] for record in records if record["output"] != os.getpid()}
            assert elsewhere == (set() if isolation is None else {"plain", "inside"})

    attempt(body)


def test_a_flow_yaml_goes_by_the_name_of_its_file(tmp_path: Path) -> None:
    file = tmp_path / "nightly.yaml"
    file.write_text("version: 1\nflow:\n  graph: a\ntasks:\n  a:\n    callable: os.path:basename\n", encoding="utf-8")
    found = discover([str(file)])("nightly")
    assert isinstance(found, FlowModel)
    assert found.name == "nightly"


def test_an_error_in_a_flow_yaml_is_reported_with_its_place(tmp_path: Path) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text("version: 1\nflow:\n  grph: a\n", encoding="utf-8")
    with pytest.raises(ResolverError, match=r"wrong\.yaml: .*line 3"):
        discover([str(file)])


def test_an_unknown_flow_is_reported_with_the_known_ones(tmp_path: Path) -> None:
    file = tmp_path / "nightly.yaml"
    file.write_text("version: 1\nflow:\n  graph: a\ntasks:\n  a:\n    callable: os.path:basename\n", encoding="utf-8")
    source = FlowSource(discover([str(file)]))
    with pytest.raises(FlowNotFoundError, match="no flow is called 'daily' here: there are nightly"):
        asyncio.run(source.named("daily"))


# --- Several threads -------------------------------------------------------------------------------------------------


class Gate:
    """Lets a module's code stop in the middle of its import until the test continues."""

    def __init__(self) -> None:
        self.reached, self.open = threading.Event(), threading.Event()

    def stop_here(self) -> None:
        self.reached.set()
        assert self.open.wait(30)


GATED = """
from __main__ import gate_of_the_import
gate_of_the_import.stop_here()
"""


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    gate = Gate()
    monkeypatch.setattr(sys.modules["__main__"], "gate_of_the_import", gate, raising=False)
    return gate


def meanwhile(gate: Gate, first: Callable[[], object], second: Callable[[], object]) -> list[object]:
    """What both return: ``second`` is called while ``first`` is in the middle of an import."""
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        importing = pool.submit(first)
        assert gate.reached.wait(30)
        other = pool.submit(second)
        concurrent.futures.wait([other], timeout=0.3)  # it has ended (too early), or waits for the import
        gate.open.set()
        return [importing.result(30), other.result(30)]


def test_a_file_is_complete_for_every_thread_that_asks_for_it(gate: Gate) -> None:
    file = write("together.py", GATED + FLOW.format(variable="flow", name="main"))
    fresh = FreshResolver(lambda: discover([file]), [file])
    one, other = meanwhile(gate, lambda: fresh("main"), lambda: fresh("main"))
    assert isinstance(one, Flow)
    assert one is other
    # After a wheel has come the file is imported again, also by several threads at once.
    gate.reached.clear()
    gate.open.clear()
    fresh.renew()
    newer, other = meanwhile(gate, lambda: fresh("main"), lambda: fresh("main"))
    assert newer is other
    assert newer is not one


def test_two_sources_of_flows_share_a_file_that_is_being_imported(gate: Gate) -> None:
    file = write("shared.py", GATED + FLOW.format(variable="flow", name="main"))
    one, other = meanwhile(gate, lambda: discover([file])("main"), lambda: discover([file])("main"))
    assert one is other


def test_a_thread_that_waited_for_an_import_that_failed_imports_itself(gate: Gate) -> None:
    file = write("second_try.py", GATED + "gate_of_the_import.tries.pop()()\n" + FLOW.format(variable="f", name="main"))
    gate.tries = [lambda: None, lambda: 1 / 0]  # type: ignore[attr-defined]  # for this test alone

    def first() -> object:
        try:
            return discover([file])
        except ResolverError as error:
            return str(error)

    failed, flows = meanwhile(gate, first, lambda: discover([file]))
    assert "ZeroDivisionError" in str(failed)
    assert isinstance(flows, Flows)
    assert flows("main").name == "main"


def test_files_of_the_same_name_imported_at_once_are_two_modules(gate: Gate) -> None:
    one = write("one/same.py", GATED + FLOW.format(variable="flow", name="one"))
    other = write("other/same.py", FLOW.format(variable="flow", name="other"))
    first, second = meanwhile(gate, lambda: discover([one])("one"), lambda: discover([other])("other"))
    assert (first.name, second.name) == ("one", "other")  # type: ignore[attr-defined]  # they are flows
