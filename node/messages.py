"""What the processes of one node tell each other to begin with: tasks, socket names, topic records as plain values."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any

import orjson
import uvloop

from engine.directory.data_directory import DataDirectory, Identity
from engine.directory.log_directories import FAULT_HINT
from engine.directory.topics import TopicRecord
from engine.errors import EngineError, Unreachable
from engine.log.recovery import LastStop
from engine.runtime.disk import Disk
from gateway.links.link import Caller, Link, LinkLost
from gateway.settings import NodeSettings

log = logging.getLogger("penstock.supervisor")

JOIN_S = 10.0  # the supervisor listens before it starts anybody: who is not let in has outlived it
CHANGE_S = 60.0  # a topic of many partitions takes every shard a while to open


@dataclass(frozen=True, slots=True)
class DirectoryTask:
    """A data directory that the supervisor has opened, or could not."""

    path: str
    directory_id: str
    last_stop: str
    fault: str | None

    @classmethod
    def of(cls, directory: DataDirectory) -> DirectoryTask:
        fault = None if directory.fault is None else directory.fault.detail
        return cls(directory.path, directory.directory_id, directory.last_stop.value, fault)

    def part(self, disk: Disk, identity: Identity, index: int) -> DataDirectory:
        """One shard's part of it."""
        fault = None if self.fault is None else Unreachable(self.fault, hint=FAULT_HINT)
        return DataDirectory(
            disk,
            self.path,
            identity,
            last_stop=LastStop(self.last_stop),
            part=index,
            directory_id=self.directory_id,
            fault=fault,
        )


@dataclass(frozen=True, slots=True)
class Ports:
    """Of a node: the one that all shards share, and what each shard has of its own."""

    shared: int
    direct: list[int]
    internal: list[int]


@dataclass(frozen=True, slots=True)
class ClusterTask:
    """What a process of a node in a cluster must know before it asks the supervisor."""

    cluster_id: str
    secret: str = field(repr=False)
    internal_port: int


@dataclass(frozen=True, slots=True)
class ShardTask:
    """Everything a shard or the worker needs to begin. The worker is given index -1 and no ports."""

    settings: NodeSettings
    directories: list[DirectoryTask]
    identity: Identity
    run_dir: str
    store_url: str
    url: str
    index: int
    count: int
    ports: list[int]
    direct_url: str
    cluster: ClusterTask | None = None
    unidentified: dict[str, str] = field(default_factory=dict)  # topics without a topic.json: id and name

    def line(self) -> bytes:
        return orjson.dumps(dataclasses.asdict(self)) + b"\n"

    @classmethod
    def read(cls, line: str) -> ShardTask:
        fields = orjson.loads(line)
        fields["settings"] = NodeSettings(**fields["settings"])
        fields["identity"] = Identity(**fields["identity"])
        fields["cluster"] = fields["cluster"] and ClusterTask(**fields["cluster"])
        fields["directories"] = [DirectoryTask(**one) for one in fields["directories"]]
        return cls(**fields)


def run_to_its_end(work: Coroutine[Any, Any, None]) -> None:
    """Run a process of a node. What keeps it from starting or going on is one line in its log, and exit code 1."""
    try:
        uvloop.run(work)
    except (EngineError, OSError) as error:
        log.error("a process of the node cannot go on", extra={"reason": str(error)})
        raise SystemExit(1) from None


async def joined(supervisor: Caller) -> Link:
    """The link of a process that has just been started. Ends the process when the supervisor died meanwhile: an orphan
    that waited for it would hold the data directory for ever.
    """
    try:
        return await supervisor.connected(JOIN_S)
    except LinkLost as error:
        raise SystemExit(f"the supervisor is gone: {error}") from None


def supervisor_socket(run_dir: str) -> str:
    return f"{run_dir}/supervisor.sock"


def shard_socket(run_dir: str, index: int) -> str:
    return f"{run_dir}/shard-{index}.sock"


def worker_socket(run_dir: str) -> str:
    return f"{run_dir}/worker.sock"


def record_to(record: TopicRecord) -> dict[str, Any]:
    return {**dataclasses.asdict(record), "overrides": dict(record.overrides), "elsewhere": dict(record.elsewhere)}


def record_from(fields: dict[str, Any]) -> TopicRecord:
    hosted = fields["hosted"]
    return TopicRecord(**{**fields, "hosted": None if hosted is None else tuple(hosted)})
