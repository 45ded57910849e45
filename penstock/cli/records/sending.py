"""Sends inputs to a topic, one body at a time; the driver of `penstock produce`.

Every body has its own Idempotency-Key, so a retry after a lost answer stores nothing twice. Reading continues while a
body is in flight (penstock/cli/records/reading.py); penstock/cli/records/line_splitter.py decides where bodies end.
"""

from __future__ import annotations

import asyncio
import re
import time
import uuid
from base64 import b64encode
from collections.abc import AsyncIterator, Iterator
from itertools import count
from typing import NamedTuple

import msgspec
import orjson

from penstock.aio import Client
from penstock.cli.failures import ExitCode, Failure, describe_error
from penstock.cli.node import Node
from penstock.cli.output import format_count, print_note
from penstock.cli.records.line_splitter import LineSplitter, LineTooLong
from penstock.cli.records.progress import Progress, progress_of
from penstock.cli.records.reading import STDIN, InputReader
from penstock.errors import ClientError, ProblemError
from penstock.options import Acks, ClientOptions
from penstock.transport import api

MIB = 1024 * 1024
_LINE_BYTES_MAX = 64 * MIB  # the largest record_bytes_max that a topic can have
_LINES_MAX = 100_000  # half of a node's records_per_request_max, so that a missing last line feed never matters
_RETRY_MS = 30_000
_TYPES = {  # with it, consumers show text instead of base64
    "lines": {"content-type": "text/plain; charset=utf-8"},
    "raw": {"content-type": "application/octet-stream"},
}


class Target(NamedTuple):
    """Holds the destination of the records and how to send them."""

    topic: str
    form: str  # ndjson, records, lines or raw
    partition: int | None
    key: str | None
    key_pointer: str | None
    acks: Acks
    body_bytes: int
    headers: tuple[tuple[str, str], ...] = ()  # of every record

    @property
    def is_rendered(self) -> bool:
        """True if the command makes a record object of each line, or of the raw file."""
        return self.form == "lines" or bool(self.headers)


class Body(NamedTuple):
    data: bytes
    lines: int  # of the input
    size_bytes: int  # of the input


class Sent(NamedTuple):
    records: int
    size_bytes: int
    seconds: float


async def send_all(node: Node, target: Target, inputs: tuple[str, ...]) -> Sent:
    """Sends every input and returns the totals. Raises Failure at the first body that fails."""
    options = ClientOptions(client_id="penstock-cli", acks=target.acks, delivery_timeout_ms=_RETRY_MS)
    records = size_bytes = 0
    keys = _keys(uuid.uuid4().hex)
    began = time.monotonic()
    async with Client(node.url, token=node.token, options=options, cacert=node.cacert) as client:
        missing = await _expect_node(client, target.topic)
        with progress_of(inputs) as progress:
            for name in inputs:
                sent = await _send_input(client, target, name, keys, records, progress)
                records, size_bytes = records + sent.records, size_bytes + sent.size_bytes
    if missing is not None and not size_bytes:
        raise missing  # no produce request has reported it
    return Sent(records, size_bytes, max(time.monotonic() - began, 0.001))


async def _expect_node(client: Client, topic: str) -> ProblemError | None:
    """Fails at once if no node answers, before retries hide it. Returns the problem of a topic that does not exist.

    The first produce request reports that problem, or creates the topic.
    """
    try:
        await client.describe_topic(topic)
    except ProblemError as problem:
        if problem.code in ("unauthorized", "not_a_node"):
            raise
        return problem if problem.code == "unknown_topic" else None
    return None


def _keys(run: str) -> Iterator[str]:
    """Yields the keys of one run's bodies, in order. The run's id makes them unique."""
    return (f"penstock-cli-{run}-{number}" for number in count())


async def _send_input(
    client: Client, target: Target, name: str, keys: Iterator[str], records_before: int, progress: Progress
) -> Sent:
    shown_name = "standard input" if name == STDIN else name
    records = size_bytes = lines = 0
    async with InputReader(name, target.body_bytes) as reader:
        try:
            async for body in _read_bodies(reader, target):
                records += await _post(client, target, body, next(keys))
                size_bytes += body.size_bytes
                lines += body.lines
                progress.advance(body.size_bytes, records_before + records)
        except asyncio.CancelledError:
            print_note(f"interrupted; {_progress_text(records_before + records)}")
            raise
        except OSError as error:
            raise Failure(f"{shown_name}: {(error.strerror or str(error)).lower()}") from error
        except (ClientError, LineTooLong) as error:
            raise _failure(error, shown_name, lines, records_before + records) from error
    return Sent(records, size_bytes, 0)


async def _read_bodies(reader: InputReader, target: Target) -> AsyncIterator[Body]:
    if target.form == "raw":
        value = await _read_all(reader)
        yield Body(_record(value, target) if target.is_rendered else value, 1, len(value))
        return
    cutter = LineSplitter(target.body_bytes, _LINE_BYTES_MAX)
    while piece := await reader.next():
        cutter.feed(piece)
        while (data := cutter.take()) is not None:
            for body in _encode(data, target):
                yield body
    while cutter.held_bytes and (data := cutter.take(is_end=True)) is not None:
        for body in _encode(data, target):
            yield body


async def _read_all(reader: InputReader) -> bytes:
    data = bytearray()
    while piece := await reader.next():
        data += piece
        if len(data) > _LINE_BYTES_MAX:
            raise LineTooLong(f"a record cannot be larger than {_LINE_BYTES_MAX} bytes")
    return bytes(data)


def _encode(data: bytes, target: Target) -> list[Body]:
    """Encodes lines as bodies: NDJSON unchanged, text lines as larger record objects, which may need several bodies."""
    if not target.is_rendered:
        return _halve(data) if data.strip() else []
    bodies: list[Body] = []
    encoded: list[bytes] = []
    encoded_bytes = size_bytes = 0
    for line in data.removesuffix(b"\n").split(b"\n"):
        encoded.append(_record(line, target))
        encoded_bytes += len(encoded[-1]) + 1
        size_bytes += len(line) + 1
        if encoded_bytes >= target.body_bytes:
            bodies.append(Body(b"\n".join(encoded), len(encoded), size_bytes))
            encoded, encoded_bytes, size_bytes = [], 0, 0
    if encoded:
        bodies.append(Body(b"\n".join(encoded), len(encoded), size_bytes))
    return bodies


def _record(data: bytes, target: Target) -> bytes:
    """Returns a record object with this value, the key and the headers. A line that is not JSON stays for the node to
    reject, which names it.
    """
    is_json = target.form == "ndjson"
    if is_json and not _is_json(data):
        return data
    key = b'"key":' + orjson.dumps(target.key) + b"," if target.key is not None else b""
    value = b'"value":' + data if is_json else b'"value_base64":"' + b64encode(data) + b'"'
    headers = {**_TYPES.get(target.form, {}), **dict(target.headers)}
    return b"{" + key + value + b',"headers":' + orjson.dumps(headers) + b"}"


def _is_json(line: bytes) -> bool:
    try:
        msgspec.json.decode(line, type=msgspec.Raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    return True


def _halve(data: bytes) -> list[Body]:
    """Halves the data until each body has at most _LINES_MAX lines."""
    lines = data.count(b"\n")
    middle = data.find(b"\n", len(data) // 2) + 1 if lines > _LINES_MAX else 0
    if middle == 0:
        return [Body(data, lines, len(data))]
    return _halve(data[:middle]) + _halve(data[middle:])


async def _post(client: Client, target: Target, body: Body, idempotency_key: str) -> int:
    """Posts a body and returns how many records were stored."""
    is_raw = target.form == "raw" and not target.is_rendered
    ndjson = None if is_raw else "values" if target.form == "ndjson" and not target.is_rendered else "records"
    produced = await client.post_records(
        target.topic,
        body.data,
        "application/octet-stream" if is_raw else api.NDJSON_TYPE,
        partition=target.partition,
        key=None if target.is_rendered else target.key,
        key_pointer=target.key_pointer,
        ndjson=ndjson,
        idempotency_key=idempotency_key,
    )
    return sum(result["count"] for result in produced["results"])


def _failure(error: Exception, name: str, lines_before: int, records: int) -> Failure:
    """Returns a failure that names the line of the file, not of the body, and how many records were sent."""
    text, code = describe_error(error) if isinstance(error, ClientError) else (str(error), ExitCode.FAILED)
    line = error.members.get("line") if isinstance(error, ProblemError) else None
    if isinstance(line, int):
        name, text = f"{name}, line {lines_before + line:,}", re.sub(rf"^line {line}:? ", "", text)
    return Failure(f"{name}: {text}; {_progress_text(records)}", code)


def _progress_text(records: int) -> str:
    return f"{format_count(records, 'record')} {'was' if records == 1 else 'were'} sent before"
