"""The supervisor of a node of several shards: owns the data directory and the topics, starts shards and the worker.

Serves no requests. A shard that dies is restarted while its siblings go on. If the supervisor dies, the shards end;
each has inherited the lock of the data directory, which stays held until the last one ends. Topics and cluster
membership are its `member`'s: node/cluster/standalone_topics.py or node/cluster/member.py.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
import random
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import Any

from engine.directory.catalog import Catalog
from engine.directory.data_directory import DataDirectory
from engine.directory.log_directories import FAULT_HINT, LogDirectories, log_offline
from engine.errors import StartRefused, Unreachable
from engine.log.recovery import LastShutdown
from engine.runtime.clock import SystemClock
from engine.runtime.disk import RealDisk
from engine.runtime.tasks import BackgroundTasks, keep_running, start_task
from gateway.access.listeners.listeners_file import ListenerSpec
from gateway.access.oidc.issuers import Issuer
from gateway.access.oidc.keys import OidcState
from gateway.access.oidc.keys import state_to as oidc_state_to
from gateway.access.state import AccessState, state_to
from gateway.audit.writer import AuditWriter
from gateway.links.addresses import direct_urls, internal_url_of, reachable, reserve_port, url_of
from gateway.links.kafka_addresses import with_kafka_port
from gateway.links.link import Link
from gateway.links.node_tls import OFF
from gateway.links.rest_proxy_address import with_rest_proxy_port
from gateway.settings import NodeSettings
from node.child_processes import WORKER, Child, ChildProcesses
from node.cluster.access_keeper import AccessKeeper
from node.cluster.member import Membership, create_member
from node.cluster.sessions import check_standalone
from node.cluster.standalone_topics import Standalone
from node.messages import CHANGE_S, DirectoryTask, Ports, RecordFields, ShardTask, record_to, supervisor_socket
from node.process_calls import DirectoryFailed
from node.processes.liveness_watchdog import kill_if_silent
from node.processes.process_manager import call_sequentially, end, kill
from node.processes.process_parts import (
    StoppedEarly,
    new_id,
    open_directories,
    open_probed_store,
    print_ready,
    run_unless_stopped,
    stop_event,
    store_url,
    wait_until_unlocked,
)
from node.processes.service_manager import STOPPING, notify_manager
from node.processes.supervisor_calls import SupervisorActions, SupervisorConnection
from node.setup.auditing import open_audit
from node.setup.file_limit import within_file_limit
from node.setup.issuers import IssuerKeys, read_issuers_at_start
from node.setup.logs import set_up_logging
from node.setup.public_listeners import read_listeners, reserved
from node.setup.reloading import FileReloader, read_tokens_at_start
from node.setup.setting_sources import internal_tls_files

RESTART_PAUSE_S = (0.0, 0.5, 2.0, 5.0, 15.0)  # after 1, 2, 3 … deaths in a row; the last value repeats
HEALTHY_S = 60.0
STOP_MARGIN_S = 10.0

log = logging.getLogger("penstock.supervisor")


async def serve_shards(settings: NodeSettings) -> None:
    """Runs a node of `shards` processes, standalone or in a cluster, until SIGTERM or SIGINT. Raises StartRefused.

    A stop before the node is ready ends the start, which waits indefinitely for the coordination store.
    """
    set_up_logging(settings.log_level)
    settings = dataclasses.replace(within_file_limit(settings), shards=max(1, settings.shards))
    stop = stop_event()
    tokens, issuers = read_tokens_at_start(settings), read_issuers_at_start(settings)
    listeners = read_listeners(settings, SystemClock().now_ms())
    with suppress(StoppedEarly):
        await run_unless_stopped(stop, wait_until_unlocked(RealDisk(), settings))
        await _serve_unlocked(settings, tokens, issuers, listeners, stop)


async def _serve_unlocked(
    settings: NodeSettings,
    tokens: str | None,
    issuers: Sequence[Issuer],
    listeners: Sequence[ListenerSpec],
    stop: asyncio.Event,
) -> None:
    """Runs with free ports. Raises StartRefused, StoppedEarly."""
    with (
        with_kafka_port(settings) as settings,
        with_rest_proxy_port(settings) as settings,
        reserve_ports(settings, listeners) as ports,
        _run_dir() as run_dir,
        ThreadPoolExecutor(2, "penstock-supervisor") as executor,
    ):
        member: Membership
        if settings.coordination:
            member = await run_unless_stopped(stop, _create_member(settings, ports, executor))
        else:
            check_standalone(RealDisk(), settings.directories[0])
            member = Standalone(executor)
        await _serve(settings, ports, run_dir, executor, member, tokens, issuers, stop)


async def _serve(
    settings: NodeSettings,
    ports: Ports,
    run_dir: str,
    executor: ThreadPoolExecutor,
    member: Membership,
    tokens: str | None,
    issuers: Sequence[Issuer],
    stop: asyncio.Event,
) -> None:
    """Run with the data directories until stopped, then mark them clean if all shards ended clean.

    Raises StartRefused, also if a copy of this node takes its place later.
    """
    try:
        directories = open_directories(RealDisk(), settings, member.cluster_id)
    except BaseException:
        await member.close()
        raise
    supervisor = Supervisor(settings, directories, run_dir, ports, executor, member, issuers)
    try:
        supervisor.tokens = tokens
        await run_unless_stopped(stop, supervisor.start())
        reloader = FileReloader(
            settings, executor, supervisor.use_tokens, supervisor.renew_tls, ports.listeners, SystemClock()
        )
        if settings.internal_tls != OFF:
            reloader.watch(internal_tls_files(settings), supervisor.renew_internal_tls)
        if supervisor.issuer_keys is not None:
            supervisor.issuer_keys.watch(reloader)
        reloader.start()
        print_ready(supervisor.url, settings, supervisor.store_url, ports.listeners[1:])
        ends: list[asyncio.Future[Any]] = [start_task(stop.wait()), member.fenced]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        notify_manager(STOPPING)
        reloader.stop()
        is_clean = await supervisor.stop()
    except BaseException:
        await member.close()
        if supervisor.has_unclean_end:
            directories.release()
        else:
            directories.release_unused()
        raise
    for directory in directories:
        if is_clean and directory.fault is None:
            directory.close_clean()
        else:
            directory.release()
    if member.fenced.done():
        raise member.fenced.result()


@contextmanager
def _run_dir() -> Iterator[str]:
    """Makes the directory of the sockets, whose paths are limited to 107 bytes: not below a long TMPDIR."""
    parent = tempfile.gettempdir()
    run_dir = tempfile.mkdtemp(prefix="penstock-", dir=parent if len(os.fsencode(parent)) <= 70 else "/tmp")  # noqa: S108
    try:
        yield run_dir
    finally:
        shutil.rmtree(run_dir, ignore_errors=True)


class Supervisor:
    """Starts and restarts the processes of a node."""

    def __init__(
        self,
        settings: NodeSettings,
        directories: LogDirectories,
        run_dir: str,
        ports: Ports,
        executor: ThreadPoolExecutor,
        member: Membership,
        issuers: Sequence[Issuer],
    ) -> None:
        self.member = member
        self.url = settings.advertised_url or url_of(settings, ports.shared)
        self.store_url = store_url(settings, directories.first)
        self._store_identity = ""  # until it is opened
        self.producer_floor = 0  # greater than every producer id in the logs of this node
        self.tokens: str | None = None  # the last valid content of the tokens file
        self._audit: AuditWriter | None = None
        self._access: str | None = None  # the rules and tokens of the store, once they are read
        self._access_keeper = AccessKeeper(lambda: member.session, self._use_access)
        self.issuer_keys = (
            IssuerKeys(settings, issuers, executor, self._use_issuers, random.Random()) if issuers else None
        )
        self._issuers: str | None = None  # the issuers and their keys; None: there are none
        self._settings = settings
        self._directories = LogDirectories(directories.first, directories.additional, self._on_directory_failed)
        self._run_dir = run_dir
        self._ports = ports
        self._executor = executor
        self._catalog = Catalog(directories.first.disk, self._directories, SystemClock(), executor, new_id)
        self._children = [Child(index) for index in (*range(settings.shards), WORKER)]
        self._processes = ChildProcesses(self._children)
        self._child_monitors: list[asyncio.Task[None]] = []
        self._all_up = asyncio.Event()
        self._has_joined = False
        self._is_stopping = False
        self.has_unclean_end = False  # a process that may have opened logs has not ended clean
        self._background = BackgroundTasks()
        self._actions = SupervisorActions(
            member,
            self.register,
            self.ready,
            self.follow_failure,
            self._catalog.record_move,
            lambda: self.tokens,
            lambda: self._access,
            self._access_keeper.change,
            lambda: self._issuers,
            self._ask_keys,
            lambda: self.producer_floor,
            self._access_keeper.gauges,
            lambda: self._audit,
        )

    async def start(self) -> None:
        """Starts all processes; returns when every shard serves. Raises StartRefused if one cannot start."""
        first = self._directories.first
        _, self._store_identity = await asyncio.get_running_loop().run_in_executor(
            self._executor, open_probed_store, self.store_url, first
        )
        await self._catalog.load()
        self._audit = await open_audit(
            self._settings, first.identity.cluster_id, RealDisk(), self._executor, SystemClock()
        )
        await self.member.prepare(self._directories, self._catalog, self._processes)
        self._server = await asyncio.get_running_loop().create_unix_server(
            lambda: SupervisorConnection(self._actions).link, supervisor_socket(self._run_dir)
        )
        if self.issuer_keys is not None:
            await self.issuer_keys.start()
        self.has_unclean_end = True
        try:
            self._child_monitors = [
                keep_running(partial(self._keep_running, child), "keeping a process running", of=str(child.index))
                for child in self._children
            ]
            await self._until_all_up()
            await self.member.join()
            self._has_joined = True
            await self._access_keeper.start()
            await self._processes.call_shards("all_ready", None)
        except BaseException:
            await self.stop()
            raise

    async def _until_all_up(self) -> None:
        """Waits until all processes serve. Raises StartRefused if one dies first."""
        up = start_task(self._all_up.wait())
        try:
            await asyncio.wait([up, *self._child_monitors], return_when=asyncio.FIRST_COMPLETED)
        finally:
            up.cancel()
        if not self._all_up.is_set():
            raise StartRefused("a shard process could not start", hint="see the error above in the log")

    async def stop(self) -> bool:
        """Ends every process, shards first, even if leaving the cluster fails.

        Returns whether all shards ended clean, so that the next start can skip recovery.
        """
        try:
            if self._has_joined:
                await self.member.leave()
        finally:
            is_clean = await self._end_processes()
        return is_clean

    async def _end_processes(self) -> bool:
        self._is_stopping = True
        deadline_s = self._settings.shutdown_timeout_ms / 1000 + STOP_MARGIN_S
        try:
            is_clean = await end(self._children[:-1], deadline_s)
            await end(self._children[-1:], deadline_s)
        finally:
            kill(self._children)
            for monitor in self._child_monitors:
                monitor.cancel()
            self._access_keeper.stop()
            if self.issuer_keys is not None:
                self.issuer_keys.stop()
            self._background.cancel()
            self._server.close()
            if self._audit is not None:
                await self._audit.close()
            await self._catalog.stop()
            await self.member.close()
        self.has_unclean_end = not is_clean
        return is_clean

    async def _keep_running(self, child: Child) -> None:
        """Runs one process, and restart it when it dies. Ends if it dies before the node was ready, or at shutdown."""
        await _kill_and_wait(child)  # two processes must not write the same partitions
        while True:
            began = asyncio.get_running_loop().time()
            code = await self._run(child)
            was_ready, child.is_ready, child.link = child.is_ready, False, None
            if self._is_stopping or not (was_ready or self._all_up.is_set()):
                return
            for directory in self._directories:
                if directory.last_shutdown is LastShutdown.CLEAN or self._all_up.is_set():
                    directory.last_shutdown = (
                        LastShutdown.KILLED
                    )  # a power loss stays recorded until it is recovered from
            if asyncio.get_running_loop().time() - began > HEALTHY_S:
                child.consecutive_deaths = 0
            if child.index != WORKER:  # also during the join: the node may be registered, and the shard may have led
                self.member.on_shard_died()
            pause = RESTART_PAUSE_S[min(child.consecutive_deaths, len(RESTART_PAUSE_S) - 1)]
            child.consecutive_deaths += 1
            log.error("a process died", extra={"shard": child.index, "exit": code, "restart_in_s": pause})
            await asyncio.sleep(pause)

    async def _run(self, child: Child) -> int | str:
        """Runs one process to its end. Returns its exit code, or why it could not be started."""
        try:
            process = await self._spawn(child)
        except OSError as error:
            log.error("a process cannot be started", extra={"shard": child.index, "reason": str(error)})
            return str(error)
        if self._is_stopping:  # the shutdown has begun and ended the others
            process.terminate()
        look = partial(kill_if_silent, child, self._settings.process_heartbeat_timeout_ms)
        watch = keep_running(look, "watching for a process that hangs", of=str(child.index))
        try:
            return await process.wait()
        finally:
            watch.cancel()

    async def _spawn(self, child: Child) -> asyncio.subprocess.Process:
        module = "node.processes.worker_process" if child.index == WORKER else "node.processes.shard_process"
        child.process = process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",  # without the current directory, whose folders may have the names of ours
            "-m",
            module,
            stdin=asyncio.subprocess.PIPE,
            pass_fds=[directory.lock_handle for directory in self._directories if directory.lock_handle is not None],
            start_new_session=True,
        )
        assert process.stdin is not None
        with suppress(OSError):  # it has already died; its exit code shows that
            process.stdin.write(self._task(child.index).line())
            await process.stdin.drain()
        process.stdin.close()
        return process

    def _task(self, index: int) -> ShardTask:
        return ShardTask(
            settings=self._settings,
            directories=list(map(DirectoryTask.of, self._directories)),
            identity=self._directories.first.identity,
            run_dir=self._run_dir,
            store_url=self.store_url,
            store_identity=self._store_identity,
            url=self.url,
            index=index,
            count=self._settings.shards,
            ports=[] if index == WORKER else [self._ports.shared, self._ports.direct[index]],
            listeners=[] if index == WORKER else self._ports.listeners,
            direct_urls=direct_urls(self._settings, self._ports.direct, self.url),
            cluster=self.member.task(index),
            without_metadata=self._catalog.without_metadata,
        )

    async def register(self, index: int, link: Link) -> list[RecordFields]:
        """Registers the link of a process. Returns the topics to serve; from now on it receives every change."""
        async with self._catalog.changing:
            self._children[index].link = link  # the worker, -1, is the last
            return [record_to(record) for record in self._catalog.records.values()]

    def ready(self, index: int, producer_floor: int) -> None:
        """Records that a process serves. Once all do, they are notified, after this returns."""
        self.producer_floor = max(self.producer_floor, producer_floor)
        self._children[index].is_ready = True
        self._background.keep(self._check_all_ready, "noting that all processes serve")

    async def _check_all_ready(self) -> None:
        if all(child.is_ready for child in self._children):
            for directory in self._directories.usable:
                await asyncio.get_running_loop().run_in_executor(self._executor, directory.mark_recovered)
            self._all_up.set()
            if self._has_joined:  # a restarted process
                await self._processes.call_shards("all_ready", None)

    def follow_failure(self, directory_id: str, detail: str) -> None:
        """Takes a data directory offline that a shard has found failing."""
        self._directories.take_offline(directory_id, Unreachable(detail, hint=FAULT_HINT))

    def _on_directory_failed(self, directory: DataDirectory) -> None:
        log_offline(directory)
        assert directory.fault is not None
        reporting = partial(
            self._processes.call_shards,
            "directory_failed",
            DirectoryFailed(directory.directory_id, directory.fault.detail),
        )
        self._background.keep(reporting, "reporting a failed data directory to the shards")

    async def use_tokens(self, text: str) -> None:
        """Sends new tokens to every shard; returns once all use them."""
        self.tokens = text
        await self._processes.call_shards("tokens", text)

    async def _use_access(self, state: AccessState) -> None:
        """Send new rules to every shard; returns once all use them."""
        self._access = state_to(state)
        await self._processes.call_shards("access", self._access)

    async def _use_issuers(self, state: OidcState) -> None:
        """Send the issuers and their keys to every shard; returns once all use them."""
        self._issuers = oidc_state_to(state)
        await self._processes.call_shards("issuers", self._issuers)

    def _ask_keys(self, alias: str) -> None:
        if self.issuer_keys is not None:
            self.issuer_keys.ask(alias)

    async def renew_tls(self, listener: str) -> None:
        """Renew the TLS of a listener one shard at a time, so that the others accept the connections meanwhile."""
        await call_sequentially(self._processes.shard_links(), "renew_tls", listener, CHANGE_S)

    async def renew_internal_tls(self) -> None:
        """Make every shard use the certificate for other nodes that is on disk now. Raises StartRefused."""
        await self._processes.call_shards("renew_internal_tls", None)


async def _kill_and_wait(child: Child) -> None:
    if (process := child.running) is not None:
        kill([child])
        await process.wait()


async def _create_member(settings: NodeSettings, ports: Ports, executor: ThreadPoolExecutor) -> Membership:
    """Makes the member of the cluster in the settings. Raises StartRefused."""
    own_settings = settings if settings.is_embedded else reachable(settings)
    url = settings.advertised_url or url_of(own_settings, ports.shared)
    urls = (
        url,
        direct_urls(own_settings, ports.direct, url),
        [internal_url_of(own_settings, port) for port in ports.internal],
    )
    return await create_member(
        settings, urls, ports.internal, executor, RealDisk(), SystemClock(), random.Random(), new_id
    )


@contextmanager
def reserve_ports(settings: NodeSettings, listeners: Sequence[ListenerSpec] = ()) -> Iterator[Ports]:
    """Reserve free ports for the node and its shards. Raises StartRefused."""
    with ExitStack() as stack:

        def reserve(port: int) -> int:
            return stack.enter_context(reserve_port(settings.host, port))

        def of_shards(base: int) -> list[int]:
            return [reserve(base + index if base else 0) for index in range(settings.shards)]

        shared = reserve(settings.port)
        internal = of_shards(settings.internal_port_base) if settings.coordination else []
        others = stack.enter_context(reserved(listeners[1:]))
        yield Ports(shared, of_shards(settings.direct_port_base), internal, [*listeners[:1], *others])
