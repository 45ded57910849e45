"""Prints the records of a topic; the driver of `penstock consume`.

Lines of NDJSON go to standard output as the node sent them; only raw values are decoded.
"""

from __future__ import annotations

import sys
from typing import NamedTuple

import click

from penstock.aio import Client
from penstock.cli.node import Node
from penstock.consumer.fetcher import Fetched, Fetcher, FetchView
from penstock.consumer.start import Start
from penstock.options import ClientOptions
from penstock.records import decode_records
from penstock.transport.api import JSON_TYPE, NDJSON_TYPE

_UNREACHABLE_MS = 30_000
_VALUE_END = {"lines": b"\n", "raw": b""}


class Wanted(NamedTuple):
    topic: str
    start: Start
    partitions: tuple[int, ...]  # none given: all
    is_following: bool
    records_max: int | None
    form: str


async def print_records(node: Node, wanted: Wanted) -> None:
    """Until the end, the count, or for ever."""
    # Records that are deleted before we come to them are skipped, unless the caller asked for exactly those.
    out_of_range = "fail" if isinstance(wanted.start, int) else "earliest"
    options = ClientOptions(client_id="penstock-cli", unreachable_timeout_ms=_UNREACHABLE_MS, out_of_range=out_of_range)
    async with Client(node.url, token=node.token, options=options) as client:
        existing = len((await client.describe_topic(wanted.topic))["partitions"])
        if isinstance(wanted.start, int) and existing > 1 and len(wanted.partitions) != 1:
            raise click.UsageError(
                f"an offset needs one --partition, and {wanted.topic} has {existing}", click.get_current_context()
            )
        partitions = wanted.partitions or range(existing)
        fetcher, _ = await client.fetcher(wanted.topic, partitions, wanted.start, _view(wanted), options)
        try:
            await _print_all(fetcher, wanted)
        finally:
            await fetcher.close()
        if fetcher.repositions:
            click.echo("some records were deleted before they could be read", err=True)


async def _print_all(fetcher: Fetcher, wanted: Wanted) -> None:
    left = wanted.records_max
    while (left is None or left > 0) and (fetched := await fetcher.next()) is not None:
        if wanted.form in _VALUE_END:
            printed = _print_values(fetched.body, _VALUE_END[wanted.form], left)
        else:
            is_of_records = wanted.form != "values"
            printed = _print_lines(_with_partition(fetched) if is_of_records else fetched.body, left)
        left = None if left is None else left - printed


def _view(wanted: Wanted) -> FetchView:
    query: dict[str, str | int] = {}
    if wanted.records_max is not None:
        query["max_records"] = min(wanted.records_max, 1_000_000)
    if wanted.form in _VALUE_END:
        return FetchView(JSON_TYPE, query | {"value": "json"}, wanted.is_following)
    if wanted.form == "values":
        query["ndjson"] = "values"
    return FetchView(NDJSON_TYPE, query, wanted.is_following)


def _with_partition(fetched: Fetched) -> bytes:
    """The lines with the partition as their first field. A line holds no line feed."""
    return (b"\n" + fetched.body).replace(b"\n{", b'\n{"partition":%d,' % fetched.partition)[1:]


def _print_lines(body: bytes, most: int | None) -> int:
    """How many lines were printed."""
    count = body.count(b"\n")
    if most is not None and count > most:
        body, count = b"".join(line + b"\n" for line in body.split(b"\n", most)[:most]), most
    _write(body)
    return count


def _print_values(body: bytes, end: bytes, most: int | None) -> int:
    records = decode_records(body)[:most]
    _write(b"".join([(record.value or b"") + end for record in records]))
    return len(records)


def _write(data: bytes) -> None:
    left = memoryview(data)
    while left:  # with PYTHONUNBUFFERED set, a write may take only a part and not say so but in its result
        left = left[sys.stdout.buffer.write(left) :]
    sys.stdout.buffer.flush()
