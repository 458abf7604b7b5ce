"""Errors of wheels, and of requests about them."""

from typing import Any, ClassVar

from pyoco_server.errors import InvalidInputError, PyocoServerError


class WheelRefusedError(InvalidInputError):
    """The file is not accepted as a wheel: what is wrong with it, and what to do about it."""

    def __init__(self, reason: str, problem: str, remedy: str, *, entry: str | None = None) -> None:
        where = "" if entry is None else f"'{entry:.200}' "
        super().__init__(f"wheel: {where}{problem}; {remedy}")
        self.details: dict[str, Any] = {"reason": reason} | ({} if entry is None else {"entry": entry[:200]})


class WheelTooLargeError(InvalidInputError):
    """The file is too large."""

    def __init__(self, most: int) -> None:
        super().__init__(f"wheel: more than {most} bytes; make it smaller, or raise PYOCO_WHEEL_MAX_BYTES")
        self.details: dict[str, Any] = {"reason": "too_large", "max_bytes": most}


class WheelVersionError(PyocoServerError):
    """The registry has this version of the package already, or a newer one."""

    err_id: ClassVar[str | None] = "ERR-PYOCO-0022"
    msg_id: ClassVar[str | None] = "MSG-PYOCO-0022"

    def __init__(self, package: str, version: str, newest: str, wheel_name: str) -> None:
        super().__init__(f"{package} {version} is not newer than {newest}, which is there as '{wheel_name}'")
        self.details: dict[str, Any] = {"package": package, "version": version, "newest": newest, "name": wheel_name}


class WheelNotFoundError(PyocoServerError):
    """There is no such wheel."""

    err_id: ClassVar[str | None] = "ERR-PYOCO-0023"
    msg_id: ClassVar[str | None] = "MSG-PYOCO-0023"
