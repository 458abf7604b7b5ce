"""The wheels of a worker on disk: each in a directory of its own, which is complete or does not exist.

A directory is named by the wheel's ``nuid`` and the interpreter. It is made under another name, renamed when it is
complete and synced, and never changes afterwards. So a failed installation leaves the previous one untouched, a restart
(also of the machine) finds all installed wheels, and workers on one machine share directories. Each worker holds a lock
on those it imports from; a worker that finds a directory unlocked and no longer in the registry removes it.
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

from pyoco_server.adapters.private_files import DIRECTORY_MODE, close_to_others
from pyoco_server.adapters.wheel_install.modules import (
    platform_modules,
    provided_modules,
    switch_paths,
    switched_paths,
)
from pyoco_server.adapters.wheel_install.pip import pip_install
from pyoco_server.adapters.wheel_install.trial import try_imports
from pyoco_server.app.ports.wheels import Tried, Wheel, WheelInstallError, WheelUnfitError
from pyoco_server.app.wheels.errors import WheelRefusedError
from pyoco_server.app.wheels.names import parse_name
from pyoco_server.identifiers import OBJECT_ID

_log = logging.getLogger(__name__)

_MAKING: Final = ".making-"
_SITE: Final = "site"
_DOWNLOAD_SHARE: Final = 4
"""A download has failed when no data arrives for this part (1/4) of the time an installation may take."""


class LocalWheelHouse:
    """Implements the WheelHouse port for this interpreter."""

    def __init__(self, directory: Path, *, install_timeout_sec: float) -> None:
        self._directory = directory.absolute()
        self._timeout_sec = install_timeout_sec
        self._held: dict[Path, int] = {}
        self._active: list[Path] = []
        self._protected: frozenset[str] | None = None

    async def install(self, wheel: Wheel, content: Callable[[], AsyncIterator[bytes]]) -> None:
        """Install a wheel unless it is installed, and lock its directory."""
        home = self._home(wheel)
        with _as_install_error(wheel):
            if await asyncio.to_thread(self._hold, home):
                return
            await asyncio.to_thread(self._directory.mkdir, mode=DIRECTORY_MODE, parents=True, exist_ok=True)
            making = self._directory / f"{_MAKING}{secrets.token_hex(8)}"
            making.mkdir(mode=DIRECTORY_MODE)
            lock = _locked(making, fcntl.LOCK_EX)
            try:
                await self._make(making, wheel, content)
                await asyncio.to_thread(close_to_others, making)
                await asyncio.to_thread(_sync_all, making)
                _rename(making, home)
                await asyncio.to_thread(_sync, self._directory)
            finally:
                os.close(lock)
                await asyncio.to_thread(shutil.rmtree, making, ignore_errors=True)
            if not await asyncio.to_thread(self._hold, home):
                raise WheelInstallError(f"'{wheel.name}' was removed from '{home}' as soon as it was installed")

    async def trial(self, wheels: Sequence[Wheel], places: Sequence[str]) -> list[Tried]:
        """Import the modules of these wheels, and those at these places, in another process."""
        sites = [self._home(wheel) / _SITE for wheel in wheels]
        brought: dict[str, Wheel] = {}
        for wheel, site in zip(wheels, sites, strict=True):
            try:
                brought |= dict.fromkeys(sorted(await asyncio.to_thread(provided_modules, site)), wheel)
            except OSError as error:
                raise WheelInstallError(f"what was installed cannot be used: {error}") from error
        path = switched_paths(self._active, sites)
        problems = await try_imports(path, [*dict.fromkeys([*brought, *places])], timeout_sec=self._timeout_sec)
        return [
            *(Tried(module, wheel, problems[module]) for module, wheel in brought.items()),
            *(Tried(each, _owner_of(each, brought), problems[each], is_place=True) for each in dict.fromkeys(places)),
        ]

    async def activate(self, wheels: Sequence[Wheel]) -> None:
        """Import from the directories of these wheels, and release the others."""
        homes = [self._home(wheel) for wheel in wheels]
        sites = [home / _SITE for home in homes]
        try:
            switch_paths(self._active, sites)
        except OSError as error:
            raise WheelInstallError(f"what was installed cannot be used: {error}") from error
        self._active = sites
        self._release_unused()

    async def tidy(self, known: Sequence[Wheel]) -> None:
        """Remove directories that no worker uses and the registry no longer has, and those that a dead worker left."""
        self._release_unused()
        keep = {wheel.nuid for wheel in known}
        try:
            await asyncio.to_thread(self._tidy, keep)
        except OSError as error:  # it only uses space
            _log.warning("'%s' was not tidied: %s", self._directory, error, extra={"action": "wheels_untidy"})

    async def close(self) -> None:
        """Release all locks; imported modules stay imported."""
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
        """Refuse a wheel that would replace code that the worker itself uses."""
        if self._protected is None:
            self._protected = platform_modules()
        tops = {name.partition(".")[0] for name in provided_modules(site)}
        if clash := sorted(tops & self._protected):
            raise WheelUnfitError(
                f"'{wheel.name}' brings {', '.join(clash[:5])}, which the worker itself runs on; install it beside it"
            )

    def _home(self, wheel: Wheel) -> Path:
        """Return the directory of a wheel. Checks the names, because the registry may have been edited by hand."""
        if not OBJECT_ID.fits(wheel.nuid):
            raise WheelUnfitError(f"the nuid {wheel.nuid!r:.80} cannot be used")
        try:
            parse_name(wheel.name)
        except WheelRefusedError as error:
            raise WheelUnfitError(str(error)) from error
        return self._directory / f"{wheel.nuid}-{sys.implementation.cache_tag}"

    def _hold(self, home: Path) -> bool:
        """Lock a directory, so that no worker removes it; False if it does not exist or is being removed."""
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

    def _release_unused(self) -> None:
        """Release the locks of installed wheels that are not in use."""
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


def _owner_of(place: str, brought: Mapping[str, Wheel]) -> Wheel | None:
    """Return the wheel that has the module at this place, or None."""
    return next((wheel for name, wheel in brought.items() if place == name or place.startswith(f"{name}.")), None)


def _sync_all(making: Path) -> None:
    """Sync all files before the directory gets its final name.

    Otherwise a power loss could leave the name with empty files.
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
    """Give the directory its final name; on the event loop, so that a cancel cannot interrupt it."""
    try:
        making.rename(home)
    except OSError as error:
        if error.errno not in {errno.EEXIST, errno.ENOTEMPTY}:  # another worker was faster, with the same content
            raise


def _locked(folder: Path, kind: int) -> int:
    """Open and lock a folder until the process ends; BlockingIOError if another process holds the lock."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _is_still(folder: Path, fd: int) -> bool:
    """Return whether the folder at this path is still the one that we locked."""
    try:
        return os.path.samestat(os.fstat(fd), folder.stat())
    except FileNotFoundError:
        return False


@contextlib.contextmanager
def _as_install_error(wheel: Wheel) -> Iterator[None]:
    """Translate errors of the file system and timeouts."""
    try:
        yield
    except TimeoutError as error:
        raise WheelInstallError(f"the download of '{wheel.name}' stopped") from error
    except OSError as error:
        raise WheelInstallError(f"'{wheel.name}' could not be kept: {error}") from error
