"""Wheels on disk and in the interpreter: real pip, real imports."""

import asyncio
import hashlib
import importlib
import importlib.metadata
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from pyoco_server.adapters.wheel_install.modules import platform_modules, provided_modules
from pyoco_server.adapters.wheel_install.pip import pip_command, pip_install
from pyoco_server.adapters.wheel_install.store import LocalWheelHouse
from pyoco_server.app.ports.wheels import Wheel, WheelInstallError, WheelUnfitError
from pyoco_server.worker.flow_source import discover, load_resolver
from pyoco_server.worker.wheel_sync.fresh_resolver import FreshResolver
from tests.waiting import wait_until
from tests.wheels.building import archive, contents, flow_files, make_wheel, wheel_name


@pytest.fixture(autouse=True)
def same_interpreter() -> Iterator[None]:
    """Paths and modules are afterwards what they were before."""
    path, modules = [*sys.path], {*sys.modules}
    yield
    sys.path[:] = path
    for name in {*sys.modules} - modules:
        if name.partition(".")[0].startswith(("house_", "shared_")):
            del sys.modules[name]
    importlib.invalidate_caches()


def a_wheel(name: str, data: bytes, nuid: str = "") -> tuple[Wheel, Callable[[], AsyncIterator[bytes]]]:
    sha256_hex = hashlib.sha256(data).hexdigest()
    wheel = Wheel(
        name=name,
        size_bytes=len(data),
        bucket="b",
        nuid=nuid or sha256_hex[:20],
        modified=0.0,
        sha256_hex=sha256_hex,
    )

    async def content() -> AsyncIterator[bytes]:
        for start in range(0, len(data), 1_000):
            yield data[start : start + 1_000]

    return wheel, content


def house(directory: Path, timeout_sec: float = 60.0) -> LocalWheelHouse:
    return LocalWheelHouse(directory / "wheels", install_timeout_sec=timeout_sec)


def left(directory: Path) -> list[str]:
    return sorted(path.name for path in (directory / "wheels").iterdir())


def test_the_command_is_the_one_of_the_specification() -> None:
    command = pip_command(Path("/w/demo.whl"), Path("/w/site"))
    assert command[:3] == [sys.executable, "-m", "pip"]
    assert [word for word in command if word in {"install", "--no-deps", "--force-reinstall", "--no-index"}] == [
        "install",
        "--no-deps",
        "--force-reinstall",
        "--no-index",
    ]
    assert command[-1] == "/w/demo.whl"


@pytest.mark.spec("004 REQ-0026")
def test_the_code_of_a_wheel_can_be_imported_exchanged_and_removed(tmp_path: Path) -> None:
    async def body() -> None:
        first = a_wheel(wheel_name("house_a", "1.0"), make_wheel("house_a", "1.0", flow_files("house_a", "one")))
        second = a_wheel(wheel_name("house_a", "2.0"), make_wheel("house_a", "2.0", flow_files("house_a", "two")))
        here = house(tmp_path)
        await here.install(*first)
        written = [tmp_path / "wheels", *(tmp_path / "wheels").rglob("*")]
        assert [path for path in written if path.stat().st_mode & 0o077] == [], "other users could read it"
        await here.activate([first[0]])
        values = importlib.import_module("house_a.values")
        assert values.ANSWER == "one"
        assert importlib.metadata.version("house_a") == "1.0"

        await here.install(*second)
        assert importlib.import_module("house_a.values") is values, "nothing changes before activate is called"
        await here.activate([second[0]])
        assert importlib.import_module("house_a.values").ANSWER == "two"
        assert importlib.metadata.version("house_a") == "2.0"

        await here.activate([])
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module("house_a")
        await here.tidy([])
        assert left(tmp_path) == []
        await here.close()

    asyncio.run(body())


def test_flows_named_on_the_command_line_are_found_again(tmp_path: Path) -> None:
    """In a wheel, or in a file of the user's that only imports from it."""
    (tmp_path / "house_resolver.py").write_text(
        "from house_f.flows import flow\n\ndef resolve(name):\n    return {'answering': flow}[name]\n"
    )
    file = f"{tmp_path / 'house_resolver.py'}"
    resolvers = [
        FreshResolver(lambda: discover(["house_f"]), ["house_f"]),
        FreshResolver(lambda: load_resolver(f"{file}:resolve"), [file]),
    ]

    def answers() -> list[object]:
        return [next(iter(resolver("answering").tasks)).func() for resolver in resolvers]

    async def body() -> None:
        for resolver in resolvers:
            with pytest.raises(KeyError, match="house_f"):
                resolver("answering")
        here = house(tmp_path)
        for answer, version in (("one", "1.0"), ("two", "2.0")):
            wheel = a_wheel(
                wheel_name("house_f", version), make_wheel("house_f", version, flow_files("house_f", answer))
            )
            await here.install(*wheel)
            await here.activate([wheel[0]])
            for resolver in resolvers:
                resolver.renew()
            assert answers() == [answer, answer]
        await here.close()

    asyncio.run(body())


def test_two_wheels_may_share_a_folder(tmp_path: Path) -> None:
    async def body() -> None:
        here = house(tmp_path)
        one = a_wheel(wheel_name("house_s1"), make_wheel("house_s1", files={"shared_x/one/__init__.py": "V = 1"}))
        two = a_wheel(wheel_name("house_s2"), make_wheel("house_s2", files={"shared_x/two.py": "V = 2"}))
        new = a_wheel(wheel_name("house_s2", "3"), make_wheel("house_s2", "3", {"shared_x/two.py": "V = 3"}))
        for wheel in (one, two, new):
            await here.install(*wheel)
        await here.activate([one[0], two[0]])
        first = importlib.import_module("shared_x.one")
        assert importlib.import_module("shared_x.two").V == 2
        await here.activate([one[0], new[0]])
        assert importlib.import_module("shared_x.two").V == 3
        assert importlib.import_module("shared_x.one") is first, "what did not change stays"
        await here.close()

    asyncio.run(body())


def test_a_wheel_takes_the_place_of_what_is_installed_but_not_of_the_platform(tmp_path: Path) -> None:
    assert {"pyoco_server", "pyoco", "nats", "msgspec", "json", "asyncio"} <= platform_modules()

    async def body() -> None:
        here = house(tmp_path)
        installed = tmp_path / "site-packages"
        installed.mkdir()
        (installed / "house_old.py").write_text("V = 'installed'")
        sys.path.append(str(installed))
        assert importlib.import_module("house_old").V == "installed"
        wheel = a_wheel(wheel_name("house_old"), make_wheel("house_old", files={"house_old.py": "V = 'wheel'"}))
        await here.install(*wheel)
        await here.activate([wheel[0]])
        assert importlib.import_module("house_old").V == "wheel"
        files = {"json.py": "raise SystemExit", "msgspec/__init__.py": "", "house_evil.py": ""}
        with pytest.raises(WheelUnfitError, match="brings json, msgspec, which"):
            await here.install(*a_wheel(wheel_name("house_evil"), make_wheel("house_evil", files=files)))
        await here.close()
        assert len(left(tmp_path)) == 1

    asyncio.run(body())


@pytest.mark.spec("004 REQ-0026", "004 ERR-PYOCO-0024")
@pytest.mark.parametrize("name", ["httpx/__init__.pyc", "httpx.pyc", "nats/js/more.pyc", "msgspec/__init__.abi3.so"])
def test_what_takes_the_place_of_the_platform_without_its_source_is_noticed(tmp_path: Path, name: str) -> None:
    data = make_wheel("house_n", files={"house_n/__init__.py": "", name: b"x"})

    async def body() -> None:
        here = house(tmp_path)
        with pytest.raises(WheelUnfitError, match=name.partition("/")[0].partition(".")[0]):
            await here.install(*a_wheel(wheel_name("house_n"), data))
        assert left(tmp_path) == []

    asyncio.run(body())


def test_what_does_not_match_its_hash_or_cannot_be_installed_leaves_nothing(tmp_path: Path) -> None:
    async def body() -> None:
        here = house(tmp_path)
        wheel, content = a_wheel(wheel_name("house_b"), make_wheel("house_b"))
        other, _ = a_wheel(wheel_name("house_b"), b"something else")
        with pytest.raises(WheelInstallError, match="SHA-256"):
            await here.install(other, content)
        files = contents("house_b")
        del files["house_b-1.0.dist-info/METADATA"]
        with pytest.raises(WheelInstallError, match="pip could not install"):
            await here.install(*a_wheel(wheel_name("house_b"), archive(files)))
        for nuid in ("../../x", "", "a/b"):
            evil = Wheel(name=wheel.name, size_bytes=1, bucket="b", nuid=nuid, modified=0, sha256_hex=wheel.sha256_hex)
            with pytest.raises(WheelUnfitError):
                await here.install(evil, content)
        assert left(tmp_path) == []
        await here.install(wheel, content)
        assert len(left(tmp_path)) == 1
        await here.close()

    asyncio.run(body())


def test_a_directory_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    (tmp_path / "wheels").write_text("a file")

    async def body() -> None:
        with pytest.raises(WheelInstallError, match="could not be kept"):
            await house(tmp_path).install(*a_wheel(wheel_name("house_b"), make_wheel("house_b")))

    asyncio.run(body())


def test_pip_that_takes_too_long_or_is_not_wanted_any_more_is_ended(tmp_path: Path) -> None:
    wheel = tmp_path / wheel_name("house_b")
    wheel.write_bytes(make_wheel("house_b"))

    async def body() -> None:
        with pytest.raises(WheelInstallError, match=r"within 0\.01 s"):
            await pip_install(wheel, tmp_path / "site", timeout_sec=0.01)
        installing = asyncio.create_task(pip_install(wheel, tmp_path / "site", timeout_sec=60))
        await wait_until(lambda: _children_of(os.getpid()))
        installing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await installing
        assert not _children_of(os.getpid())

    asyncio.run(body())


def _children_of(pid: int) -> list[str]:
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [child for child in listed if b"pip" in _command_of(child)]


def _command_of(pid: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except FileNotFoundError:
        return b""


@pytest.mark.spec("004 REQ-0026")
def test_a_restart_keeps_complete_installations_and_removes_partial_ones(tmp_path: Path) -> None:
    async def body() -> None:
        wheel, content = a_wheel(wheel_name("house_r"), make_wheel("house_r"))
        first = house(tmp_path)
        await first.install(wheel, content)
        await first.close()
        (tmp_path / "wheels" / ".making-dead").mkdir()
        (tmp_path / "wheels" / "foreign").mkdir()

        def nothing() -> AsyncIterator[bytes]:
            raise AssertionError("it is there already")

        second = house(tmp_path)
        await second.install(wheel, nothing)
        await second.activate([wheel])
        assert importlib.import_module("house_r").VERSION == "1.0"
        await second.tidy([wheel])
        assert len(left(tmp_path)) == 2
        await second.close()

    asyncio.run(body())


def test_a_wheel_gets_its_name_when_all_of_it_is_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a machine that goes down comes back with directories that look complete, and are not."""
    synced: dict[int, bool] = {}
    directory = tmp_path / "wheels"
    really = os.fsync

    def fsync(fd: int) -> None:
        really(fd)
        named = any(not path.name.startswith(".") for path in directory.iterdir())
        synced.setdefault(os.fstat(fd).st_ino, named)

    monkeypatch.setattr(os, "fsync", fsync)

    async def body() -> None:
        wheel, content = a_wheel(wheel_name("house_s"), make_wheel("house_s", files=flow_files("house_s", "one")))
        here = house(tmp_path)
        await here.install(wheel, content)
        [home] = directory.iterdir()
        inside = [home, *home.rglob("*")]
        assert len(inside) > 5
        assert {path: synced.get(path.stat().st_ino) for path in inside} == dict.fromkeys(inside, False)
        assert synced[directory.stat().st_ino] is True, "the name itself, after it was given"
        assert not list(home.glob("*.whl")), "what was downloaded is not kept twice"
        await here.close()

    asyncio.run(body())


def test_a_deleted_installation_is_noticed_and_made_again(tmp_path: Path) -> None:
    async def body() -> None:
        wheel, content = a_wheel(wheel_name("house_d"), make_wheel("house_d"))
        here = house(tmp_path)
        await here.install(wheel, content)
        [home] = (tmp_path / "wheels").iterdir()
        shutil.rmtree(home)
        path = [*sys.path]
        with pytest.raises(WheelInstallError, match="cannot be used"):
            await here.activate([wheel])
        assert sys.path == path
        await here.install(wheel, content)
        await here.activate([wheel])
        assert importlib.import_module("house_d").VERSION == "1.0"
        await here.close()

    asyncio.run(body())


def test_a_wheel_that_another_worker_uses_is_not_removed(tmp_path: Path) -> None:
    program = (
        "import asyncio, sys\n"
        "from pathlib import Path\n"
        "from pyoco_server.adapters.wheel_install.store import LocalWheelHouse\n"
        "from pyoco_server.app.ports.wheels import Wheel\n"
        "async def body():\n"
        "    house = LocalWheelHouse(Path(sys.argv[1]), install_timeout_sec=60)\n"
        "    wheel = Wheel(name=sys.argv[2], size_bytes=1, bucket='b', nuid=sys.argv[3], modified=0, sha256_hex=None)\n"
        "    await house.install(wheel, None)\n"
        "    print('held', flush=True)\n"
        "    sys.stdin.read()\n"
        "asyncio.run(body())\n"
    )

    async def body() -> None:
        wheel, content = a_wheel(wheel_name("house_u"), make_wheel("house_u"))
        here = house(tmp_path)
        await here.install(wheel, content)
        await here.close()
        other = subprocess.Popen(  # noqa: S603, ASYNC220 our own interpreter
            [sys.executable, "-c", program, str(tmp_path / "wheels"), wheel.name, wheel.nuid],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        try:
            assert other.stdout is not None
            assert await asyncio.to_thread(other.stdout.readline) == b"held\n"
            await here.tidy([])
            assert len(left(tmp_path)) == 1
        finally:
            other.kill()
            other.communicate()
        await here.tidy([])
        assert left(tmp_path) == []

    asyncio.run(body())


def test_workers_that_install_one_wheel_at_once_share_it_whatever_pip_is_configured_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_TARGET", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("PIP_PREFIX", str(tmp_path / "elsewhere"))

    async def body() -> None:
        wheel, content = a_wheel(wheel_name("house_m"), make_wheel("house_m"))
        houses = [house(tmp_path) for _ in range(2)]
        await asyncio.gather(*(one.install(wheel, content) for one in houses))
        assert len(left(tmp_path)) == 1
        assert not (tmp_path / "elsewhere").exists()
        for one in houses:
            await one.close()

    asyncio.run(body())


def test_modules_are_named_as_they_are_imported(tmp_path: Path) -> None:
    for name in (
        "a/__init__.py",
        "a/b.py",
        "c.py",
        "d.cpython-311.so",
        "ns/e/__init__.py",
        "ns/f.py",
        "x-1.dist-info/R",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    assert provided_modules(tmp_path) == {"a", "c", "d", "ns.e", "ns.f"}


def test_importable_modules_are_found_without_importing_them(tmp_path: Path) -> None:
    """In another process: modules that print, leave threads behind, or end the process are no danger to this one."""
    broken = {
        "house_t/__init__.py": "print('hello')\n",
        "house_t/flows.py": "import house_missing\n",
        "house_u.py": "import threading, time\nthreading.Thread(target=time.sleep, args=[600]).start()\n",
        "house_v.py": "import os\nos._exit(3)\n",
        "house_w.py": "import sys\nsys.exit('no')\n",
    }
    beside = tmp_path / "house_beside.py"
    beside.write_text("import house_needed\n")

    async def body() -> None:
        first = a_wheel(wheel_name("house_t", "1.0"), make_wheel("house_t", "1.0", broken))
        second = a_wheel(
            wheel_name("house_n", "1.0"), make_wheel("house_n", "1.0", {"house_needed/__init__.py": "A = 1\n"})
        )
        here = house(tmp_path)
        await here.install(*first)
        await here.install(*second)
        places = ["house_t.*", "house_t", "house_t.flows", str(beside), "house_nowhere"]
        both = {(one.name, one.is_place): one for one in await here.trial([first[0], second[0]], places)}
        assert both["house_t", False].problem is None
        assert both["house_u", False].problem is None
        assert both["house_v", False].problem == "it ended the process that imported it"
        assert both["house_w", False].problem == "SystemExit: no"
        assert both["house_t", True].problem is None, "of a module that is not searched, nothing else is wanted"
        for place in ("house_t.*", "house_t.flows"):
            found = both[place, True]
            assert found.wheel == first[0]
            assert found.problem == "ModuleNotFoundError: No module named 'house_missing'"
        assert both[str(beside), True] == (str(beside), None, None, True)
        assert both["house_nowhere", True].wheel is None
        [_, alone] = [one for one in await here.trial([first[0]], [str(beside), "house_u"]) if one.is_place]
        assert (alone.name, alone.problem) == ("house_u", None)
        [without] = await here.trial([], [str(beside)])
        assert without.problem == "ModuleNotFoundError: No module named 'house_needed'"
        assert not {name for name in sys.modules if name.startswith("house_")}
        await here.close()

    asyncio.run(body())


def test_processes_a_module_has_begun_end_with_the_trial(tmp_path: Path) -> None:
    """And what it says, however much, is cut: neither keeps the worker from going on."""
    pids = tmp_path / "pids"
    forks = (
        f"import os, time\nif (pid := os.fork()) == 0:\n    time.sleep(600)\nopen({str(pids)!r}, 'w').write(str(pid))\n"
    )

    async def body() -> None:
        files = {"house_forks.py": forks, "house_says.py": "raise RuntimeError(chr(0xDCFF) + 'x' * 3_000_000)\n"}
        wheel, content = a_wheel(wheel_name("house_z", "1.0"), make_wheel("house_z", "1.0", files))
        here = house(tmp_path)
        await here.install(wheel, content)
        begins, says = await asyncio.wait_for(here.trial([wheel], []), 30.0)
        assert begins.problem is None
        assert says.problem is not None
        assert says.problem.startswith("RuntimeError: \\udcffxxx")
        assert len(says.problem) < 1000
        await wait_until(lambda: not _is_running(int(pids.read_text())))
        await here.close()

    asyncio.run(body())


def test_a_module_that_forks_and_ends_the_trial_leaves_nothing_behind(tmp_path: Path) -> None:
    """Neither in its group nor in one of its own, and no process waits for its child."""
    pids = tmp_path / "pids"
    forks = (
        "import os, time\n"
        "for own in (False, True):\n"
        "    if (pid := os.fork()) == 0:\n"
        "        if own:\n"
        "            os.setpgrp()\n"
        "        time.sleep(600)\n"
        f"    print(pid, file=open({str(pids)!r}, 'a'), flush=True)\n"
        "os._exit(0)\n"
    )

    async def body() -> None:
        files = {"house_a_forks.py": forks, "house_b.py": ""}
        wheel, content = a_wheel(wheel_name("house_f", "1.0"), make_wheel("house_f", "1.0", files))
        here = house(tmp_path)
        await here.install(wheel, content)
        tried = await asyncio.wait_for(here.trial([wheel], []), 30.0)
        assert [(one.name, one.problem) for one in tried] == [
            ("house_a_forks", "it ended the process that imported it"),
            ("house_b", None),
        ]
        begun = [int(pid) for pid in pids.read_text().split()]
        assert len(begun) == 2
        await wait_until(lambda: not any(map(_is_running, begun)))
        await here.close()

    asyncio.run(body())


def test_a_process_that_leaves_the_session_is_not_waited_for(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    leaves = (
        "import os, time\nif (pid := os.fork()) == 0:\n    os.setsid()\n    time.sleep(600)\n"
        f"open({str(pids)!r}, 'w').write(str(pid))\n"
    )

    async def body() -> None:
        files = {"house_leaves.py": leaves}
        wheel, content = a_wheel(wheel_name("house_l", "1.0"), make_wheel("house_l", "1.0", files))
        here = house(tmp_path)
        await here.install(wheel, content)
        try:
            [one] = await asyncio.wait_for(here.trial([wheel], []), 30.0)
        finally:
            os.kill(int(pids.read_text()), signal.SIGKILL)
        assert one.problem is None
        await here.close()

    asyncio.run(body())


def _is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def test_an_import_that_does_not_end_is_abandoned(tmp_path: Path) -> None:
    async def body() -> None:
        files = {"house_x.py": "import time\ntime.sleep(600)\n", "house_y.py": ""}
        built = make_wheel("house_x", "1.0", files)
        wheel, content = a_wheel(wheel_name("house_x", "1.0"), built)
        patient = house(tmp_path)
        await patient.install(wheel, content)
        tried = await house(tmp_path, timeout_sec=4.0).trial([wheel], [])
        assert [(one.name, one.problem) for one in tried] == [
            ("house_x", "it took too long"),
            ("house_y", "it was not tried: there was no time left after house_x"),
        ]
        await patient.close()

    asyncio.run(body())


def test_the_part_of_a_package_that_does_not_end_is_named(tmp_path: Path) -> None:
    async def body() -> None:
        files = {"house_p/__init__.py": "", "house_p/slow.py": "import time\ntime.sleep(600)\n"}
        wheel, content = a_wheel(wheel_name("house_p", "1.0"), make_wheel("house_p", "1.0", files))
        patient = house(tmp_path)
        await patient.install(wheel, content)
        [brought, place, after] = await house(tmp_path, timeout_sec=4.0).trial([wheel], ["house_p.*", "house_q"])
        assert brought.problem is None
        assert place.problem == "it took too long (in house_p.slow)"
        assert after.problem == "it was not tried: there was no time left after house_p.slow"
        await patient.close()

    asyncio.run(body())
