"""A node as a process: checks that it may start, puts the parts together, serves, and stops cleanly.

The composition root: here, and only here, clocks, disks, stores, identifiers and randomness are made.
Start, in this order: port, data directory, store, log, listener; whatever is wrong is said in one line before anything
else is touched. Stop: refuse new work, let what is under way finish, make everything durable, release.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import signal
import socket
import uuid
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path

from engine import paths
from engine.clock import SystemClock
from engine.data_directory import DataDirectory, open_data_directory
from engine.disk import RealDisk
from engine.errors import StartRefused
from engine.shard import Shard
from engine.tiering.store import open_store
from engine.tiering.tier import Tier
from gateway.app import make_app
from gateway.logs import set_up_logging
from gateway.node import Node
from gateway.rsgi import RsgiApp, make_server
from gateway.settings import NodeSettings

log = logging.getLogger("penstock.server")

DISK_THREADS = 8  # reads that miss the page cache, and large bodies; the writer has a thread of its own
STORE_THREADS = 4  # uploads and reads of the store: apart, so that a store that hangs stops nothing else
BOOT_ID = "/proc/sys/kernel/random/boot_id"
LISTEN_ATTEMPTS = 200
GRANIAN_STOP_S = 2.0


async def serve(settings: NodeSettings) -> None:
    """Run a node until SIGTERM or SIGINT. Raises StartRefused when it may not start."""
    set_up_logging(settings.log_level)
    port = free_port(settings.host, settings.port)
    url = settings.advertised_url or f"{'https' if settings.is_tls else 'http'}://{_host_in_url(settings.host)}:{port}"
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with running_node(settings) as node:
        node.url = url
        target = RsgiApp(make_app(node), settings.drain_bytes_max)
        server = make_server(target, settings, port)
        serving = asyncio.create_task(server.serve())
        await _until_listening(serving, settings.host, port)
        print(f"penstock is ready on {url} (data: {settings.data_dir}, store: {node.tier.store_url})", flush=True)  # noqa: T201
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait([serving, stopping], return_when=asyncio.FIRST_COMPLETED)
        await node.drain()
        await _finish_requests(target, settings.shutdown_deadline_ms)
        server.stop()
        server.main_loop_interrupt.set()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(serving, GRANIAN_STOP_S)


@asynccontextmanager
async def running_node(settings: NodeSettings) -> AsyncIterator[Node]:
    """A node without a listener: what tests put behind aiohttp's own server."""
    disk, clock = RealDisk(), SystemClock()
    directory = _open_directory(disk, settings)
    with (
        ThreadPoolExecutor(DISK_THREADS, "penstock-disk") as executor,
        ThreadPoolExecutor(STORE_THREADS, "penstock-store") as store_executor,
    ):
        store_url = settings.store or Path(directory.path, paths.EMBEDDED_STORE).as_uri()
        try:
            store = await asyncio.get_running_loop().run_in_executor(store_executor, open_store, store_url)
            await asyncio.get_running_loop().run_in_executor(store_executor, store.probe)
        except BaseException:
            directory.release()
            raise
        shard = Shard(disk, directory, clock, executor, new_id)
        tier = Tier(
            store,
            shard,
            store_executor,
            check_ms=settings.tier_check_ms,
            cache_bytes_max=settings.tier_cache_bytes_max,
            random=random.Random(),
            new_id=new_id,
        )
        node = Node(settings, shard, tier, clock, executor, random.Random())
        await shard.start()
        await tier.start()
        try:
            yield node
        finally:
            await node.drain()
            await tier.stop()
            await shard.stop()


def _open_directory(disk: RealDisk, settings: NodeSettings) -> DataDirectory:
    return open_data_directory(
        disk,
        os.path.abspath(settings.data_dir),
        node_id=settings.node_id,
        cluster_id=settings.cluster_id or None,
        boot_id=Path(BOOT_ID).read_text().strip(),
        new_id=new_id,
    )


def new_id() -> str:
    return uuid.uuid4().hex  # noqa: TID251 - the composition root


def free_port(host: str, port: int) -> int:
    """The port, if nobody has it; a free one for 0.

    The listener shares its port between processes (SO_REUSEPORT), so it would not notice a stranger on it; a plain
    bind does. Raises StartRefused.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            taken: int = probe.getsockname()[1]
            return taken
    except OSError as error:
        text = f"cannot listen on {host}:{port}: {error.strerror}"
        raise StartRefused(text, hint="another program has the port: stop it, or give --port another one") from None


async def _until_listening(serving: asyncio.Task[None], host: str, port: int) -> None:
    for _ in range(LISTEN_ATTEMPTS):
        if serving.done():
            raise StartRefused(
                f"the listener ended at once: {serving.exception()}", hint="check --tls-cert and --tls-key"
            )
        try:
            _, writer = await asyncio.open_connection(host, port)
        except OSError:
            await asyncio.sleep(0.02)
        else:
            writer.close()
            return
    raise StartRefused(f"the listener on {host}:{port} does not answer")


async def _finish_requests(target: RsgiApp, deadline_ms: int) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(deadline_ms / 1000):
            while target.under_way:
                target.idle.clear()
                await target.idle.wait()


def _host_in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host
