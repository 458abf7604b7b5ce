"""What a flow.yaml of a client may call, and attempts to reach more."""

import importlib
import itertools
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyoco_server.flows.binding import bind, bind_available
from pyoco_server.flows.callable_origins import callable_origins
from pyoco_server.flows.callables import CallablePolicy
from pyoco_server.flows.errors import CallableNotAllowedError, FlowError
from pyoco_server.flows.yaml.document import read_flow_yaml

SHOP = '''\
"""A module of flows, with all that such modules import and define."""
import builtins
import functools
import os
import random
import subprocess
import threading
from dataclasses import dataclass
from os import system
from os import system as tidy
from subprocess import Popen, getoutput
from pyoco import task

def fetch(n=1): return n
def _secret(): return "secret"

@task
def packed(n=1): return n
hidden = task(os.system)

@functools.lru_cache
def cached(n=1): return n
@functools.wraps(fetch)
def wrapping(n=1): return n

def passing(function):
    @functools.wraps(function)
    def inner(*args): return function(*args)
    return inner
wrapped = passing(subprocess.getoutput)

half = functools.partial(fetch, 2)
shell = functools.partial(subprocess.run, shell=True)
deep = functools.partial(functools.partial(functools.partial(os.system)))
stored = functools.lru_cache(os.getenv)
still = staticmethod(os.system)
variable = os.environ.get
keep = [].append
dice = random.randint
run_it = exec
make = type
lines = str.splitlines
inner = object().__getattribute__

class Runner:
    def __call__(self, n=1): return n
    def go(self, n=1): return n
runner = Runner()
go = Runner().go
class Odd:
    __call__ = os.system
odd = Odd()
class Hidden:
    __call__ = staticmethod(subprocess.getoutput)
unseen = Hidden()
class Own:
    def __init__(self, n=1): self.n = n
@dataclass
class Point:
    x: int = 1
class Process(Popen): pass
class Meta(type):
    __call__ = staticmethod(os.system)
class Made(metaclass=Meta): pass
class Thread(threading.Thread): pass
loop = passing(fetch)
loop.__wrapped__ = loop
'''

ALLOWED = ("fetch", "packed", "cached", "wrapping", "half", "runner", "go", "Own", "Point")
REFUSED = (
    *("system", "tidy", "getoutput", "Popen", "hidden", "wrapped", "shell", "deep", "stored", "still", "variable"),
    *("keep", "dice", "run_it", "make", "lines", "inner", "odd", "unseen", "Process", "Made", "Thread", "loop", "task"),
    *("_secret", "__class__", "__setattr__", "__delattr__", "__dir__", "__getattribute__", "__reduce_ex__"),
    *("__init__", "__loader__", "__import__", "__builtins__"),
)

ELSEWHERE = [
    "subprocess:getoutput",
    "os:system",
    "os.path:exists",
    "posix:system",
    "builtins:eval",
    "builtins:exec",
    "sys:exit",
    "importlib:import_module",
    "_posixsubprocess:fork_exec",
    "__main__:anything",
    "pip.__main__:main",
    "pytest:main",
    "yaml:load",
    "pyoco_server.bootstrap:open_platform",
    "pyoco_server.adapters.jetstream.stores.keys:JetStreamKeyStore",
    "pyoco.core.models:Task",
]


_numbers = itertools.count(1)


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    name = f"shop_{next(_numbers)}"
    (tmp_path / f"{name}.py").write_text(SHOP)
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    yield name
    sys.modules.pop(name, None)


def beside(shop: str, tmp_path: Path, *patterns: str) -> CallablePolicy:
    return CallablePolicy(patterns, places=[str(tmp_path / f"{shop}.py")])


def call(path: str, policy: CallablePolicy) -> object:
    text = f"version: 1\nflow:\n  graph: a\ntasks:\n  a:\n    callable: {path}\n"
    return bind(read_flow_yaml(text, name="f"), policy=policy)["a"]


def refusal(path: str, policy: CallablePolicy) -> str:
    with pytest.raises(CallableNotAllowedError) as refused:
        call(path, policy)
    assert (refused.value.err_id, refused.value.line) == ("ERR-PYOCO-0110", 6)
    return str(refused.value)


@pytest.mark.parametrize("name", ALLOWED)
def test_functions_of_a_module_beside_the_flows_may_be_called(shop: str, tmp_path: Path, name: str) -> None:
    assert callable(call(f"{shop}:{name}", beside(shop, tmp_path)))
    assert callable(call(f"{shop}:{name}", CallablePolicy(places=[shop])))
    assert callable(call(f"{shop}:{name}", CallablePolicy(folders=[tmp_path])))


@pytest.mark.parametrize("name", REFUSED)
def test_what_such_a_module_has_from_elsewhere_may_not(shop: str, tmp_path: Path, name: str) -> None:
    with pytest.raises(FlowError):
        call(f"{shop}:{name}", beside(shop, tmp_path))


@pytest.mark.parametrize("path", ELSEWHERE)
def test_no_other_module_is_even_imported(shop: str, tmp_path: Path, path: str) -> None:
    module = path.partition(":")[0]
    was_loaded = module in sys.modules
    said = refusal(path, beside(shop, tmp_path))
    assert f"PYOCO_CALLABLES={path}" in said
    assert (module in sys.modules) == was_loaded


def test_a_refusal_names_what_the_path_really_is(shop: str, tmp_path: Path) -> None:
    said = refusal(f"{shop}:tidy", beside(shop, tmp_path))
    assert f"'{shop}:tidy' may not be called: it is '{os.system.__module__}:system', which does not come with" in said
    assert "name a function of a module that comes with the worker's flow files or with a wheel" in said


@pytest.mark.parametrize("path", ["{}:os.system", "{}.os:system", "{}:subprocess.run", "{}.subprocess:getoutput"])
def test_no_path_leads_through_a_module_into_another(shop: str, tmp_path: Path, path: str) -> None:
    with pytest.raises(FlowError):
        call(path.format(shop), beside(shop, tmp_path))


def test_a_worker_without_flow_files_calls_nothing(shop: str) -> None:
    assert "does not come with them" in refusal(f"{shop}:fetch", CallablePolicy())


def test_packages_installed_below_the_folder_of_the_flows_are_not_of_them(shop: str, tmp_path: Path) -> None:
    packages = tmp_path / ".venv" / "lib" / "site-packages"
    packages.mkdir(parents=True)
    name = f"{shop}_tool"
    (packages / f"{name}.py").write_text("def go(): return 1\n")
    sys.path.insert(0, str(packages))
    try:
        refusal(f"{name}:go", beside(shop, tmp_path))
        assert callable(call(f"{name}:go", beside(shop, tmp_path, name)))
        assert callable(call(f"{name}:go", CallablePolicy(places=[name])))  # its flows are installed there
        refusal(f"{name}:go", CallablePolicy(places=[str(packages / "other.py")]))
    finally:
        sys.path.remove(str(packages))


def test_the_platform_in_the_folder_of_the_flows_is_not_of_them() -> None:
    here = str(Path(__file__).parents[2] / "flows.py")
    refusal("pyoco_server.cli.worker.main:main", CallablePolicy(places=[here]))
    assert callable(call("tests.flows.test_callables:beside", CallablePolicy(places=[here])))


def test_a_package_comes_with_all_its_modules(tmp_path: Path, shop: str) -> None:
    package = tmp_path / f"{shop}_pack" / "inner"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").touch()
    (package / "__init__.py").touch()
    (package / "tasks.py").write_text("import os\ndef go(): return 1\n")
    (package / "__main__.py").write_text("raise SystemExit(3)\n")
    for place in (f"{package.parent.name}.inner.flows", str(package / "flows.py")):
        policy = CallablePolicy(places=[place])
        assert callable(call(f"{package.parent.name}.inner.tasks:go", policy))
        refusal(f"{package.parent.name}.inner.__main__:go", policy)
        refusal(f"{shop}:fetch", policy)


# --- PYOCO_CALLABLES -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("patterns", "path"),
    [
        (["math"], "math:sqrt"),
        (["math:sqrt"], "math:sqrt"),
        (["math:s*"], "math:sqrt"),
        (["m*"], "math:sqrt"),
        (["*"], "subprocess:getoutput"),
        (["*:sqrt"], "math:sqrt"),
        (["json"], "json.decoder:JSONDecoder"),
        (["os.path:basename"], "os.path:basename"),  # is posixpath:basename: the pattern names the object itself
        (["json:dumps", "!json:loads"], "json:dumps"),
        (["_json:scanstring"], "_json:scanstring"),
    ],
)
def test_the_operator_allows_more(patterns: list[str], path: str) -> None:
    assert callable(call(path, CallablePolicy(patterns)))


@pytest.mark.parametrize(
    ("patterns", "path"),
    [
        (["math:sqrt"], "math:cos"),
        (["math:s*"], "math:cos"),
        (["mathe"], "math:sqrt"),
        (["json:dumps"], "json.decoder:JSONDecoder"),
        (["os.path"], "os.path:basename"),
        (["*", "!subprocess"], "subprocess:getoutput"),
        (["!subprocess", "*"], "subprocess:getoutput"),
        (["*", "!os:system"], "posix:system"),
        (["*", "!os"], "posix:system"),
        (["*", "!posix"], "os:system"),
        (["*", "!subprocess"], "asyncio.base_events:subprocess"),
        (["json", "!json.decoder"], "json:JSONDecoder"),
        (["json", "!json:loads"], "json:loads"),
        (["json"], "json:codecs"),
        (["json"], "json:__class__"),
        (["j*"], "json.__main__:main"),
    ],
)
def test_it_allows_nothing_else(patterns: list[str], path: str) -> None:
    with pytest.raises(FlowError):
        call(path, CallablePolicy(patterns))


def test_denied_functions_are_denied_by_each_of_their_names(shop: str, tmp_path: Path) -> None:
    refusal(f"{shop}:fetch", beside(shop, tmp_path, f"!{shop}:fetch"))
    refusal(f"{shop}:half", beside(shop, tmp_path, f"!{shop}:fetch"))
    refusal(f"{shop}:tidy", beside(shop, tmp_path, "*", "!os:system"))
    assert "which PYOCO_CALLABLES denies" in refusal(f"{shop}:wrapped", beside(shop, tmp_path, "*", "!subprocess"))
    assert callable(call(f"{shop}:Own", beside(shop, tmp_path, f"!{shop}:fetch")))


def test_a_wildcard_allows_only_what_is_made_there_and_an_exact_name_the_object(shop: str) -> None:
    assert callable(call(f"{shop}:fetch", CallablePolicy([shop])))
    refusal(f"{shop}:tidy", CallablePolicy([shop]))
    assert call(f"{shop}:tidy", CallablePolicy([f"{shop}:tidy"])) is os.system
    assert call(f"{shop}:_secret", CallablePolicy([f"{shop}:_secret"])) is not None
    refusal(f"{shop}:_secret", CallablePolicy([shop]))


def test_a_run_that_has_started_gets_none_of_them_either(shop: str, tmp_path: Path) -> None:
    text = (
        f"version: 1\nflow:\n  graph: a >> b\ntasks:\n  a: {{callable: 'os:system'}}\n  b: {{callable: '{shop}:fetch'}}"
    )
    assert [*bind_available(read_flow_yaml(text, name="f"), policy=beside(shop, tmp_path))] == ["b"]


def test_the_flows_of_the_operator_are_not_restricted() -> None:
    text = "version: 1\nflow:\n  graph: a\ntasks:\n  a: {callable: 'math:sqrt'}"
    assert callable(bind(read_flow_yaml(text, name="f"))["a"])


def test_origins_of_wrappers_that_wrap_each_other_end() -> None:
    def one() -> None: ...

    one.__wrapped__ = one  # type: ignore[attr-defined]
    assert callable_origins(one)[-1].file is None
