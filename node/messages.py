"""The values that the processes of one node start with: tasks, socket names, topic records in plain form."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Coroutine
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any, TypedDict
from zlib import crc32

import msgspec
import orjson
import uvloop
from msgspec import Struct, structs

from engine.directory.data_directory import DataDirectory, Identity
from engine.directory.log_directories import FAULT_HINT
from engine.directory.topics import TopicRecord
from engine.errors import EngineError, Unreachable
from engine.log.recovery import LastShutdown
from engine.runtime.disk import Disk
from gateway.access.listeners.listeners_file import ListenerSpec
from gateway.links.link import Link, LinkLost
from gateway.links.link_client import LinkClient
from gateway.settings import NodeSettings
from replication.cluster.values import TopicFields
from replication.cluster.view import ViewFields

log = logging.getLogger("penstock.supervisor")

VERSION = version("penstock-server")  # of the code that this process has loaded
JOIN_S = 10.0  # the supervisor listens before it starts a process: one that cannot connect has outlived it
CHANGE_S = 60.0  # each shard takes a while to open a topic with many partitions


@dataclass(frozen=True, slots=True)
class DirectoryTask:
    """A data directory that the supervisor has opened, or failed to open."""

    path: str
    directory_id: str
    last_shutdown: str
    fault: str | None

    @classmethod
    def of(cls, directory: DataDirectory) -> DirectoryTask:
        fault = None if directory.fault is None else directory.fault.detail
        return cls(directory.path, directory.directory_id, directory.last_shutdown.value, fault)

    def part(self, disk: Disk, identity: Identity, index: int) -> DataDirectory:
        """Returns one shard's part of the directory."""
        fault = None if self.fault is None else Unreachable(self.fault, hint=FAULT_HINT)
        return DataDirectory(
            disk,
            self.path,
            identity,
            last_shutdown=LastShutdown(self.last_shutdown),
            part=index,
            directory_id=self.directory_id,
            fault=fault,
        )


@dataclass(frozen=True, slots=True)
class Ports:
    """The ports of a node: the shared one, and one of each kind per shard."""

    shared: int
    direct: list[int]
    internal: list[int]
    listeners: list[ListenerSpec]  # all, with the ports of those after the first


@dataclass(frozen=True, slots=True)
class ClusterTask:
    """The part of the cluster's identity that a process needs before it calls the supervisor."""

    cluster_id: str
    secrets: tuple[str, ...] = field(repr=False)  # what other nodes may send; this one sends the first
    internal_port: int


@dataclass(frozen=True, slots=True)
class ShardTask:
    """The task of a shard or of the worker. The worker has index -1 and no ports."""

    settings: NodeSettings
    directories: list[DirectoryTask]
    identity: Identity
    run_dir: str
    store_url: str
    store_identity: str
    url: str
    index: int
    count: int
    ports: list[int]
    listeners: list[ListenerSpec]
    direct_urls: list[str]  # of all shards, as clients reach them
    cluster: ClusterTask | None = None
    without_metadata: dict[str, str] = field(default_factory=dict)  # topics without a topic.json: id and name

    def line(self) -> bytes:
        fields = dataclasses.asdict(self)
        return orjson.dumps(fields | {"listeners": msgspec.to_builtins(self.listeners)}) + b"\n"

    @classmethod
    def read(cls, line: str) -> ShardTask:
        fields = orjson.loads(line)
        fields["settings"] = NodeSettings(**fields["settings"])
        fields["listeners"] = msgspec.convert(fields["listeners"], list[ListenerSpec])
        fields["identity"] = Identity(**fields["identity"])
        fields["cluster"] = fields["cluster"] and ClusterTask(**fields["cluster"])
        fields["directories"] = [DirectoryTask(**task) for task in fields["directories"]]
        return cls(**fields)


def run_until_complete(work: Coroutine[Any, Any, None]) -> None:
    """Runs a process of a node. Logs a fatal error in one line. Raises SystemExit with code 1."""
    try:
        uvloop.run(work)
    except (EngineError, OSError) as error:
        log.error("a process of the node failed", extra={"reason": str(error)})
        raise SystemExit(1) from None


async def connect_to_supervisor(supervisor: LinkClient) -> Link:
    """Connect a new process to its supervisor. Raises SystemExit if the supervisor has died.

    An orphan would hold the lock of the data directory.
    """
    try:
        return await supervisor.wait_connected_within(JOIN_S)
    except LinkLost as error:
        raise SystemExit(f"the supervisor has exited: {error}") from None


def supervisor_socket(run_dir: str) -> str:
    return f"{run_dir}/supervisor.sock"


def shard_socket(run_dir: str, index: int) -> str:
    return f"{run_dir}/shard-{index}.sock"


def hand_over_socket(run_dir: str, index: int) -> str:
    """Returns the address at which a process takes connections.

    It has the installed version: a process that was restarted after an upgrade takes no connection of one that runs
    the version before, whose state it could misread.
    """
    return f"{run_dir}/move-{index}-{crc32(VERSION.encode()):08x}"  # an address of at most 107 bytes


def worker_socket(run_dir: str) -> str:
    return f"{run_dir}/worker.sock"


class RecordFields(Struct, frozen=True):
    """The form of a TopicRecord between processes."""

    name: str
    topic_id: str
    partitions: int
    replication_factor: int
    overrides: dict[str, object]
    created_ms: int
    directory_ids: dict[str, str]
    hosted: tuple[int, ...] | None


def record_to(record: TopicRecord) -> RecordFields:
    return RecordFields(
        record.name,
        record.topic_id,
        record.partitions,
        record.replication_factor,
        dict(record.overrides),
        record.created_ms,
        dict(record.directory_ids),
        record.hosted,
    )


def records_from(fields: object) -> list[TopicRecord]:
    """Returns the records in the reply of a link."""
    return [record_from(record) for record in msgspec.convert(fields, list[RecordFields])]


def record_from(fields: RecordFields) -> TopicRecord:
    return TopicRecord(*structs.astuple(fields))


class ClusterFields(ViewFields):
    """The view of the supervisor, its registration, its last contact with the store by the time since boot, and the
    secrets and the feature level of the cluster.
    """

    member: tuple[int, int] | None
    contact_at: float
    secrets: tuple[str, ...]
    level: int


class TopicChanges(TypedDict):
    """Topics of the cluster that are new or have changed, and those that are deleted."""

    changed: list[TopicFields]
    deleted: list[TopicFields]
