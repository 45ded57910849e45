"""Bodies of one record, by their media types: one for each way in which a body is decoded."""

from __future__ import annotations

from engine.format import batch
from tests.scenarios.gateways import JSON, NDJSON, RECORD_BATCH

ONE_RECORD = {
    JSON: b'{"records":[{"value":1}]}',
    NDJSON: b"2",
    "text/plain": b"3",
    "application/cloudevents+json": b'{"specversion":"1.0","id":"4","source":"/s","type":"t","data":4}',
    RECORD_BATCH: bytes(batch.encode_values([b"5"], 5)),
}
