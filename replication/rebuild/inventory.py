"""The content of one node's data directories, as far as a coordination store needs it; and its JSON.

Operators carry these files from machine to machine, so the form has a number. Knows no disk: directories.py reads them.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from engine.errors import Corrupt
from engine.log.epochs import EpochStart

FORMAT = 1


class LogInventory(msgspec.Struct, frozen=True, kw_only=True):
    """The log of one replica. `epochs` as in engine/log/epochs.py. With a `problem` only the high watermark counts."""

    epochs: tuple[tuple[int, int], ...] = ()
    log_start: int = 0
    log_end: int = 0
    high_watermark: int = 0
    producer_id_max: int = -1
    problem: str = ""

    @property
    def starts(self) -> list[EpochStart]:
        return [EpochStart(*epoch) for epoch in self.epochs]


class TopicInventory(msgspec.Struct, frozen=True, kw_only=True):
    """A topic as this node's `topic.json` has it. `changed_ms` is the time of the file."""

    name: str
    topic_id: str
    partitions: int
    replication_factor: int
    created_ms: int
    config: Mapping[str, object]
    hosted: tuple[int, ...]
    logs: Mapping[int, LogInventory]
    changed_ms: int = 0


class StartInventory(msgspec.Struct, frozen=True, kw_only=True):
    """The start counter of one data directory."""

    number: int
    nonce: str


class NodeInventory(msgspec.Struct, frozen=True, kw_only=True):
    """All data directories of one node. `unreadable` are the ids of topics whose `topic.json` is missing or damaged."""

    format: int = FORMAT
    cluster_id: str
    node_id: int
    directory_id: str
    starts: Mapping[str, StartInventory]
    topics: tuple[TopicInventory, ...]
    unreadable: tuple[str, ...] = ()
    absent_directories: tuple[str, ...] = ()


def encode_inventory(inventory: NodeInventory) -> bytes:
    return msgspec.json.format(msgspec.json.encode(inventory), indent=2) + b"\n"


def decode_inventory(data: bytes, name: str) -> NodeInventory:
    """Decodes a file. Raises Corrupt."""
    hint = "write it with penstock coordination inventory of this version"
    try:
        inventory = msgspec.json.decode(data, type=NodeInventory)
    except msgspec.MsgspecError as error:
        raise Corrupt(f"{name} is not an inventory of a node: {error}", hint=hint) from error
    if inventory.format != FORMAT:
        raise Corrupt(f"{name} has format {inventory.format}, this version knows {FORMAT}", hint=hint)
    return inventory
