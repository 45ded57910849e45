"""What the processes of one node tell each other to begin with: tasks, socket names, topic records as plain values."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import orjson

from engine.data_directory import Identity
from engine.topics import TopicRecord
from gateway.settings import NodeSettings

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
