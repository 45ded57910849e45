"""Large answers of a fetch over HTTP: in pieces where the client can see that one is cut off, else whole."""

from __future__ import annotations

import asyncio
import gzip
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import orjson
import pytest
import zstandard
from aiohttp import ClientSession

import penstock_codec
from engine.errors import ReadFailed
from engine.log.log import Log
from engine.partition.partition import Partition
from engine.partition.reader import Chunk
from gateway.fetch import fetch, partition_reads, streamed_records
from gateway.settings import NodeSettings
from node.node import Node
from node.processes.server import running_node
from tests.gateway.server.served import served

pytestmark = pytest.mark.skipif(penstock_codec.native is None, reason="only the compiled codec renders pieces")

PIECE_BYTES = 1000
UNPACKED = {
    "gzip": gzip.decompress,
    "zstd": lambda body: zstandard.ZstdDecompressor().decompressobj().decompress(body),
}
BATCHES, RECORDS = 30, 10
PATH = "/v1/topics/t/partitions/0/records?offset=0"


@pytest.fixture
async def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Node]:
    for module in (streamed_records, partition_reads):
        monkeypatch.setattr(module, "PIECE_BYTES", PIECE_BYTES)
    async with running_node(NodeSettings(data_dir=str(tmp_path / "data"))) as node:
        await node.shard.create_topic("t", 1, 1, {})
        async with served(node, is_short=True) as ((host, port), _), ClientSession(f"http://{host}:{port}") as client:
            body = b"".join(b'{"n":%d,"a":"some text in each record"}\n' % number for number in range(RECORDS))
            for _ in range(BATCHES):
                async with client.post(
                    "/v1/topics/t/records?acks=all", data=body, headers={"Content-Type": "application/x-ndjson"}
                ) as answer:
                    assert answer.status == 200
        yield node


async def answered(place: tuple[str, int], request: str) -> tuple[bytes, bytes]:
    reader, writer = await asyncio.open_connection(*place)
    writer.write(request.encode())
    head, _, body = (await asyncio.wait_for(reader.read(), 60)).partition(b"\r\n\r\n")
    writer.close()
    return head.lower(), body


def unchunked(body: bytes) -> bytes:
    pieces = []
    while body:
        size, _, body = body.partition(b"\r\n")
        pieces.append(body[: int(size, 16)])
        body = body[int(size, 16) + 2 :]
    assert not pieces[-1], "the last chunk is empty"
    return b"".join(pieces)


@pytest.mark.parametrize("is_short", [True, False])
@pytest.mark.parametrize("accept", ["application/json", "application/x-ndjson"])
async def test_the_pieces_are_the_body_that_is_given_whole(node: Node, accept: str, is_short: bool) -> None:
    async with served(node, is_short=is_short) as (place, short):
        rest = f"Host: 127.0.0.1\r\nConnection: close\r\nAccept: {accept}\r\n"
        head, body = await answered(place, f"GET {PATH} HTTP/1.1\r\n{rest}\r\n")
        assert b"transfer-encoding: chunked" in head
        assert body.count(b"\r\n") >= 2 * 3 + 2, "three pieces and the end"
        for request in (f"GET {PATH} HTTP/1.0\r\n{rest}", f"HEAD {PATH} HTTP/1.1\r\n{rest}"):
            other_head, other = await answered(place, f"{request}\r\n")
            assert b"content-length: %d" % len(unchunked(body)) in other_head, "it is given whole"
            if "HEAD" not in request:
                assert other == unchunked(body)
        assert b"penstock-next-offset: %d" % (BATCHES * RECORDS) in head
        assert (short.answered > 0) == is_short
    if accept == "application/json":
        assert [one["offset"] for one in orjson.loads(unchunked(body))["records"]] == list(range(BATCHES * RECORDS))


def asked(path: str, encoding: str) -> str:
    rest = "Host: 127.0.0.1\r\nConnection: close\r\nAccept: application/x-ndjson\r\n"
    return f"GET {path} HTTP/1.1\r\n{rest}Accept-Encoding: {encoding}\r\n\r\n"


@pytest.mark.parametrize("is_short", [True, False])
@pytest.mark.parametrize("encoding", UNPACKED)
async def test_the_pieces_of_an_encoded_answer_are_one_body(
    node: Node, encoding: str, is_short: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with served(node, is_short=is_short) as (place, _):
        _, plain = await answered(place, asked(PATH, "identity"))
        head, body = await answered(place, asked(PATH, encoding))
        monkeypatch.setattr(fetch, "PIECE_BYTES", NodeSettings().compress_bytes_min - 1)
        whole_head, _ = await answered(place, asked(PATH, encoding))
    assert f"content-encoding: {encoding}".encode() in head
    assert b"vary: accept-encoding" in head
    assert b"transfer-encoding: chunked" in head
    assert body.count(b"\r\n") >= 2 * 3 + 2, "three pieces and the end"
    assert UNPACKED[encoding](unchunked(body)) == unchunked(plain)
    assert b"content-length:" in whole_head, "the size of the whole answer decides whether it is compressed"


async def test_a_filtered_answer_in_pieces_has_the_records_that_pass(node: Node) -> None:
    wish = f"{PATH}&filter=value/n=3"
    async with served(node, is_short=True) as (place, _):
        head, body = await answered(place, asked(wish, "identity"))
        _, whole = await answered(place, asked(wish, "identity").replace("HTTP/1.1", "HTTP/1.0"))
    assert b"transfer-encoding: chunked" in head
    assert body.count(b"\r\n") >= 2 * 3 + 2, "three pieces and the end"
    assert unchunked(body) == whole
    assert [orjson.loads(line)["offset"] for line in whole.splitlines()] == list(range(3, BATCHES * RECORDS, RECORDS))


async def test_records_of_the_store_come_in_larger_pieces(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []

    async def from_store(partition: Partition, offset: int, max_bytes: int) -> Chunk | None:
        sizes.append(max_bytes)
        return await node.reads.reader.read(partition, offset, max_bytes)

    monkeypatch.setattr(type(node.reads.tier), "read", staticmethod(from_store))
    async with served(node, is_short=True) as (place, _):
        _, local = await answered(place, asked(PATH, "identity"))
        monkeypatch.setattr(Log, "local_log_start", 1 << 40)
        monkeypatch.setattr(partition_reads, "STORE_PIECE_BYTES", 2 * PIECE_BYTES)
        head, body = await answered(place, asked(PATH, "identity"))
    assert b"transfer-encoding: chunked" in head
    assert unchunked(body) == unchunked(local)
    assert sizes[1:-1] == [2 * PIECE_BYTES] * (len(sizes) - 2)
    assert len(sizes) > 3


@pytest.mark.parametrize("encoding", ["identity", *UNPACKED])
@pytest.mark.parametrize("is_short", [True, False])
async def test_an_answer_whose_records_fail_to_be_read_is_cut_off(
    node: Node, is_short: bool, encoding: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    read, offsets = node.reads.reader.read, []

    async def failing(partition: object, offset: int, max_bytes: int) -> Chunk | None:
        offsets.append(offset)
        if len(offsets) > 2:
            raise ReadFailed("the disk fails")
        return await read(partition, offset, max_bytes)  # type: ignore[arg-type]

    monkeypatch.setattr(node.reads.reader, "read", failing)
    async with served(node, is_short=is_short) as (place, _):
        with caplog.at_level(logging.WARNING, "penstock.gateway"):
            head, body = await answered(place, asked(PATH, encoding))
    assert head.startswith(b"http/1.1 200")
    assert len(offsets) == 3
    assert not body.endswith(b"0\r\n\r\n"), "its last chunk is missing"
    assert [record.message for record in caplog.records] == ["answer cut off"]
