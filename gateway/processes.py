"""What the processes of one node tell each other to begin with: tasks, socket names, topic records as plain values."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import orjson

from engine.data_directory import Identity
from engine.topics import TopicRecord
from gateway.link import Caller, Link, LinkLost
from gateway.settings import NodeSettings

JOIN_S = 10.0  # the supervisor listens before it starts anybody: who is not let in has outlived it
CHANGE_S = 60.0  # a topic of many partitions takes every shard a while to open


@dataclass(frozen=True, slots=True)
class ShardTask:
    """Everything a shard or the worker needs to begin. The worker is given index -1 and no ports."""

    settings: NodeSettings
    data_dir: str
    identity: Identity
    run_dir: str
    store_url: str
    url: str
    index: int
    count: int
    last_stop: str
    ports: list[int]
    direct_url: str

    def line(self) -> bytes:
        return orjson.dumps(dataclasses.asdict(self)) + b"\n"

    @classmethod
    def read(cls, line: str) -> ShardTask:
        fields = orjson.loads(line)
        fields["settings"] = NodeSettings(**fields["settings"])
        fields["identity"] = Identity(**fields["identity"])
        return cls(**fields)


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
    return {**dataclasses.asdict(record), "overrides": dict(record.overrides)}


def record_from(fields: dict[str, Any]) -> TopicRecord:
    return TopicRecord(**fields)
