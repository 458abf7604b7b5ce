"""Names of wheels: their package, version and platform, and which version of a package is the newest."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from packaging.tags import Tag
from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from packaging.version import Version

from pyoco_server.app.ports.wheels import Wheel
from pyoco_server.app.wheels.errors import WheelRefusedError, WheelVersionError
from pyoco_server.errors import InvalidInputError
from pyoco_server.identifiers import TAG, WHEEL_NAME

MOST_TAGS: Final = 32

_EXAMPLE: Final = "demo-1.2.0-py3-none-any.whl"


class WheelName(NamedTuple):
    """The parts of a wheel's name; ``package`` is in its normal form."""

    package: str
    version: Version
    build: tuple[()] | tuple[int, str]
    tags: frozenset[Tag]


def parse_name(name: str) -> WheelName:
    """Parse the name of a wheel; WheelRefusedError if it is not one."""
    remedy = f"name it as a build tool does, for example {_EXAMPLE}"
    if not WHEEL_NAME.fits(name):
        problem = f"{name!r:.80} is not the name of a wheel: {WHEEL_NAME.words}"
        raise WheelRefusedError("bad_name", problem, remedy)
    try:
        return WheelName(*parse_wheel_filename(name))
    except InvalidWheelFilename as error:
        raise WheelRefusedError("bad_name", f"{name!r:.80} is not the name of a wheel ({error})", remedy) from error


def known_name(wheel: Wheel) -> WheelName | None:
    """Parse the name of a wheel in the registry; None if another program put something else there."""
    try:
        return parse_name(wheel.name)
    except WheelRefusedError:
        return None


def read_tags(text: str) -> tuple[str, ...]:
    """Parse the tags of an upload, separated by commas; InvalidInputError if one cannot be a tag."""
    tags = tuple(dict.fromkeys(tag.strip() for tag in text.split(",") if tag.strip()))
    wrong = [tag for tag in tags if not TAG.fits(tag)]
    if wrong:
        raise InvalidInputError(
            f"tags: {wrong[0]!r:.80} is not a tag; use letters, digits, '_' and '-', with commas in between: cpu,linux"
        )
    if len(tags) > MOST_TAGS:
        raise InvalidInputError(f"tags: {len(tags)} are too many; at most {MOST_TAGS}")
    return tags


def must_be_newer(name: str, there: Sequence[Wheel]) -> None:
    """WheelVersionError unless the wheel's version is higher than that of every wheel of its package."""
    new = parse_name(name)
    versions = [
        (known.version, wheel.name)
        for wheel in there
        if (known := known_name(wheel)) is not None and known.package == new.package
    ]
    if versions and new.version <= max(versions)[0]:
        newest, newest_name = max(versions)
        raise WheelVersionError(new.package, str(new.version), str(newest), newest_name)
