"""Which version is the newer one, and which wheels a worker wants."""

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.tags import Tag, parse_tag
from packaging.version import Version

from pyoco_server.app.ports.wheels import Wheel
from pyoco_server.app.wheels.errors import WheelVersionError
from pyoco_server.app.wheels.names import must_be_newer, parse_name
from pyoco_server.app.wheels.selection import interpreter, select
from tests.wheels.building import wheel_name

HERE = interpreter([*parse_tag("cp311-cp311-linux_x86_64"), *parse_tag("py3-none-any")], "3.11.7")

numbers = st.integers(0, 30)
releases = st.lists(numbers, min_size=1, max_size=4).map(lambda parts: ".".join(map(str, parts)))
versions = st.builds(
    lambda epoch, release, pre, post, dev: f"{epoch}{release}{pre}{post}{dev}",
    st.sampled_from(["", "", "1!"]),
    releases,
    st.one_of(
        st.just(""), st.builds(lambda kind, number: f"{kind}{number}", st.sampled_from(["a", "b", "rc"]), numbers)
    ),
    st.one_of(st.just(""), numbers.map(lambda number: f".post{number}")),
    st.one_of(st.just(""), numbers.map(lambda number: f".dev{number}")),
)


def wheel(name: str, *tags: str, requires_python: str = "") -> Wheel:
    return Wheel(
        name=name,
        size_bytes=1,
        bucket="b",
        nuid=name,
        modified=0.0,
        sha256_hex=None,
        tags=tags,
        requires_python=requires_python,
    )


def wanted(*wheels: Wheel, tags: tuple[str, ...] = ("cpu",)) -> list[str]:
    return [found.name for found in select(wheels, tags, HERE).wanted]


@pytest.mark.spec("004 REQ-0025", "004 ERR-PYOCO-0022")
@given(st.lists(versions, max_size=6), versions)
def test_a_version_is_accepted_if_and_only_if_it_is_the_highest(there: list[str], new: str) -> None:
    wheels = [wheel(wheel_name("demo", version)) for version in there] + [wheel(wheel_name("other", "99"))]
    if all(Version(new) > Version(version) for version in there):
        must_be_newer(wheel_name("demo", new), wheels)
        return
    with pytest.raises(WheelVersionError) as caught:
        must_be_newer(wheel_name("demo", new), wheels)
    assert Version(caught.value.details["newest"]) == max(map(Version, there))


@given(st.lists(versions, max_size=12))
def test_accepted_versions_rise_strictly(offered: list[str]) -> None:
    kept: list[Wheel] = []
    for version in offered:
        try:
            must_be_newer(wheel_name("demo", version), kept)
        except WheelVersionError:
            continue
        kept.append(wheel(wheel_name("demo", version)))
    accepted = [parse_name(one.name).version for one in kept]
    assert all(one < other for one, other in pairwise(accepted))
    assert not offered or accepted[-1] == max(map(Version, offered))


@given(st.lists(versions, min_size=1, max_size=8), st.randoms())
def test_the_newest_is_wanted_in_whatever_order_they_come(there: list[str], chance: random.Random) -> None:
    wheels = [wheel(wheel_name("demo", version)) for version in there]
    chance.shuffle(wheels)
    [found] = wanted(*wheels)
    assert parse_name(found).version == max(map(Version, there))


@pytest.mark.spec("004 REQ-0026")
@pytest.mark.parametrize(
    ("wheel_tags", "worker_tags", "meant"),
    [
        ((), ("cpu",), True),
        (("cpu",), ("cpu",), True),
        (("cpu", "linux"), ("gpu", "linux"), True),
        (("gpu",), ("cpu",), False),
        (("CPU",), ("cpu",), False),
    ],
)
def test_tags_decide_which_workers_a_wheel_is_for(
    wheel_tags: tuple[str, ...], worker_tags: tuple[str, ...], meant: bool
) -> None:
    assert bool(wanted(wheel("demo-1.0-py3-none-any.whl", *wheel_tags), tags=worker_tags)) is meant


@pytest.mark.spec("004 REQ-0026", "004 §付録E")
def test_of_each_package_the_newest_that_runs_here_is_selected_and_the_others_are_reported() -> None:
    selection = select(
        [
            wheel("demo-1.0-py3-none-any.whl"),
            wheel("Demo-1.9-py3-none-any.whl"),
            wheel("demo-1.10-py3-none-any.whl"),
            wheel("demo-2.0-cp39-cp39-win_amd64.whl"),
            wheel("demo-3.0-py3-none-any.whl", requires_python=">=3.13"),
            wheel("demo-4.0-py3-none-any.whl", "gpu"),
            wheel("other-1.0-cp311-cp311-linux_x86_64.whl"),
            wheel("strange.whl"),
        ],
        ("cpu",),
        HERE,
    )
    assert [found.name for found in selection.wanted] == [
        "demo-1.10-py3-none-any.whl",
        "other-1.0-cp311-cp311-linux_x86_64.whl",
    ]
    assert {skipped.wheel.name: skipped.reason for skipped in selection.skipped} == {
        "demo-2.0-cp39-cp39-win_amd64.whl": "it is for cp39-cp39-win_amd64",
        "demo-3.0-py3-none-any.whl": "it needs Python >=3.13, here is 3.11.7",
        "strange.whl": "its name is not that of a wheel",
    }


def test_of_one_version_the_one_made_for_this_machine_is_wanted() -> None:
    names = ["demo-1.0-py3-none-any.whl", "demo-1.0-cp311-cp311-linux_x86_64.whl", "demo-1.0-2-py3-none-any.whl"]
    assert wanted(*map(wheel, names)) == ["demo-1.0-cp311-cp311-linux_x86_64.whl"]
    assert wanted(wheel(names[0]), wheel(names[2])) == ["demo-1.0-2-py3-none-any.whl"]


def test_the_interpreter_knows_its_best_tag() -> None:
    assert HERE.tags[Tag("cp311", "cp311", "linux_x86_64")] > HERE.tags[Tag("py3", "none", "any")]
