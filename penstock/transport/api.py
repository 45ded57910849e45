"""The routes of records, as functions from arguments to Request values: produce, fetch, positions, producer ids.

Pure. penstock/producer/lines.py makes bodies of records; this file only addresses them. The routes of topics and of the
cluster are in penstock/admin/api.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote

from penstock.transport.exchange import Query, Request

JSON_TYPE = "application/json"
NDJSON_TYPE = "application/x-ndjson"
RACK_HEADER = "Penstock-Rack"
BATCH_TYPE = "application/vnd.penstock.recordbatch"


def topic_path(topic: str) -> str:
    """Returns the path of a topic: `/v1/topics/{topic}`, with the name escaped."""
    return f"/v1/topics/{quote(topic, safe='')}"


def create_producer() -> Request:
    return Request("POST", "/v1/producers")


def positions(topic: str, partition: int, timestamp: int | str | None = None) -> Request:
    query: dict[str, str | int] = {} if timestamp is None else {"timestamp": timestamp}
    return Request("GET", f"{topic_path(topic)}/partitions/{partition}/offsets", query)


def produce(
    topic: str,
    body: bytes,
    content_type: str,
    *,
    partition: int | None,
    query: Mapping[str, str | int],
    headers: Mapping[str, str] = {},
) -> Request:
    return Request("POST", _records(topic, partition), query, body, {"Content-Type": content_type, **headers})


def produce_conditions(
    idempotency_key: str | None,
    expected_end: int | None,
    fencing_token: str | None,
    source: str | None = None,
    source_positions: tuple[int, int] | None = None,
) -> dict[str, str]:
    """Returns the headers for the conditions of a produce request."""
    headers = {
        "Idempotency-Key": idempotency_key,
        "Penstock-Expected-End": expected_end,
        "Penstock-Fencing-Token": fencing_token,
        "Penstock-Source": source,
        "Penstock-Source-Positions": None if source_positions is None else "{}-{}".format(*source_positions),
    }
    return {name: str(value) for name, value in headers.items() if value is not None}


def fetch(
    topic: str,
    partition: int,
    accept: str,
    query: Query,
    leader_epoch: int | None = None,
    rack: str = "",
) -> Request:
    """Makes a fetch request. A leader older than `leader_epoch` rejects it; `rack` prefers a replica of that rack."""
    headers = {"Accept": accept}
    if leader_epoch:
        headers["Penstock-Leader-Epoch"] = str(leader_epoch)
    if rack:
        headers[RACK_HEADER] = rack
    return Request("GET", _records(topic, partition), query, None, headers)


def _records(topic: str, partition: int | None) -> str:
    return (
        f"{topic_path(topic)}/records" if partition is None else f"{topic_path(topic)}/partitions/{partition}/records"
    )
