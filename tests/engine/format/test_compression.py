"""Records are compressed as Kafka's producers do by default: the levels, and the frames that its readers take."""

import json
import zlib

import cramjam
import pytest
import zstandard

from engine.format import batch
from engine.format.batch import Codec
from engine.format.compression import Packer, pack, pack_records
from engine.format.decompression import unpack

VALUES = [json.dumps({"id": number, "carrier": "UA", "delay": number % 7}).encode() for number in range(2000)]
RECORDS = b"\n".join(VALUES)


def test_lz4_is_the_fast_compressor():
    fast = cramjam.lz4.Compressor(level=0, content_checksum=False, block_linked=False)
    fast.compress(RECORDS)
    assert len(pack_records("lz4", RECORDS)) == len(bytes(fast.finish()))


def test_gzip_does_not_search_longest_and_has_no_time_of_day():
    packed = pack_records("gzip", RECORDS)
    assert packed[4:8] == bytes(4)
    assert packed[8] == 0, "XFL is 2 at level 9"


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_batches_are_compressed_in_one_place(codec):
    data = batch.encode_values(VALUES, 5, codec)
    assert bytes(data[batch.HEADER_BYTES :]) == pack_records(
        codec.name.lower(), bytes(batch.encode_values(VALUES, 5)[batch.HEADER_BYTES :])
    )
    assert [record.value for record in batch.decode(data)] == VALUES


@pytest.mark.parametrize("kind", ["gzip", "zstd"])
def test_pieces_are_one_member_and_each_can_be_read_when_it_comes(kind):
    packer, packed, text = Packer(kind), b"", b""
    for part in (RECORDS[:1000], RECORDS[1000:], b""):
        packed += packer.pack(part, is_last=not part)
        text += part
        assert readable(kind, packed) == text
    assert bytes(unpack(kind, packed, len(RECORDS))) == RECORDS
    assert len(packed) < 1.1 * len(pack(kind, RECORDS))


def readable(kind, packed):
    if kind == "gzip":
        return zlib.decompressobj(wbits=31).decompress(packed)
    return zstandard.ZstdDecompressor().decompressobj().decompress(packed)
