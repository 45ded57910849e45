"""`verify_crc`: records are returned as stored, and a changed byte is never returned."""

from __future__ import annotations

from typing import Any

import cramjam
import pytest
from aiohttp import web
from aiokafka.record.default_records import DefaultRecordBatch
from hypothesis import given
from hypothesis import strategies as st

from engine.format.batch import Codec, encode, set_crc, stamp
from penstock import ChecksumMismatch, Client, ClientClosed, ClientError, ClientOptions, UndecodableBatch
from penstock.consumer.stored_batches import decode_stored
from penstock.transport import api
from penstock.transport.compression import decompress
from tests.penstock.fake_node import FakeNode

HEADERS = [("a", b"\x01"), ("a", None)]


def batch_of(*values: bytes | None, base_offset: int = 0, codec: Codec = Codec.NONE) -> bytes:
    batch = encode([(1_000 + n, b"k%d" % n, value, HEADERS) for n, value in enumerate(values)], codec=codec)
    stamp(batch, base_offset, 3)
    return bytes(batch)


@pytest.mark.parametrize("codec", list(Codec))
def test_records_come_with_everything_they_have(codec: Codec) -> None:
    body = batch_of(b"a" * 500, None, base_offset=5, codec=codec) + batch_of(b" 1 ", base_offset=7)
    records = decode_stored(body, "t", 2, 6)
    assert [(record.offset, record.timestamp, record.key, record.value) for record in records] == [
        (6, 1_001, b"k1", None),
        (7, 1_000, b"k0", b" 1 "),
    ]
    assert records[0].headers == HEADERS
    assert (records[1].json(), records[1].topic, records[1].partition, records[1].next_offset) == (1, "t", 2, 8)


@given(st.data())
def test_a_changed_bit_is_never_handed_out(data: st.DataObject) -> None:
    first = batch_of(b"value" * 20, b"more")
    whole = first + batch_of(b"last", base_offset=2)
    outside = range(len(first), len(first) + 8)  # the second's base offset; a change there looks like a gap
    at = data.draw(st.integers(8, len(whole) - 1).filter(lambda at: at not in outside))
    body = bytearray(whole)
    body[at] ^= 1 << data.draw(st.integers(0, 7))
    try:
        records = decode_stored(bytes(body), "t", 0, 0)
    except ClientError:
        return
    assert [record.value for record in records] == [b"value" * 20, b"more", b"last"]  # the epoch, which does not matter


def test_a_changed_byte_under_the_checksum_is_a_mismatch() -> None:
    body = bytearray(batch_of(b"value"))
    body[-2] ^= 1
    with pytest.raises(ChecksumMismatch, match="t/0 from offset 0"):
        decode_stored(bytes(body), "t", 0, 0)


@pytest.mark.parametrize("cut", [1, 60, 70])
def test_a_cut_answer_is_reported(cut: int) -> None:
    with pytest.raises(ClientError, match=r"cut off|ends within a batch"):
        decode_stored(batch_of(b"value" * 10)[:cut], "t", 0, 0)


def test_a_sound_batch_that_nobody_can_read_is_one_record_without_a_value() -> None:
    body = bytearray(batch_of(b"value", b"other", base_offset=4))
    body[62:] = b"\xff" * (len(body) - 62)
    set_crc(body)
    (record,) = decode_stored(bytes(body), "t", 0, 5)
    assert (record.offset, record.next_offset, record.error) == (5, 6, "undecodable")
    with pytest.raises(UndecodableBatch):
        _ = record.value


async def test_a_consumer_that_met_a_mismatch_does_not_continue_behind_it(client: Client, fake: FakeNode) -> None:
    fake.add_topic("t")[0].records.extend([None] * 9)  # type: ignore[list-item]
    body = bytearray(batch_of(b"1"))
    body[-1] ^= 1

    async def damaged(request: web.Request) -> web.Response:
        assert request.headers["Accept"] == api.BATCH_TYPE
        return web.Response(body=bytes(body), headers={"Penstock-Next-Offset": "1"})

    fake.fail(damaged, method="GET")
    consumer = client.consume("t", verify_crc=True)
    with pytest.raises(ChecksumMismatch):
        await consumer.poll()
    assert consumer.positions() == {0: 0}
    with pytest.raises(ClientClosed):
        await consumer.poll()
    await consumer.close()


@pytest.mark.e2e
async def test_a_real_node_gives_the_same_records_either_way(node_url: str) -> None:
    values = [b'{"n": 1}', b"\x00\xff", None, b'"text"', b" spaced "]
    async with Client(node_url, options=ClientOptions(fetch_bytes_max=2_000)) as client:
        await client.create_topic("t")
        async with client.producer(batch_bytes=300) as producer:
            for number in range(500):
                await producer.send("t", values[number % 5], key=f"k{number}", headers={"h": str(number)})
        await client.post_records("t", b"keyed", "text/plain", partition=0, idempotency_key="once")
        for codec in Codec:
            await client.post_records("t", batch_of(b"packed" * 50, codec=codec), api.BATCH_TYPE, partition=0)
        plain = [record async for record in client.consume("t", follow=False)]
        verified = [record async for record in client.consume("t", follow=False, verify_crc=True, start=3)]
    assert [record.value for record in verified[:497]] == [values[number % 5] for number in range(3, 500)]
    assert len(verified) == 500 + 1 + len(Codec) - 3
    for one, other in zip(plain[3:], verified, strict=True):
        assert (one.offset, one.timestamp, one.key, one.headers) == (
            other.offset,
            other.timestamp,
            other.key,
            other.headers,
        )


@given(
    st.lists(
        st.tuples(
            st.integers(0, 2**45),
            st.none() | st.binary(max_size=300),
            st.none() | st.binary(max_size=300),
            st.lists(st.tuples(st.text(max_size=70), st.none() | st.binary(max_size=70)), max_size=3),
        ),
        min_size=1,
        max_size=20,
    ),
    st.sampled_from(list(Codec)),
    st.integers(0, 2**62),
)
def test_it_reads_what_kafkas_own_codec_reads(rows: list[Any], codec: Codec, base_offset: int) -> None:
    batch = encode(rows, codec=codec)
    stamp(batch, base_offset, 0)
    theirs = [
        (one.offset, one.timestamp, one.key, one.value, list(one.headers)) for one in DefaultRecordBatch(bytes(batch))
    ]
    ours = [
        (one.offset, one.timestamp, one.key, one.value, one.headers)
        for one in decode_stored(bytes(batch), "t", 0, base_offset)
    ]
    assert ours == theirs


def test_snappy_in_the_frame_of_java_producers_is_read() -> None:
    block = bytes(cramjam.snappy.compress_raw(b"value" * 100))
    framed = b"\x82SNAPPY\x00" + bytes(8) + (len(block).to_bytes(4, "big") + block) * 2
    assert decompress(framed, "snappy") == b"value" * 200
    with pytest.raises(ValueError, match="does not fit"):
        decompress(framed[:-1], "snappy")
