"""For any bytes a decoder returns a value or raises a declared error: no other error, no hang, bounded memory.
tests/fuzz/corpus/ has inputs that these tests found, and that they replay.
"""

from __future__ import annotations

import gzip
import tracemalloc
from contextlib import suppress
from random import Random

import orjson
import pytest
import zstandard
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from engine.directory.data_directory import DataDirectory, Identity, _identify, _identify_additional
from engine.directory.log_directories import _known_directories
from engine.directory.topics import TopicRecord, decoded_topic, encoded_topic
from engine.errors import BatchTooLarge, Corrupt, CorruptBatch, InvalidBatch, RecordTooLarge, StartRefused
from engine.format import batch
from engine.format.batch import Codec
from engine.format.decompression import Broken, DoesNotFit, unpack
from engine.format.index import SegmentIndex, _sealed, load_index
from engine.format.small_file import read_rows, rows_as_text
from engine.log.leader_epochs import EpochStart, load_epochs
from engine.log.recovery import LastShutdown
from engine.runtime.disk import RealDisk
from engine.tiering.manifest.aux_object import decode_aux
from engine.tiering.manifest.encoding import decode_manifest, decode_sub_manifest, encode_manifest, with_checksum
from engine.tiering.manifest.json_reading import UnsupportedFormat
from gateway.fetch.event_stream import parse_id, position
from gateway.fetch.record_json import encode_lines, encode_list, records_out
from gateway.fetch.rendering import encode_document
from gateway.fetch.request import OFFERED
from gateway.http.content_encoding import choose_encoding
from gateway.http.negotiation import choose_media_type
from gateway.http.problems import Problem
from gateway.http.times import parse_timestamp
from gateway.produce.cloud_events import binary_attributes, binary_event, decode_event, decode_event_batch
from gateway.produce.json_records import (
    decode_envelope,
    decode_record_lines,
    decode_topic_envelope,
    decode_topic_lines,
)
from gateway.produce.ndjson_values import decode_keyed_values, decode_values, parse_pointer
from penstock import Encryption, EncryptionFailed, WrappedKey
from tests.engine.tiering.making import manifest_of
from tests.fuzz.bytes_of_strangers import fuzzed, strangers, with_batch_crc

KIB, MIB = 1024, 1024 * 1024

ROWS = [
    (1_700_000_000_000, b"k", b'{"a":1}', [("h", b"v"), ("n", None)]),
    (1_700_000_000_001, None, b"\xff", []),
    (1_700_000_000_002, b"", None, []),
]
BATCHES = [bytes(batch.encode(ROWS, codec, MIB)) for codec in Codec]
BATCHES += [
    bytes(batch.encode_values([b"%d" % n for n in range(50)], 5, codec, MIB)) for codec in (Codec.NONE, Codec.ZSTD)
]

ENVELOPES = [
    b'{"records":[{"value":1},{"value":"x"}]}',
    b'{"records":[{"key":"k","value":{"a":[1,2]},"headers":{"h":["1",{"base64":"/w=="},null]},"timestamp":5,"partition":0}]}',
    b'{"records":[{"key_base64":"/w==","value_base64":"/w==","timestamp":"2013-01-01T10:00:00Z"}]}',
    b'{"records":[{"value":"t","headers":{"content-type":"text/plain"}}]}',
    b'{"records":[{"topic":"t","value":1},{"topic":"u","key":7,"value":null}]}',
]
LINES = [
    b'{"value":1}\n{"value":2}\n',
    b'{"offset":3,"key":"k","value":{"a":1},"headers":{"h":"x"},"timestamp":1000}\n',
    b'{"topic":"t","value":1,"offset":1}\n{"topic":"u","value":"x"}\n',
    b'{"value":"t","headers":{"Content-Type":"text/csv"}}\n',
]
VALUES = [b"1\n2\n", b'{"user":{"id":"u1"},"list":[1,[2]]}\n', b'"a"\r\n\n [1] \n', b"null\ntrue\n1.50\n"]
EVENTS = [
    b'{"specversion":"1.0","id":"1","source":"/s","type":"t","data":{"a":1}}',
    b'{"specversion":"1.0","id":"1","source":"/s","type":"t","datacontenttype":"text/plain","data":"x","time":"2020-01-01T00:00:00Z"}',
    b'[{"specversion":"1.0","id":"1","source":"/s","type":"t","data_base64":"/w==","partitionkey":"k","ext":1}]',
]


@fuzzed
@given(st.one_of(strangers(BATCHES, with_batch_crc), strangers(BATCHES).map(with_batch_crc)))
def test_a_batch_from_a_client(data: bytes) -> None:
    """A batch that passes every check can be decoded, and matches its header."""
    try:
        header = batch.check_client_batch(data, batch_bytes_max=MIB)
        batch.check_records(data, record_bytes_max=64 * KIB, decoded_bytes_max=MIB)
    except (InvalidBatch, CorruptBatch, BatchTooLarge, RecordTooLarge):
        return
    records = batch.decode_one(data, MIB)
    assert len(records) == header.record_count
    encode_document({"topic": "t"}, encode_list(records_out(records, None)))
    encode_lines(records_out(records, "text"))


@fuzzed
@given(strangers(BATCHES, with_batch_crc))
def test_stored_batches_that_are_walked_and_decoded(data: bytes) -> None:
    with suppress(InvalidBatch):
        batch.decode(data)
    with suppress(InvalidBatch):
        for position, header in batch.walk(data):
            with suppress(InvalidBatch):
                batch.decode_one(data[position : position + header.size_bytes], MIB)


@pytest.mark.parametrize("decode", [decode_envelope, decode_topic_envelope], ids=lambda one: one.__name__)
@fuzzed
@given(data=strangers(ENVELOPES))
def test_a_json_envelope(decode, data: bytes) -> None:
    with suppress(Problem):
        decode(data)


@pytest.mark.parametrize("decode", [decode_record_lines, decode_topic_lines], ids=lambda one: one.__name__)
@fuzzed
@given(data=strangers(LINES))
def test_record_lines(decode, data: bytes) -> None:
    with suppress(Problem):
        decode(data)


@fuzzed
@given(
    strangers(VALUES), st.one_of(st.sampled_from(["", "/user/id", "/list/1/0", "/~0~1", "/0"]), st.text(max_size=20))
)
def test_value_lines_with_and_without_a_pointer(data: bytes, pointer: str) -> None:
    with suppress(Problem):
        decode_values(data)
    with suppress(Problem):
        decode_keyed_values(data, parse_pointer(pointer))


@pytest.mark.parametrize("decode", [decode_event, decode_event_batch], ids=lambda one: one.__name__)
@fuzzed
@given(data=strangers(EVENTS))
def test_a_cloud_event(decode, data: bytes) -> None:
    with suppress(Problem):
        decode(data)


HEADER_TEXT = st.text(st.characters(max_codepoint=255, exclude_characters="\r\n\0"), max_size=30)


@fuzzed
@given(
    st.dictionaries(
        st.sampled_from(["ce-id", "ce-source", "ce-type", "ce-specversion", "ce-time", "ce-x"]), HEADER_TEXT
    ),
    st.one_of(st.none(), HEADER_TEXT),
)
def test_a_cloud_event_in_headers(headers: dict[str, str], content_type: str | None) -> None:
    with suppress(Problem):
        attributes = binary_attributes(
            {"ce-id": "1", "ce-source": "s", "ce-type": "t", "ce-specversion": "1.0"} | headers
        )
        if attributes is not None:
            binary_event(attributes, content_type, b"x")


PACKED = {
    "gzip": [gzip.compress(b"x" * 500, mtime=0), gzip.compress(b"a", mtime=0) + gzip.compress(b"b", mtime=0)],
    "zstd": [zstandard.compress(b"x" * 500), zstandard.compress(b"a") + zstandard.compress(b"b")],
}


@pytest.mark.parametrize("encoding", PACKED)
def test_a_packed_body(encoding: str) -> None:
    @fuzzed
    @given(strangers(PACKED[encoding]), st.integers(0, 600))
    def body(data: bytes, limit: int) -> None:
        with suppress(Broken, DoesNotFit):
            assert len(unpack(encoding, data, limit)) <= limit

    body()


@fuzzed
@given(
    st.one_of(
        st.text(max_size=40), strangers([b"2013-01-01T10:00:00Z", b"1700000000000"]).map(lambda b: b.decode("latin-1"))
    )
)
def test_a_timestamp(text: str) -> None:
    with suppress(Problem):
        assert isinstance(parse_timestamp(text), int)


@fuzzed
@given(
    st.one_of(
        st.text(max_size=60),
        strangers([b"application/json;q=0.5, */*;q=1", b"text/*"]).map(lambda b: b.decode("latin-1")),
    )
)
def test_an_accept_header(text: str) -> None:
    with suppress(Problem):
        assert choose_media_type(text, OFFERED) in OFFERED
    assert choose_encoding(text) in (None, "gzip", "zstd")


@fuzzed
@given(
    st.one_of(
        st.text(max_size=60),
        st.lists(st.integers(0, 2**64), min_size=1, max_size=6).map(lambda parts: "-".join(map(str, parts))),
        strangers([b"0", b"5-7", b"0f3c5a7e.5-7", b"9223372036854775807-0", b"1-2-3-4-5"]).map(
            lambda b: b.decode("latin-1")
        ),
    ),
    st.integers(1, 5),
)
def test_the_id_of_an_event_that_a_client_sends_back(text: str, partitions: int) -> None:
    """As `Last-Event-ID`, or as `?positions=`: either valid positions of a partition, or a problem."""
    with suppress(Problem):
        positions = parse_id(text, partitions)
        assert 1 <= len(positions) <= partitions
        assert all(0 <= offset < 2**63 for offset in positions)
        written = position("0f3c5a7e9b1d", positions).decode().removeprefix("id: ").strip()
        assert parse_id(written, partitions) == positions


MANIFEST = encode_manifest(manifest_of(3))
SUB = orjson.dumps(
    {"format": 1, "prefix": orjson.loads(MANIFEST)["prefix"], "entries": orjson.loads(MANIFEST)["entries"]}
)


def _resigned(data: bytes) -> bytes:
    try:
        members = orjson.loads(data)
    except orjson.JSONDecodeError:
        return data
    if not isinstance(members, dict):
        return data
    members.pop("crc32c", None)
    with suppress(TypeError):
        return with_checksum(members)
    return data


@fuzzed
@given(st.one_of(strangers([MANIFEST], _resigned), strangers([MANIFEST]).map(_resigned)))
def test_a_manifest(data: bytes) -> None:
    with suppress(Corrupt, UnsupportedFormat):
        decode_manifest(data, "key")


@fuzzed
@given(strangers([SUB]))
def test_a_sub_manifest(data: bytes) -> None:
    with suppress(Corrupt, UnsupportedFormat):
        decode_sub_manifest(data, "key")


AUX = orjson.dumps(
    dict.fromkeys(("base_offset", "end_offset", "size_bytes", "crc32c", "record_count", "batch_count"), 0)
    | {"format": 1, "min_timestamp_ms": 0, "max_timestamp_ms": 0, "leader_epochs": [[0, 0]]}
    | {"index": {"offsets": [0, 5], "positions": [0, 70], "max_timestamps_ms": [1, 2]}}
)


@fuzzed
@given(strangers([AUX]))
def test_an_aux_object(data: bytes) -> None:
    with suppress(Corrupt, UnsupportedFormat):
        aux = decode_aux(data, "key")
        aux.index.position_at_or_before(3)
        aux.index.position_to_search_time_from(3)


def _index_files() -> tuple[bytes, bytes]:
    index = SegmentIndex(0)
    for at, data in enumerate(BATCHES):
        index.add(batch.read_header(data)._replace(base_offset=at * 10), at * 5000)
    return index.offset_index_bytes(100_000), index.time_index_bytes(100_000)


OFFSETS, TIMES = _index_files()


@fuzzed
@given(strangers([OFFSETS], lambda d: _sealed(d[:-4], 100_000)), strangers([TIMES], lambda d: _sealed(d[:-4], 100_000)))
def test_index_files(offsets: bytes, times: bytes) -> None:
    """An invalid index is dropped; an accepted one answers every query with a position inside the segment."""
    index = load_index(0, offsets, times, 100_000)
    if index is not None:
        for offset in (0, 1, 10, 2**31):
            assert 0 <= index.position_at_or_before(offset) < 100_000
        index.offset_to_search_time_from(5)
        index.truncate(5000)


SMALL = rows_as_text("penstock leader-epochs 1", ["0 0", "1 10", "5 200"])
POINTS = rows_as_text("penstock recovery-points 2", ["a/b/0 10 0", "a/b/1 20 5"])


def _row_checksum(data: bytes) -> bytes:
    text = data.rpartition(b"crc32c ")[0]
    return text + f"crc32c {crc32c(text):08x}\n".encode()


@fuzzed
@given(st.one_of(strangers([SMALL, POINTS], _row_checksum), strangers([SMALL]).map(_row_checksum)))
def test_small_files(data: bytes) -> None:
    read_rows("penstock leader-epochs 1", data)
    read_rows("penstock recovery-points 1", data, has_checksum=False)


@fuzzed
@given(data=st.one_of(strangers([SMALL], _row_checksum), strangers([SMALL]).map(_row_checksum)))
def test_leader_epochs_on_file(tmp_path_factory, data: bytes) -> None:
    directory = tmp_path_factory.mktemp("epochs")
    (directory / "leader-epochs").write_bytes(data)
    assert all(isinstance(one, EpochStart) for one in load_epochs(RealDisk(), str(directory)))


@fuzzed
@given(data=st.one_of(strangers([POINTS], _row_checksum), strangers([POINTS]).map(_row_checksum)))
def test_recovery_points_on_file(tmp_path_factory, data: bytes) -> None:
    path = tmp_path_factory.mktemp("points")
    (path / "recovery-points").write_bytes(data)
    directory = DataDirectory(RealDisk(), str(path), Identity("c", 1), last_shutdown=LastShutdown.CLEAN)
    directory.load_checkpoints()


META = orjson.dumps({"format": 1, "cluster_id": "c", "node_id": 1})
FIRST = orjson.dumps({"format": 2, "cluster_id": "c", "node_id": 1, "further": [{"directory_id": "d", "path": "/x"}]})
FURTHER = orjson.dumps({"format": 2, "cluster_id": "c", "node_id": 1, "directory_id": "d"})


@fuzzed
@given(data=strangers([META, FIRST, FURTHER]))
def test_the_meta_file(tmp_path_factory, data: bytes) -> None:
    """The file of the only directory, of the first of several, or of a further one of the same cluster."""
    path = tmp_path_factory.mktemp("meta")
    (path / "meta").write_bytes(data)
    disk, identity = RealDisk(), Identity("c", 1)
    with suppress(StartRefused):
        _identify(disk, str(path), 1, None, lambda: "id")
    with suppress(StartRefused):
        _identify_additional(disk, str(path), identity, lambda: "id")
    with suppress(StartRefused):
        _known_directories(disk, DataDirectory(disk, str(path), identity, last_shutdown=LastShutdown.CLEAN))


TOPIC = encoded_topic(TopicRecord("t", "id", 3, 1, {"segment_ms": 60_000}, 5))
SPREAD = encoded_topic(TopicRecord("t", "id", 3, 1, {}, 5, {"1": "b", "2": "c"}))


@fuzzed
@given(strangers([TOPIC, SPREAD]))
def test_a_topic_file(data: bytes) -> None:
    with suppress(Corrupt):
        topic = decoded_topic("directory", data)
        assert isinstance(topic.partitions, int)
        assert all(isinstance(place, str) for place in topic.directory_ids.values())


class KeysOfTest:
    """Wraps by XOR: what is fuzzed comes after it."""

    def wrap(self, data_key: bytes) -> WrappedKey:
        return WrappedKey("old", bytes(byte ^ 0x55 for byte in data_key))

    def unwrap(self, key_id: str, wrapped: bytes) -> bytes:
        return bytes(byte ^ 0x55 for byte in {"old": wrapped}[key_id])


KEYS = KeysOfTest()
SEALED = Encryption(KEYS, random_bytes=Random(1).randbytes).seal("orders", b"k", b'{"a":1}')
ENCRYPTED = b"\n".join([*(value.encode() for _, value in SEALED.headers), SEALED.value])


@fuzzed
@given(strangers([ENCRYPTED]))
def test_an_encrypted_value(data: bytes) -> None:
    """The first four lines are its headers. Only the untouched record opens."""
    *headers, value = data.split(b"\n", 4)
    with suppress(EncryptionFailed):
        named = zip((name for name, _ in SEALED.headers), headers, strict=False)
        assert Encryption(KEYS, is_required=True).open(named, b"k", value, "a record") == b'{"a":1}'


def test_no_bytes_make_a_decoder_take_memory_without_bound() -> None:
    """Each of these claims to be far larger than it is. 40 MB cover the machinery, not the claims."""
    count = (2**31 - 1).to_bytes(4, "big")
    lying = with_batch_crc(BATCHES[0][:57] + count + BATCHES[0][61:])
    snappy_lie = with_batch_crc(BATCHES[2][:61] + b"\xff\xff\xff\xff\x0f" + b"\x00" * 20)
    tracemalloc.start()
    try:
        for data in (lying, snappy_lie):
            with suppress(InvalidBatch, CorruptBatch):
                batch.check_client_batch(data, batch_bytes_max=MIB)
                batch.check_records(data, record_bytes_max=MIB, decoded_bytes_max=MIB)
            with suppress(InvalidBatch):
                batch.decode(data)
        assert tracemalloc.get_traced_memory()[1] < 40_000_000
    finally:
        tracemalloc.stop()
