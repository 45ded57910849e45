"""Prints the records of a topic, or of a group's topics; the driver of `penstock consume`.

Lines of NDJSON go to standard output as the node sent them. Records are decoded only where necessary: for raw values,
--output, --grep and --until.
"""

from __future__ import annotations

import asyncio
import random
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import NamedTuple

import click

from penstock.aio import Client
from penstock.cli.failures import ExitCode, Failure
from penstock.cli.node import Node
from penstock.cli.records.record_format import Shown
from penstock.consumer.fetcher import Fetched, Fetcher, FetchView
from penstock.consumer.group_consumer import GroupConsumer
from penstock.consumer.group_member import GroupTerms
from penstock.consumer.start import Start
from penstock.consumer.work_queue import QueueTerms, WorkQueue, WorkRecord
from penstock.errors import ProblemError
from penstock.options import ClientOptions, OutOfRange
from penstock.records import Record, decode_line, decode_records, one_line
from penstock.transport.api import JSON_TYPE, NDJSON_TYPE

_UNREACHABLE_MS = 30_000
_GROUP_IDLE_MS = 500  # without --follow, a group's member ends after a poll of this time without records
_QUEUE_RECORDS_MAX = 100  # locked at once: others wait for these if this process is killed
_VALUE_END = {"lines": b"\n", "raw": b""}


class ConsumeArguments(NamedTuple):
    """Holds the arguments of `penstock consume`."""

    topic: str
    start: Start
    partitions: tuple[int, ...]  # empty: all
    is_following: bool
    records_max: int | None
    form: str
    tail: int | None = None  # records of each partition; replaces `start`
    until: int | str | None = None  # an offset or a time
    pattern: re.Pattern[bytes] | None = None
    template: Shown | None = None
    filters: tuple[str, ...] = ()

    @property
    def has_values(self) -> bool:
        """True if values are printed as they are stored, or by a template."""
        return self.template is not None or self.form in _VALUE_END


async def print_records(node: Node, arguments: ConsumeArguments) -> None:
    """Prints records until the end, until the count, or without end when following. Raises click.UsageError."""
    # Records deleted before they are read are skipped, unless the caller gave the offset of the first one.
    out_of_range: OutOfRange = "fail" if isinstance(arguments.start, int) else "earliest"
    options = ClientOptions(client_id="penstock-cli", unreachable_timeout_ms=_UNREACHABLE_MS, out_of_range=out_of_range)
    async with Client(node.url, token=node.token, options=options, cacert=node.cacert) as client:
        existing = len((await client.describe_topic(arguments.topic))["partitions"])
        has_offset = isinstance(arguments.start, int) or isinstance(arguments.until, int)
        if has_offset and existing > 1 and len(arguments.partitions) != 1:
            raise click.UsageError(
                f"an offset needs one --partition, and {arguments.topic} has {existing}", click.get_current_context()
            )
        partitions = arguments.partitions or tuple(range(existing))
        start = arguments.start
        if arguments.tail is not None:
            start = await _find_tails(client, arguments.topic, partitions, arguments.tail)
        ends = None
        if arguments.until is not None:
            ends = await _find_ends(client, arguments.topic, partitions, arguments.until)
        with _naming("--from", start):
            fetcher, _ = await client.fetcher(arguments.topic, partitions, start, _view(arguments), options, ends)
        try:
            await _print_all(fetcher, arguments, ends or {})
        finally:
            await fetcher.close()
        if fetcher.repositions:
            click.echo("some records were deleted before they were read", err=True)


async def print_group(node: Node, arguments: ConsumeArguments, terms: GroupTerms) -> None:
    """Prints records of a group, and finishes what was printed. Ends after the count, and without following after an
    answer without records.
    """
    wait_ms = ClientOptions().fetch_wait_ms if arguments.is_following else _GROUP_IDLE_MS
    options = ClientOptions(client_id="penstock-cli", unreachable_timeout_ms=_UNREACHABLE_MS, fetch_wait_ms=wait_ms)
    terms = terms._replace(
        member_id=terms.member_id or f"{options.client_id}-{random.getrandbits(64):016x}",
        value="json" if arguments.has_values else None,
    )
    async with Client(node.url, token=node.token, options=options, cacert=node.cacert) as client:
        try:
            await _print_as_member(client, arguments, terms, options)
        except ProblemError as problem:
            if problem.code != "wrong_group_kind":
                raise
            await _print_queue(client, arguments, terms, options)


async def _print_as_member(
    client: Client, arguments: ConsumeArguments, terms: GroupTerms, options: ClientOptions
) -> None:
    """Prints records as a member of a consumer group, and commits what was printed."""
    has_topic = len(terms.topics) != 1 or terms.topics_pattern is not None
    left = arguments.records_max
    async with GroupConsumer(client.group_member(terms, options)) as consumer:
        while left is None or left > 0:
            records = await consumer.poll(max_records=left)
            if not records and not arguments.is_following:
                return
            pieces = [
                _render(record, b"" if arguments.has_values else record.line(has_topic=has_topic), arguments)
                for record in records
                if arguments.pattern is None or _matches(record, arguments.pattern)
            ]
            _write(b"".join(pieces))
            left = None if left is None else left - len(pieces)
            if records:
                await consumer.commit()


async def _print_queue(client: Client, arguments: ConsumeArguments, terms: GroupTerms, options: ClientOptions) -> None:
    """Prints records of a share group, and accepts them once they are printed; others get what is not accepted.

    Raises Failure for options that leave out records: no worker would get these.
    """
    if terms.filters or arguments.pattern is not None or terms.topics_pattern is not None:
        text = "is a share group, which has no --filter, --grep and --topics-pattern"
        raise Failure(f"{terms.group} {text}", ExitCode.USAGE)
    has_topic = len(terms.topics) != 1
    left = arguments.records_max
    asked = QueueTerms(terms.group, tuple(terms.topics), terms.member_id, value=terms.value)
    async with client.work_queue(asked, options) as queue:
        while left is None or left > 0:
            records = await queue.take(min(_QUEUE_RECORDS_MAX, left or _QUEUE_RECORDS_MAX))
            if not records and not arguments.is_following:
                return
            try:
                lines = [b"" if arguments.has_values else record.line(has_topic=has_topic) for record in records]
                _write(b"".join(_render(*record_line, arguments) for record_line in zip(records, lines, strict=True)))
                late = await _accept(queue, records)
            except BaseException:  # an interrupt, or the reader of the output has closed it
                await queue.give_back(records)
                raise
            if late:
                click.echo(f"the lock of {len(late)} records ended before they were printed: they come again", err=True)
            left = None if left is None else left - len(records)


async def _accept(queue: WorkQueue, records: list[WorkRecord]) -> list[WorkRecord]:
    """Accepts printed records. Returns those that may come again."""
    try:
        return await queue.accept(records)
    except ProblemError as problem:
        if problem.code != "lock_unknown":
            raise
        return records


async def _find_tails(client: Client, topic: str, partitions: Sequence[int], count: int) -> dict[int, int]:
    """Returns the offset of the first of the last `count` records of each partition."""
    positions = await asyncio.gather(*(client.find_positions(topic, partition) for partition in partitions))
    return {
        partition: max(position["log_start"], position["high_watermark"] - count)
        for partition, position in zip(partitions, positions, strict=True)
    }


async def _find_ends(client: Client, topic: str, partitions: Sequence[int], until: int | str) -> dict[int, int]:
    """Returns the exclusive end offset of each partition."""
    if isinstance(until, int):
        return dict.fromkeys(partitions, until)
    with _naming("--until", until):
        positions = await asyncio.gather(*(client.find_positions(topic, partition, until) for partition in partitions))
    return {
        partition: position["high_watermark"] if position["offset"] is None else position["offset"]
        for partition, position in zip(partitions, positions, strict=True)
    }


@contextmanager
def _naming(option: str, start: Start) -> Iterator[None]:
    """Name the option if the node rejects its time. Raises Failure."""
    try:
        yield
    except ProblemError as error:
        if error.members.get("parameter") != "timestamp":
            raise
        words = "earliest, latest, " if option == "--from" else ""
        text = f"{option} is {start!r}; give {words}an offset, or a time with a zone such as 2013-01-01T05:00:00Z"
        raise Failure(f"{text} [{error.code}]", ExitCode.REFUSED) from error


async def _print_all(fetcher: Fetcher, arguments: ConsumeArguments, ends: Mapping[int, int]) -> None:
    left = arguments.records_max
    is_chosen = bool(arguments.pattern or ends)
    while (left is None or left > 0) and (fetched := await fetcher.next()) is not None:
        if is_chosen or arguments.has_values:
            pieces = list(islice(_matching_lines(fetched, arguments, ends.get(fetched.partition)), left))
            printed = len(pieces)
            _write(b"".join(pieces))
        else:
            is_of_records = arguments.form != "values"
            printed = _print_lines(
                _with_partition(fetched.body, fetched.partition) if is_of_records else fetched.body, left
            )
        left = None if left is None else left - printed


def _matching_lines(fetched: Fetched, arguments: ConsumeArguments, end: int | None) -> Iterator[bytes]:
    """Yields the rendered records of an answer that match --until and --grep."""
    if arguments.has_values:
        records = decode_records(fetched.body)
        lines = [b""] * len(records)
    else:
        lines = fetched.body.splitlines(keepends=True)
        records = [decode_line(line) for line in lines]
    for record, line in zip(records, lines, strict=True):
        if (end is None or record.offset < end) and (arguments.pattern is None or _matches(record, arguments.pattern)):
            line = line if arguments.has_values else _with_partition(line, fetched.partition)
            yield _render(record, line, arguments)


def _render(record: Record, line: bytes, arguments: ConsumeArguments) -> bytes:
    if arguments.template is not None:
        return arguments.template(record).encode() + b"\n"
    if arguments.form in _VALUE_END:
        return (record.value or b"") + _VALUE_END[arguments.form]
    return bytes(one_line(record.value_json)) + b"\n" if arguments.form == "values" else line


def _matches(record: Record, pattern: re.Pattern[bytes]) -> bool:
    """True if the key or the value matches --grep. A record that cannot be decoded never matches."""
    if record.error is not None:
        return False
    return any(data is not None and pattern.search(data) for data in (record.value, record.key))


def _view(arguments: ConsumeArguments) -> FetchView:
    query: dict[str, str | int | tuple[str, ...]] = {"filter": arguments.filters} if arguments.filters else {}
    is_chosen = arguments.pattern is not None or arguments.until is not None
    if arguments.records_max is not None and not is_chosen:
        query["max_records"] = min(arguments.records_max, 1_000_000)
    if arguments.has_values:
        return FetchView(JSON_TYPE, query | {"value": "json"}, arguments.is_following)
    if arguments.form == "values" and not is_chosen:
        query["ndjson"] = "values"
    return FetchView(NDJSON_TYPE, query, arguments.is_following)


def _with_partition(lines: bytes, partition: int) -> bytes:
    """Inserts the partition as the first field of each line. Relies on NDJSON: a line contains no line feed."""
    return (b"\n" + lines).replace(b"\n{", b'\n{"partition":%d,' % partition)[1:]


def _print_lines(body: bytes, lines_max: int | None) -> int:
    """Prints at most `lines_max` lines and returns how many were printed."""
    count = body.count(b"\n")
    if lines_max is not None and count > lines_max:
        body, count = b"".join(line + b"\n" for line in body.split(b"\n", lines_max)[:lines_max]), lines_max
    _write(body)
    return count


def _write(data: bytes) -> None:
    left = memoryview(data)
    while left:  # with PYTHONUNBUFFERED a write may be partial, which only its result shows
        left = left[sys.stdout.buffer.write(left) :]
    sys.stdout.buffer.flush()
