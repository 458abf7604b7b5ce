"""Run a NATS server as long as this process runs: start it, restart it when it dies, stop it."""

import asyncio
import logging
import os
import sys
from pathlib import Path
from typing import NamedTuple, Self

from pyoco_server.adapters.jetstream.durability.file_system import file_system_of
from pyoco_server.adapters.jetstream.durability.policy import (
    LOOPBACK,
    Durability,
    DurabilityPolicy,
    SyncedBy,
    fallback,
    keeps_renamed_files,
    policy_of_embedded,
)
from pyoco_server.adapters.jetstream.durability.server_name import leaves_syncing, name_for_store, streams_below
from pyoco_server.adapters.nats_server.config import Configuration, environment, processors_here
from pyoco_server.adapters.nats_server.directory import (
    DataDirectory,
    remove_unfinished_streams,
    store_dir,
    stored_streams,
)
from pyoco_server.adapters.nats_server.errors import (
    DirectoryUnusableError,
    ExecutableUnusableError,
    NatsServerError,
    PortTakenError,
    RestartsExhaustedError,
    ServerDiedError,
    StartTimeoutError,
    StoreDamagedError,
)
from pyoco_server.adapters.nats_server.exec_with_parent import CANNOT_EXECUTE
from pyoco_server.adapters.nats_server.executables import ServerCommand, nats_server_command
from pyoco_server.adapters.nats_server.probe import NotReadyError, ReadyServer, ready_server, self_test
from pyoco_server.adapters.nats_server.process import ServerProcess

_log = logging.getLogger(__name__)

_LOOPBACK_OF = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 (where to reach a server that listens everywhere)


class RestartPolicy(NamedTuple):
    """When to restart a server that died: after a delay that doubles each time; give up after too many quick deaths.

    After ``stable_sec`` of running, earlier deaths do not count.
    """

    max_quick_deaths: int = 5
    stable_sec: float = 10.0
    first_delay_sec: float = 0.1
    max_delay_sec: float = 5.0

    def delay_sec(self, quick_deaths: int) -> float:
        """Return how long to wait after this many quick deaths in a row."""
        return min(self.first_delay_sec * 2.0 ** (quick_deaths - 1), self.max_delay_sec)


class NatsServer:
    """A NATS server with JetStream on a data directory. Belongs to one event loop; may be started again when stopped.

    Port 0 is any free one, and stays the same over restarts. Without ``synced_by`` the durability policy decides who
    syncs (``jetstream.durability.policy``); if clients sync, the server's name says so, in place of ``server_name``.
    ``command`` runs the server in another way than directly. If this process dies without stopping it, Linux ends the
    server; on other systems it continues, and the next start on the same directory names its process.
    """

    def __init__(  # noqa: PLR0913 the settings of a server
        self,
        data_dir: Path,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        http_port: int | None = None,
        durability: Durability = "sync",
        synced_by: SyncedBy | None = None,
        server_name: str = "pyoco",
        command: ServerCommand | None = None,
        start_timeout_sec: float = 60.0,
        stop_timeout_sec: float = 10.0,
        restarts: RestartPolicy = RestartPolicy(),  # noqa: B008 (immutable)
    ) -> None:
        if not 0 <= port <= 65535:
            raise ValueError(f"port must be from 0 to 65535, not {port}")
        self._directory = DataDirectory(data_dir)
        self._durability: Durability = durability
        self._asked_for = DurabilityPolicy(synced_by, "this was asked for") if synced_by else None
        self._policy: DurabilityPolicy | None = None
        self._is_doubtful = False
        self._wanted = Configuration(host, port, "server", server_name, http_port)
        self._configuration = self._wanted
        self._command = command
        self._start_timeout_sec = start_timeout_sec
        self._stop_timeout_sec = stop_timeout_sec
        self._restarts = restarts
        self._process: ServerProcess | None = None
        self._supervision: asyncio.Task[None] | None = None
        self._changing = asyncio.Lock()

    @property
    def url(self) -> str:
        """Where clients connect. With port 0 it is known only after the start."""
        port = self._configuration.port
        if port == 0:
            raise RuntimeError("The NATS server has no port yet: start it first.")
        host = self._reachable_host
        return f"nats://[{host}]:{port}" if ":" in host else f"nats://{host}:{port}"

    @property
    def policy(self) -> DurabilityPolicy:
        """Which side syncs acknowledged data to the disk. Known after the start; a restart can change it."""
        if self._policy is None:
            raise RuntimeError("The NATS server has no durability policy yet: start it first.")
        return self._policy

    @property
    def has_doubtful_blocks(self) -> bool:
        """Whether streams may have lost messages, by a power loss since the last clean stop.

        True after an unclean stop on a file system that can lose renamed files, until :meth:`note_rebuilt`.
        """
        return self._is_doubtful

    def note_rebuilt(self) -> None:
        """Note that everything derived from the log was compared with it since the start."""
        self._is_doubtful = False

    @property
    def pid(self) -> int | None:
        """The process id of the server, or of the program that runs it; None while there is none."""
        return self._process.pid if self._process is not None else None

    @property
    def log_path(self) -> Path:
        """The log of the server."""
        return self._directory.log

    async def start(self) -> None:
        """Start the server and wait until it listens and JetStream has loaded every stream of the store.

        Raises a ``NatsServerError`` if that fails; then no server runs.
        """
        async with self._changing:
            if self._supervision is not None:
                raise RuntimeError("The NATS server is already started.")
            command = self._command or nats_server_command()
            self._configuration, self._policy = self._wanted, None
            await self._directory.claim()
            try:
                was_unclean = self._directory.mark_in_use()
                try:
                    process = await self._launch(command)
                except BaseException:
                    if not was_unclean:
                        await self._mark_stopped()
                    raise
                self._look_back(was_unclean=was_unclean)
            except BaseException:
                self._directory.release()
                raise
            _log.info(
                "the NATS server is ready at %s",
                self.url,
                extra={"action": "nats_server_started", "url": self.url, "pid": process.pid},
            )
            self._supervision = asyncio.create_task(self._supervise(command, process), name="NATS server supervision")

    async def stop(self) -> None:
        """Stop the server and release its directory; does nothing if it is not started."""
        async with self._changing:
            supervision, self._supervision = self._supervision, None
            if supervision is None:
                return
            supervision.cancel()
            try:
                # ``wait`` reports how it ended.
                await asyncio.gather(supervision, return_exceptions=True)
            finally:
                try:
                    await self._end_process()
                    if not self._is_doubtful:
                        await self._mark_stopped()
                finally:
                    self._directory.release()
            _log.info("the NATS server is stopped", extra={"action": "nats_server_stopped"})

    async def wait(self) -> None:
        """Return when the server is stopped; raise as soon as it is down and will not be restarted."""
        supervision = self._supervision
        if supervision is not None:
            await asyncio.wait({supervision})
            if not supervision.cancelled():
                supervision.result()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.stop()

    @property
    def _reachable_host(self) -> str:
        return _LOOPBACK_OF.get(self._configuration.host, self._configuration.host)

    def _look_back(self, *, was_unclean: bool) -> None:
        where = file_system_of(self._directory.path)
        self._is_doubtful = was_unclean and not keeps_renamed_files(where)
        if self._is_doubtful:
            _log.warning(
                "the NATS server was not stopped cleanly, and %s can lose renamed files when power fails: snapshots "
                "and jobs are compared with the logs before requests are served",
                where.name,
                extra={"action": "unclean_stop", "file_system": where.name},
            )

    async def _mark_stopped(self) -> None:
        """Note a clean stop. If that fails, the next start assumes an unclean one."""
        is_synced = not keeps_renamed_files(file_system_of(self._directory.path))
        try:
            await asyncio.to_thread(self._directory.mark_stopped, is_synced=is_synced)
        except DirectoryUnusableError as error:
            _log.warning("the stop of the NATS server was not noted: %s", error, extra={"action": "stop_not_noted"})

    async def _supervise(self, command: ServerCommand, process: ServerProcess) -> None:
        """Start the server again whenever it dies. Raises when that does not help."""
        loop = asyncio.get_running_loop()
        quick_deaths = 0
        while True:
            ready_at = loop.time()
            await process.wait()
            if loop.time() - ready_at >= self._restarts.stable_sec:
                quick_deaths = 0
            error: NatsServerError = ServerDiedError(process.ending, self._directory.log_tail())
            await self._end_process()  # and the processes that it started
            while True:
                quick_deaths += 1
                await self._pause_after(error, quick_deaths)
                try:
                    process = await self._launch(command)
                    break
                except NatsServerError as again:
                    error = again
            _log.info(
                "the NATS server is back at %s",
                self.url,
                extra={"action": "nats_server_restarted", "url": self.url, "pid": process.pid},
            )

    async def _pause_after(self, error: NatsServerError, quick_deaths: int) -> None:
        """Wait before the next start; raises if the policy allows none."""
        known = {"quick_deaths": quick_deaths, "url": self.url}
        is_hopeless = isinstance(error, StoreDamagedError | ExecutableUnusableError)
        if is_hopeless or quick_deaths >= self._restarts.max_quick_deaths:
            _log.error("giving up on the NATS server: %s", error, extra={"action": "nats_server_given_up", **known})
            if is_hopeless:
                raise error
            raise RestartsExhaustedError(quick_deaths, self._directory.log_tail()) from error
        delay_sec = self._restarts.delay_sec(quick_deaths)
        _log.warning(
            "the NATS server is down, next start in %g s: %s",
            delay_sec,
            error,
            extra={"action": "nats_server_died", "delay_sec": delay_sec, **known},
        )
        await asyncio.sleep(delay_sec)

    async def _launch(self, command: ServerCommand) -> ServerProcess:
        """Start the server as the durability policy demands; nothing runs if this raises."""
        version = await command.server_version()
        policy = self._asked_for or policy_of_embedded(
            self._durability, host=self._wanted.host, platform=sys.platform, version=version
        )
        self._adopt(policy)
        process, ready = await self._launch_once(command)
        if policy.synced_by == "clients" and (problem := await self._distrust(version, ready)) is not None:
            await self._end_process()
            policy = fallback(problem)
            self._adopt(policy)
            process, _ = await self._launch_once(command)
        policy = policy._replace(file_system=file_system_of(self._directory.path))
        if policy != self._policy:
            policy.report()
        self._policy = policy
        return process

    def _adopt(self, policy: DurabilityPolicy) -> None:
        """Configure the next start. The name stays the same over restarts, as long as clients sync."""
        name, by_clients = self._configuration.server_name, policy.synced_by == "clients"
        if not by_clients:
            name = self._wanted.server_name
        elif not leaves_syncing(name):
            name = name_for_store(self._directory.path)
        self._configuration = self._configuration._replace(synced_by=policy.synced_by, server_name=name)

    async def _distrust(self, version: str | None, ready: ReadyServer) -> str | None:
        """Return why clients must not sync the files of this server; None if they may."""
        if ready.version != version:
            return f"the program says that it is nats-server {version}, and the server that it is {ready.version}"
        try:
            return await self_test(self._reachable_host, self._configuration.port, streams_below(self._directory.path))
        except BaseException:
            await self._end_process()
            raise

    async def _launch_once(self, command: ServerCommand) -> tuple[ServerProcess, ReadyServer]:
        """Start the server once and wait until it is ready; nothing runs if this raises."""
        unfinished = remove_unfinished_streams(self._directory.path)
        if unfinished:
            _log.warning(
                "the creation of the streams %s was cut short; they have no messages and are created again",
                ", ".join(unfinished),
                extra={"action": "unfinished_streams_removed", "streams": unfinished},
            )
        stored = stored_streams(self._directory.path)
        self._directory.prepare(self._configuration)
        with self._directory.open_output() as output:
            try:
                self._process = await ServerProcess.start(
                    (*command.arguments, str(self._directory.config)),
                    stop_signal=command.stop_signal,
                    output=output,
                    keep_open=self._directory.lock_fd,
                    environment=environment(
                        os.environ,
                        processors=processors_here(),
                        synced_by=self._configuration.synced_by,
                        is_for_others=self._configuration.host not in LOOPBACK,
                    ),
                )
            except OSError as error:  # no memory, no more processes
                raise ServerDiedError(f"could not be started ({error})", "") from error
        try:
            self._directory.note_server(self._process.pid)
            ready = await self._until_ready(self._process)
            self._check_store(stored, ready.streams)
        except BaseException:
            await self._end_process()
            raise
        return self._process, ready

    async def _until_ready(self, process: ServerProcess) -> ReadyServer:
        """Ask until the server answers, dies, or time is up; return its answer."""
        missing = "it does not listen"
        try:
            async with asyncio.timeout(self._start_timeout_sec):
                while process.exit_code is None:
                    port = self._directory.announced_port()
                    if port is not None:
                        self._configuration = self._configuration._replace(port=port)
                        missing = "JetStream does not answer"
                        try:
                            return await ready_server(self._reachable_host, port)
                        except NotReadyError as error:
                            missing = f"JetStream does not answer ({error})"
                    await asyncio.sleep(0.01)
        except TimeoutError:
            raise StartTimeoutError(self._start_timeout_sec, missing, self._directory.log_tail()) from None
        raise self._cause_of_death(process)

    def _check_store(self, stored: frozenset[str], found: frozenset[str]) -> None:
        if stored - found:
            store, log_tail = store_dir(self._directory.path), self._directory.log_tail()
            raise StoreDamagedError(store, stored - found, log_tail, intact=stored & found)
        complaints = self._directory.complaints()
        if complaints:
            _log.warning(
                "the NATS server complained while it started:\n%s",
                "\n".join(complaints),
                extra={"action": "nats_server_complained"},
            )

    def _cause_of_death(self, process: ServerProcess) -> NatsServerError:
        said, log_tail = self._directory.said(), self._directory.log_tail()
        if process.exit_code == CANNOT_EXECUTE:
            return ExecutableUnusableError(Path(process.program), said)
        if "address already in use" in said:
            return PortTakenError(self._configuration.host, self._configuration.port)
        if "Can't start JetStream" in said:
            return StoreDamagedError(store_dir(self._directory.path), (), log_tail)
        return ServerDiedError(process.ending, log_tail)

    async def _end_process(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            await process.end(self._stop_timeout_sec)
