"""Faults of a real node, each staged as it happens in operation: the node runs with the fault inside of the context."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import NamedTuple

from tests import disk_faults
from tests.e2e.calls import call
from tests.e2e.cluster.test_cluster import until
from tests.e2e.disks.test_scrub import flip
from tests.e2e.node_process import NodeProcess, running_process

Node = Iterator[NodeProcess]
DAMAGED, ASIDE = "damaged", "aside"
WITHOUT_CODEC = {**os.environ, "PENSTOCK_CODEC": "python"}


def produce(node: NodeProcess, topic: str, count: int = 3) -> None:
    call(f"{node.url}/v1/topics/{topic}", "PUT", {"partitions": 1})
    call(f"{node.url}/v1/topics/{topic}/records", "POST", {"records": [{"value": "x" * 500}] * count})


def stick_group(node: NodeProcess) -> None:
    """Leaves a group with records to read and without a member."""
    produce(node, "read")
    offsets = {"offsets": [{"topic": "read", "partition": 0, "offset": 0}]}
    call(f"{node.url}/v1/groups/idle/offsets", "PUT", offsets)


def damage(node: NodeProcess, data: Path) -> None:
    """Flips a bit of a sealed segment, and lets a consumer read it."""
    produce(node, DAMAGED)
    call(f"{node.url}/v1/topics/{DAMAGED}/roll", "POST")
    (file, *_) = sorted(data.glob(f"topics/{DAMAGED}/*/0/*.log"))
    flip(file, 200)


def remove_metadata(data: Path) -> None:
    for file in data.glob(f"topics/{ASIDE}/**/topic.json"):
        file.rename(file.with_name("elsewhere"))


@contextmanager
def group_without_members(directory: Path) -> Node:
    with running_process(directory) as node:
        stick_group(node)
        yield node


@contextmanager
def flipped_bit(directory: Path) -> Node:
    with running_process(directory, scrub_interval_ms=100) as node:
        damage(node, directory / "data")
        yield node


@contextmanager
def removed_metadata(directory: Path) -> Node:
    with running_process(directory) as node:
        produce(node, ASIDE)
        node.stop()
    remove_metadata(directory / "data")
    with running_process(directory) as node:
        yield node


@contextmanager
def plain_codec(directory: Path) -> Node:
    with running_process(directory, environment=WITHOUT_CODEC) as node:
        yield node


@contextmanager
def full_disk(directory: Path) -> Node:
    small = disk_faults.small_file_system(directory / "small", 24, disk_faults.make_tmpfs)
    with small as mounted, running_process(directory / "node", data_dir=mounted / "data") as node:
        yield node


@contextmanager
def failed_sync(directory: Path) -> Node:
    with running_process(directory) as node:
        produce(node, "t")
        (file,) = (directory / "data" / "topics" / "t").glob("*/0/*.log")
        with disk_faults.injected([node.pid], "error=EIO", "fdatasync", ("-o", "/dev/null", "-P", str(file))):
            until(lambda: _refuses(node))
        yield node


def _refuses(node: NodeProcess) -> bool:
    try:
        produce(node, "t")
    except OSError:
        return True
    return False


class Fault(NamedTuple):
    """`says`: words of the finding. `topic`: `topic explain` names it too. `pages`: those that may wake people."""

    stage: Callable[[Path], AbstractContextManager[NodeProcess]]
    code: str
    says: str
    pages: frozenset[str] = frozenset()
    topic: str = ""
    is_of_group: bool = False

    @property
    def alert(self) -> str:
        return self.code.title().replace("_", "")


FAULTS = (
    Fault(group_without_members, "group_stuck", "no member reads", is_of_group=True),
    Fault(flipped_bit, "records_damaged", "damaged records", frozenset({"RecordsDamaged"}), DAMAGED),
    Fault(removed_metadata, "topics_set_aside", "topic.json is missing", frozenset({"TopicsSetAside"})),
    Fault(plain_codec, "plain_codec", "plain Python"),
    Fault(full_disk, "disk_full", "GiB are free", frozenset({"DiskFull"})),
    Fault(failed_sync, "replica_offline", "offline", frozenset({"ReplicaOffline"}), "t"),
)
