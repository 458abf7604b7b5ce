"""The wheels of a worker on disk: each in a directory of its own, complete or not there.

A directory is named by the wheel's ``nuid`` and the interpreter, is made under another name, renamed when all is in it
and on the disk, and never changes afterwards. So an installation that fails leaves the one before untouched, a restart
(of the machine, too) finds what it had, and workers on one machine share their directories. Each holds a lock on those
it imports from; what the registry no longer has is removed by whoever finds it unlocked.
"""

import asyncio
import contextlib
import errno
import fcntl
import hashlib
import logging
import os
import secrets
import shutil
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from pyoco_server.adapters.wheel_install_modules import (
    platform_modules,
    provided_modules,
    switch_paths,
    switched_paths,
)
from pyoco_server.adapters.wheel_install_pip import pip_install
from pyoco_server.adapters.wheel_install_trial import try_imports
from pyoco_server.app.ports.wheels import Tried, Wheel, WheelInstallError, WheelUnfitError
from pyoco_server.app.wheels_errors import WheelRefusedError
from pyoco_server.app.wheels_names import parse_name
from pyoco_server.identifiers import OBJECT_ID

_log = logging.getLogger(__name__)

_MAKING: Final = ".making-"
_SITE: Final = "site"
_DOWNLOAD_SHARE: Final = 4
"""A download that brings nothing for a quarter of the time an installation may take has failed."""


class LocalWheelHouse:
    """Serves the WheelHouse port for this interpreter."""

    def __init__(self, directory: Path, *, install_timeout_sec: float) -> None:
        self._directory = directory.absolute()
        self._timeout_sec = install_timeout_sec
        self._held: dict[Path, int] = {}
        self._active: list[Path] = []
        self._protected: frozenset[str] | None = None

    async def install(self, wheel: Wheel, content: Callable[[], AsyncIterator[bytes]]) -> None:
        """Make a wheel ready, and keep hold of it; quick if it is."""
        home = self._home(wheel)
        with _as_install_error(wheel):
            if await asyncio.to_thread(self._hold, home):
                return
            await asyncio.to_thread(self._directory.mkdir, parents=True, exist_ok=True)
            making = self._directory / f"{_MAKING}{secrets.token_hex(8)}"
            making.mkdir()
            lock = _locked(making, fcntl.LOCK_EX)
            try:
                await self._make(making, wheel, content)
                await asyncio.to_thread(_sync_all, making)
                _rename(making, home)
                await asyncio.to_thread(_sync, self._directory)
            finally:
                os.close(lock)
                await asyncio.to_thread(shutil.rmtree, making, ignore_errors=True)
            if not await asyncio.to_thread(self._hold, home):
                raise WheelInstallError(f"'{wheel.name}' was removed from '{home}' as soon as it was there")

    async def trial(self, wheels: Sequence[Wheel], places: Sequence[str]) -> list[Tried]:
        """Import in another process what these bring, and what is at these places."""
        sites = [self._home(wheel) / _SITE for wheel in wheels]
        brought: dict[str, Wheel] = {}
        for wheel, site in zip(wheels, sites, strict=True):
            try:
                brought |= dict.fromkeys(sorted(await asyncio.to_thread(provided_modules, site)), wheel)
            except OSError as error:
                raise WheelInstallError(f"what was installed cannot be used: {error}") from error
        path = switched_paths(self._active, sites)
        told = await try_imports(path, [*dict.fromkeys([*brought, *places])], timeout_sec=self._timeout_sec)
        return [
            *(Tried(module, wheel, told[module]) for module, wheel in brought.items()),
            *(Tried(place, _bringer(place, brought), told[place], is_place=True) for place in dict.fromkeys(places)),
        ]

    async def activate(self, wheels: Sequence[Wheel]) -> None:
        """Import from the directories of these, and let go of the others."""
        homes = [self._home(wheel) for wheel in wheels]
        sites = [home / _SITE for home in homes]
        try:
            switch_paths(self._active, sites)
        except OSError as error:
            raise WheelInstallError(f"what was installed cannot be used: {error}") from error
        self._active = sites
        self._let_go_of_others()

    async def tidy(self, known: Sequence[Wheel]) -> None:
        """Remove what no worker here uses and the registry no longer has; also what a dead one was making."""
        self._let_go_of_others()
        keep = {wheel.nuid for wheel in known}
        try:
            await asyncio.to_thread(self._tidy, keep)
        except OSError as error:  # it only takes up room
            _log.warning("'%s' was not tidied: %s", self._directory, error, extra={"action": "wheels_untidy"})

    async def close(self) -> None:
        """Let go of everything; what was imported stays so."""
        for lock in self._held.values():
            os.close(lock)
        self._held.clear()

    async def _make(self, making: Path, wheel: Wheel, content: Callable[[], AsyncIterator[bytes]]) -> None:
        file, site = making / wheel.name, making / _SITE
        await self._download(file, wheel, content())
        site.mkdir()
        await pip_install(file, site, timeout_sec=self._timeout_sec)
        await asyncio.to_thread(self._check, site, wheel)
        file.unlink()

    async def _download(self, file: Path, wheel: Wheel, content: AsyncIterator[bytes]) -> None:
        digest, loop, silence_sec = hashlib.sha256(), asyncio.get_running_loop(), self._timeout_sec / _DOWNLOAD_SHARE
        with file.open("xb") as target:
            async with asyncio.timeout(silence_sec) as limit:
                async for piece in content:
                    limit.reschedule(loop.time() + silence_sec)
                    digest.update(piece)
                    await asyncio.to_thread(target.write, piece)
        if wheel.sha256_hex is None or digest.hexdigest() != wheel.sha256_hex:
            raise WheelInstallError(f"'{wheel.name}' has the SHA-256 {digest.hexdigest()}, not {wheel.sha256_hex}")

    def _check(self, site: Path, wheel: Wheel) -> None:
        """Code the worker itself runs on is the business of whoever installed the worker."""
        if self._protected is None:
            self._protected = platform_modules()
        tops = {name.partition(".")[0] for name in provided_modules(site)}
        if clash := sorted(tops & self._protected):
            raise WheelUnfitError(
                f"'{wheel.name}' brings {', '.join(clash[:5])}, which the worker itself runs on; install it beside it"
            )

    def _home(self, wheel: Wheel) -> Path:
        """Where a wheel is kept; whoever wrote into the registry by hand may have written anything."""
        if not OBJECT_ID.fits(wheel.nuid):
            raise WheelUnfitError(f"the nuid {wheel.nuid!r:.80} cannot be used")
        try:
            parse_name(wheel.name)
        except WheelRefusedError as error:
            raise WheelUnfitError(str(error)) from error
        return self._directory / f"{wheel.nuid}-{sys.implementation.cache_tag}"

    def _hold(self, home: Path) -> bool:
        """Lock a directory that is there, so that nobody removes it; False if it is not, or is just being removed."""
        held = self._held.get(home)
        if held is not None and _is_still(home, held):
            return True
        if held is not None:
            os.close(self._held.pop(home))
        try:
            lock = _locked(home, fcntl.LOCK_SH)
        except (FileNotFoundError, BlockingIOError):
            return False
        if not _is_still(home, lock):
            os.close(lock)
            return False
        self._held[home] = lock
        return True

    def _let_go_of_others(self) -> None:
        """Of what was made ready and is not in use."""
        used = {site.parent for site in self._active}
        for home in [home for home in self._held if home not in used]:
            os.close(self._held.pop(home))

    def _tidy(self, keep: set[str]) -> None:
        if not self._directory.is_dir():
            return
        for path in self._directory.iterdir():
            nuid = path.name.removesuffix(f"-{sys.implementation.cache_tag}")
            ours = path.name.startswith(_MAKING) or path.name != nuid
            if ours and path.is_dir() and nuid not in keep and path not in self._held:
                self._remove(path)

    def _remove(self, path: Path) -> None:
        try:
            lock = _locked(path, fcntl.LOCK_EX)
        except (FileNotFoundError, BlockingIOError):
            return  # in use, or gone
        try:
            if _is_still(path, lock):
                shutil.rmtree(path, ignore_errors=True)
        finally:
            os.close(lock)


def _bringer(place: str, brought: Mapping[str, Wheel]) -> Wheel | None:
    """Whose module it is, if it is one that a wheel brings."""
    return next((wheel for name, wheel in brought.items() if place == name or place.startswith(f"{name}.")), None)


def _sync_all(making: Path) -> None:
    """Have everything on the disk before it gets the name it is found by.

    Otherwise the machine could go down, and come back with the name and with files that are empty.
    """
    for folder, _, files in os.walk(making):
        for name in files:
            _sync(Path(folder) / name)
        _sync(Path(folder))


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _rename(making: Path, home: Path) -> None:
    """On the loop, where nobody can take it away in the middle."""
    try:
        making.rename(home)
    except OSError as error:
        if error.errno not in {errno.EEXIST, errno.ENOTEMPTY}:  # somebody else was quicker: theirs is as good
            raise


def _locked(folder: Path, kind: int) -> int:
    """The open folder with a lock on it, which ends with the process; BlockingIOError if somebody else has it."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _is_still(folder: Path, fd: int) -> bool:
    """Is the folder we locked the one that is there now?"""
    try:
        return os.path.samestat(os.fstat(fd), folder.stat())
    except FileNotFoundError:
        return False


@contextlib.contextmanager
def _as_install_error(wheel: Wheel) -> Iterator[None]:
    """What the file system or the clock says about it, in our words."""
    try:
        yield
    except TimeoutError as error:
        raise WheelInstallError(f"the download of '{wheel.name}' stopped") from error
    except OSError as error:
        raise WheelInstallError(f"'{wheel.name}' could not be kept: {error}") from error
