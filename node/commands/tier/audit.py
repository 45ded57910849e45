"""Examines the partitions of a store for the commands, and shows the progress on a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import click

from engine.errors import EngineError
from engine.runtime.clock import SystemClock
from engine.tiering.audit.examination import Depth, Examiner
from engine.tiering.audit.findings import PartitionReport
from engine.tiering.audit.inventory import clusters_of, partitions_of, topics_of
from engine.tiering.shipping.garbage_collection import GRACE_MS
from engine.tiering.store.store import ObjectStore, StoreUnavailable, StoreUnusable, open_store, url_of
from penstock.cli.failures import ExitCode, Failure
from penstock.cli.output import format_bytes, format_count
from penstock.cli.records.progress import status_line

CommandT = TypeVar("CommandT", bound=Callable[..., Any])
_THREADS = 8

store_option = click.option(
    "--store",
    "store_url",
    required=True,
    type=url_of,
    metavar="URL",
    envvar="PENSTOCK_STORE",
    help="The store: a URL, as `penstock serve` takes it, or a path.  [env: PENSTOCK_STORE]",
)
cluster_option = click.option("--cluster", metavar="ID", help="Only this cluster of the store.")


class StoreCommand(click.Command):
    """Reports an error of the store in one line."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command. Raises Failure."""
        with store_failures():
            return super().invoke(ctx)


@contextmanager
def store_failures() -> Iterator[None]:
    """Map errors of the engine. Raises Failure."""
    try:
        yield
    except StoreUnavailable as error:
        raise Failure(str(error), ExitCode.UNREACHABLE) from error
    except EngineError as error:
        raise Failure(str(error), ExitCode.USAGE if isinstance(error, StoreUnusable) else ExitCode.FAILED) from error


@dataclass(slots=True)
class Audit:
    """The reports on the partitions of a store. `foreign` are keys that belong to no partition."""

    store: ObjectStore
    examiner: Examiner
    reports: list[PartitionReport] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)


def clusters(store: ObjectStore, cluster_id: str | None) -> list[str]:
    """Return the cluster, or all of the store. Raises Failure if there is none."""
    cluster_ids = clusters_of(store)
    if cluster_id is not None and cluster_id not in cluster_ids:
        raise Failure(
            f"no cluster {cluster_id!r} in {store.url}; there are: {', '.join(cluster_ids) or 'none'}", ExitCode.USAGE
        )
    if not cluster_ids:
        raise Failure(f"{store.url} has no topics: no segment was tiered to it yet")
    return cluster_ids if cluster_id is None else [cluster_id]


def run_audit(
    url: str,
    topic: str | None,
    cluster: str | None,
    depth: Depth,
    *,
    grace_ms: int = GRACE_MS,
    then: Callable[[Audit, PartitionReport], None] = lambda audit, report: audit.reports.append(report),
) -> Audit:
    """Examine every partition, or those of one topic, and call `then` with each. Raises Failure, StoreUnavailable."""
    store = open_store(url)
    with ThreadPoolExecutor(_THREADS) as executor, status_line() as line:
        show = Progress(line)
        examiner = Examiner(store, executor, SystemClock().now_ms(), depth, grace_ms, show.count_checked)
        audit = Audit(store, examiner)
        for cluster_id in clusters(store, cluster):
            for name in topics_of(store, cluster_id) if topic is None else [topic]:
                for partition, objects in partitions_of(store, cluster_id, name):
                    if partition is None:
                        audit.foreign += [info.key for info in objects]
                        continue
                    show.name = partition.name
                    then(audit, examiner.examine(partition, objects))
    if topic is not None and not audit.reports:
        raise Failure(f"{store.url} has no objects of topic {topic}")
    return audit


class Progress:
    """The bytes and the objects that were checked, on a line of the terminal."""

    def __init__(self, show: Callable[[str], None], name: str = "") -> None:
        self._show = show
        self.name = name
        self.objects = 0
        self.checked_bytes = 0

    def count_checked(self, size_bytes: int) -> None:
        self.objects += 1
        self.checked_bytes += size_bytes
        self._show(f"{self.name}: {format_count(self.objects, 'object')}, {format_bytes(self.checked_bytes)}")
