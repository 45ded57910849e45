"""The usage of one hour as one process has counted it: an object of the store, which never changes.

`<cluster>/__usage/<hour>/<node>-<shard>-<id>.json`, where the id is that of the file of counters that it was made of.
The same file gives the same bytes, so writing it twice changes nothing. It is outside of every topic's prefix.
"""

from __future__ import annotations

from collections.abc import Mapping

import orjson
from msgspec import Struct

from engine.tiering.manifest.json_reading import convert, read_object
from gateway.usage.counter_file import Origin
from gateway.usage.meters import METERS, Usage

FORMAT = 1


class _Document(Struct):
    hour: int
    node: int
    shard: int
    tenants: dict[str, dict[str, int]]


def encode_hour(origin: Origin, counted: Mapping[str, Usage]) -> bytes:
    document = {
        "format": FORMAT,
        "hour": origin.hour,
        "node": origin.node_id,
        "shard": origin.shard,
        "tenants": {tenant: counted[tenant]._asdict() for tenant in sorted(counted)},
    }
    return orjson.dumps(document)


def decode_hour(data: bytes, key: str) -> dict[str, Usage]:
    """Returns the usage by tenant. A meter that is not there is 0. Raises Corrupt, UnsupportedFormat."""
    document = convert(read_object(data, key, FORMAT), _Document, key)
    return {tenant: Usage(*(meters.get(meter, 0) for meter in METERS)) for tenant, meters in document.tenants.items()}
