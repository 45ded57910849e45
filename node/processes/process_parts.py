"""Parts that every process of a node has: directories, the store, threads, identifiers, the stop signal.

node/processes/server.py composes a node in one process; supervisor.py, shard_process.py and worker_process.py beside it
one of several. This file imports nothing that serves HTTP: the supervisor and the worker start without it.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import secrets
import signal
import uuid
from collections.abc import Callable, Coroutine, Iterable, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import Any, TypeVar

from engine.cleaning.scrubber import Restore, ScrubbedPartition, Scrubber
from engine.cleaning.segment_check import SealedFile
from engine.compaction.compactor import CompactedPartition, Compactor
from engine.directory.data_directory import FORMAT_SHARED_KEYS, DataDirectory, Identity, require_format
from engine.directory.log_directories import LogDirectories, open_data_directories
from engine.directory.store_identities import identity_of_store, save_identity_of_store
from engine.errors import StartRefused
from engine.format import paths
from engine.log.recovery import LastShutdown
from engine.runtime.clock import Clock
from engine.runtime.disk import Disk
from engine.runtime.tasks import start_task
from engine.runtime.throttled_thread import ThrottledThread
from engine.tiering.reading.repair import restore_segment
from engine.tiering.shipping.merge_plan import MergeRules
from engine.tiering.shipping.merging import MergeLane
from engine.tiering.store.store import NotMounted, ObjectStore, StoreUnusable, open_store, url_of
from gateway.access.listeners.listeners_file import ListenerSpec
from gateway.links.addresses import url_of_listener
from gateway.settings import NodeSettings
from gateway.usage.counting import UsageCounting
from gateway.usage.keeper import UsageKeeper
from node.processes.service_manager import READY, notify_manager

DISK_THREADS = 8  # for reads that miss the page cache, and for large bodies; the writer has its own thread
STORE_THREADS = 4  # for uploads and reads of the store: a store that hangs blocks nothing else
GC_YOUNG = 50_000  # net allocations before a collection of the youngest generation; Python's default is 700
# Collections of one generation before one of the next: Python's defaults are 10 and 10. While thousands of partitions
# are opened, nothing dies young, and the middle one had 500,000 objects: half a second without an answer to any client.
GC_MIDDLE, GC_OLD = 1, 50
T = TypeVar("T")
BOOT_ID = "/proc/sys/kernel/random/boot_id"
LOCK_CHECK_S = 0.05

log = logging.getLogger("penstock.node")


async def wait_until_unlocked(disk: Disk, settings: NodeSettings) -> None:
    """Waits until no process holds a data directory, at most as long as a stop may take.

    The shards of a killed supervisor hold the locks, and the port, until they have stopped. Returns at the bound too:
    the steps that follow then name the port or the directory that is in use.
    """
    deadline = asyncio.get_running_loop().time() + settings.shutdown_timeout_ms / 1000
    is_logged = False
    for path in settings.directories:
        while _is_locked(disk, path) and asyncio.get_running_loop().time() < deadline:
            if not is_logged:
                is_logged = True
                log.warning(
                    "waiting for another process that holds the data directory",
                    extra={"directory": path, "wait_ms_max": settings.shutdown_timeout_ms},
                )
            await asyncio.sleep(LOCK_CHECK_S)


def _is_locked(disk: Disk, path: str) -> bool:
    lock = os.path.join(path, paths.LOCK)
    try:
        if disk.stat(lock) is not None:  # no lock file is made here: the directory may be of another program
            disk.close(disk.lock(lock))
    except BlockingIOError:
        return True
    except OSError:
        return False  # the later open reports the error
    return False


def open_directories(disk: Disk, settings: NodeSettings, cluster_id: str | None = None) -> LogDirectories:
    """Opens the data directories, which must belong to the cluster if it is known. Raises StartRefused.

    A standalone node marks them for the batches that only it writes: other nodes may have an older version.
    """
    directories = open_data_directories(
        disk,
        settings.directories,
        node_id=settings.node_id,
        cluster_id=cluster_id or settings.cluster_id or None,
        boot_id=Path(BOOT_ID).read_text().strip(),
        new_id=new_id,
    )
    if not settings.coordination:
        require_format(directories.first, FORMAT_SHARED_KEYS)
    ended = {directory.last_shutdown for directory in directories} - {LastShutdown.CLEAN}
    notify_manager(f"STATUS={'recovering' if ended else 'opening'} partitions")
    return directories


def store_url(settings: NodeSettings, directory: DataDirectory) -> str:
    return url_of(settings.store) if settings.store else Path(directory.path, paths.EMBEDDED_STORE).as_uri()


def open_probed_store(url: str, directory: DataDirectory) -> tuple[ObjectStore, str]:
    """Open a store, and check that it supports conditional puts and is the one that the node has used before.

    Returns it with its identity. Raises StartRefused, StoreUnusable; blocks.
    """
    try:
        store = open_store(url, identity=identity_of_store(directory, url))
        identity = store.probe()
        save_identity_of_store(directory, url, identity)
    except NotMounted as error:
        file = directory.file(paths.STORE_IDENTITIES)
        raise StoreUnusable(error.detail, hint=f"{error.hint}, or remove {file} to take it as it is") from error
    except OSError as error:
        text = f"the data directory {directory.path} cannot be used: {error.strerror}"
        raise StartRefused(text, hint="check its owner and its free space") from error
    return store, identity


def make_scrubber(
    settings: NodeSettings, disk: Disk, partitions: Callable[[], Iterable[ScrubbedPartition]], restore: Restore
) -> Scrubber:
    return Scrubber(
        disk,
        partitions,
        restore,
        bytes_per_second=settings.scrub_bytes_per_second,
        interval_ms=settings.scrub_interval_ms,
    )


def make_compactor(
    settings: NodeSettings, disk: Disk, partitions: Callable[[], Iterable[CompactedPartition]]
) -> Compactor:
    return Compactor(
        disk,
        partitions,
        ThrottledThread("penstock-compact", settings.compaction_bytes_per_second),
        memory_bytes=settings.compaction_memory_bytes,
        check_ms=settings.compaction_check_ms,
        random_bytes=secrets.token_bytes,
    )


def make_merge_lane(settings: NodeSettings) -> MergeLane:
    rules = MergeRules(
        settings.tier_merge_below_bytes, settings.tier_merge_target_bytes, settings.tier_merge_min_age_ms
    )
    return MergeLane(rules, ThrottledThread("penstock-merge", settings.tier_merge_bytes_per_second))


def make_usage_keeper(
    disk: Disk, directory: DataDirectory, executor: Executor, store: ObjectStore, store_executor: Executor,
    clock: Clock, *, shard: int = 0, shards: int = 1,
) -> UsageKeeper:  # fmt: skip
    """Returns the keeper of the usage that one process counts. `disk` gives handles of the operating system."""
    path = f"{directory.path}/{paths.USAGE}"
    counting = UsageCounting(disk, path, directory.identity, shard, clock, new_id)
    return UsageKeeper(counting, disk, executor, store, store_executor, clock, shards)


def segment_restorer(store: ObjectStore, disk: Disk, identity: Identity) -> Restore:
    """Returns a function that restores damaged segments from the store."""

    def restore(scrubbed: ScrubbedPartition, file: SealedFile) -> str | None:
        prefix = paths.store_partition_prefix(identity.cluster_id, scrubbed.topic, scrubbed.topic_id, scrubbed.number)
        return restore_segment(store, disk, prefix, file)

    return restore


def new_id() -> str:
    return uuid.uuid4().hex  # noqa: TID251 - the composition root


def freeze_objects() -> None:
    """Freeze the current objects out of garbage collection, and collect less often.

    A request makes thousands of short-lived objects; at Python's thresholds the collector would walk the whole heap for
    them again and again.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_YOUNG, GC_MIDDLE, GC_OLD)


def stop_event() -> asyncio.Event:
    """Returns an event that SIGTERM and SIGINT set."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop


async def first_of(*waits: Coroutine[Any, Any, object]) -> None:
    """Waits for the first of several coroutines and cancels the others. Raises its error."""
    tasks = [start_task(wait) for wait in waits]
    done, others = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in others:
        task.cancel()
    for task in done:
        task.result()


class StoppedEarly(Exception):
    """The node was stopped before it was ready. Not a failure: all steps of the start have been undone."""


async def run_unless_stopped(stop: asyncio.Event, work: Coroutine[Any, Any, T]) -> T:
    """Returns the result of the work, or cancels it if `stop` is set first. Raises StoppedEarly then."""
    working: asyncio.Task[T] = start_task(work)
    stopping = start_task(stop.wait())
    try:
        await asyncio.wait([working, stopping], return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopping.cancel()
        if not working.done():
            working.cancel()
            await asyncio.wait([working])
    if working.cancelled():
        raise StoppedEarly
    return working.result()


def print_ready(url: str, settings: NodeSettings, store: str, further: Sequence[ListenerSpec] = ()) -> None:
    data = ", ".join(settings.data_dirs or (settings.data_dir,))
    others = "".join(f", {spec.name}: {url_of_listener(spec)}" for spec in further)
    print(f"penstock is ready on {url} (data: {data}, store: {store}{others})", flush=True)  # noqa: T201
    notify_manager(READY)
