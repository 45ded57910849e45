"""Protobuf by a descriptor set: names, 64-bit numbers, enums, maps, presence, and damaged bytes."""

from __future__ import annotations

from base64 import b64encode
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from engine.encodings import protobuf_bounds
from engine.testing.memory_store import MemoryStore
from spark_ingest.errors import IngestRefused
from spark_ingest.plan import Recipe
from tests.spark_ingest.jobs import run_job, table_rows
from tests.spark_ingest.payload.test_text import converter, one
from tests.spark_ingest.tiered import TieredLog, row

pytest.importorskip("google.protobuf")

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2

FIELD = descriptor_pb2.FieldDescriptorProto


def descriptor_set() -> descriptor_pb2.FileDescriptorSet:
    """Returns message shop.Order: id, status, note (optional), tags, counts (map), parent (itself), at."""
    found = descriptor_pb2.FileDescriptorSet()
    timestamp_pb2.DESCRIPTOR.CopyToProto(found.file.add())
    file = found.file.add(name="shop.proto", package="shop", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    kind = file.enum_type.add(name="Status")
    kind.value.add(name="NEW", number=0)
    kind.value.add(name="PAID", number=1)
    order = file.message_type.add(name="Order")
    entry = order.nested_type.add(name="CountsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=FIELD.TYPE_STRING, label=FIELD.LABEL_OPTIONAL)
    entry.field.add(name="value", number=2, type=FIELD.TYPE_INT64, label=FIELD.LABEL_OPTIONAL)
    single, many = FIELD.LABEL_OPTIONAL, FIELD.LABEL_REPEATED
    order.field.add(name="id", number=1, type=FIELD.TYPE_INT64, label=single)
    order.field.add(name="status", number=2, type=FIELD.TYPE_ENUM, type_name=".shop.Status", label=single)
    order.oneof_decl.add(name="_note")
    order.field.add(name="note", number=3, type=FIELD.TYPE_STRING, label=single, proto3_optional=True, oneof_index=0)
    order.field.add(name="tags", number=4, type=FIELD.TYPE_BYTES, label=many)
    order.field.add(name="counts", number=5, type=FIELD.TYPE_MESSAGE, type_name=".shop.Order.CountsEntry", label=many)
    order.field.add(name="parent", number=6, type=FIELD.TYPE_MESSAGE, type_name=".shop.Order", label=single)
    order.field.add(name="at", number=7, type=FIELD.TYPE_MESSAGE, type_name=".google.protobuf.Timestamp", label=single)
    return found


def order_class() -> Any:
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_set().file:
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))


OPTIONS = {"descriptor_set": b64encode(descriptor_set().SerializeToString()).decode(), "message": "shop.Order"}


def test_members_have_the_names_and_numbers_of_the_message() -> None:
    order = order_class()(id=2**62, status=1, tags=[b"\x00"], counts={"a": 1})
    order.parent.id = 7
    order.at.FromJsonString("2026-01-02T03:04:05Z")
    inner = {"id": 7, "status": "NEW", "tags": [], "counts": {}}
    assert one(converter("protobuf", **OPTIONS), order.SerializeToString()) == {
        "id": 2**62,
        "status": "PAID",
        "tags": ["AA=="],
        "counts": {"a": 1},
        "parent": inner,
        "at": "2026-01-02T03:04:05Z",
    }
    assert one(converter("protobuf", **OPTIONS), order_class()(note="", status=9).SerializeToString()) == {
        "id": 0,
        "status": 9,
        "tags": [],
        "counts": {},
        "note": "",
    }


@pytest.mark.parametrize("header", [b"\0\0\0\0\x07\0", b"\0\0\0\0\x07\x02\0", b"\0\0\0\0\x07\x04\x02\x06"])
def test_the_header_of_a_registry_is_removed(header: bytes) -> None:
    framed = converter("protobuf", framing="registry", **OPTIONS)
    assert one(framed, header + order_class()(id=5).SerializeToString())["id"] == 5


@pytest.mark.parametrize("value", [b"", b"\0\0\0", b"\0\0\0\0\x07\xff\xff\xff\xff\x7f", b"\x01\0\0\0\x07\0"])
def test_a_value_without_such_a_header_has_no_row(value: bytes) -> None:
    assert one(converter("protobuf", framing="registry", **OPTIONS), value) == "not_protobuf"


def test_messages_beyond_the_memory_of_a_value_are_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two bytes may be a message within the message. Long texts do not count more than they have."""
    monkeypatch.setattr(protobuf_bounds, "VALUE_BYTES_MAX", 1 << 16)
    assert one(converter("protobuf", **OPTIONS), b"\x2a\x00" * 300) == "too_large"
    note = order_class()(id=1, note="x" * 2000).SerializeToString()
    assert one(converter("protobuf", **OPTIONS), note)["note"] == "x" * 2000


def test_damaged_and_deeply_nested_bytes_have_no_row() -> None:
    nested = order_class()(id=1)
    data = nested.SerializeToString()
    for _ in range(300):
        data = b"\x32" + _varint(len(data)) + data
    decoder = converter("protobuf", **OPTIONS)
    assert [one(decoder, value) for value in (b"\x08", b"\xff\xff", data)] == ["not_protobuf"] * 3


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


@pytest.mark.parametrize(
    "options", [OPTIONS | {"message": "shop.Absent"}, OPTIONS | {"descriptor_set": b64encode(b"\xff").decode()}]
)
def test_a_descriptor_set_without_the_message_is_refused(options: dict[str, str]) -> None:
    with pytest.raises(IngestRefused, match="payload protobuf: the descriptor set"):
        converter("protobuf", **options)


def test_a_descriptor_declares_the_columns_also_of_absent_fields() -> None:
    """A uint64 may be larger than a bigint. A time with nanoseconds stays in `_extra`."""
    found = descriptor_set()
    order = found.file[1].message_type[0]
    order.field.add(name="hash", number=8, type=FIELD.TYPE_UINT64, label=FIELD.LABEL_OPTIONAL)
    order.field.add(name="raw", number=9, type=FIELD.TYPE_BYTES, label=FIELD.LABEL_OPTIONAL)
    pool = descriptor_pool.DescriptorPool()
    for file in found.file:
        pool.Add(file)
    kind = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))
    log, output = TieredLog(MemoryStore()), MemoryStore()
    options = {"descriptor_set": b64encode(found.SerializeToString()).decode(), "message": "shop.Order"}
    for at in (None, "2026-01-02T03:04:05.678901Z", "2026-01-02T03:04:05.678901234Z"):
        order = kind(id=1, hash=2**64 - 1, tags=[b"a"], raw=b"abcd")
        if at is not None:
            order.at.FromJsonString(at)
        log.add(0, [row(order.SerializeToString())])
        run_job(log.store, output, recipe=Recipe("protobuf", decoder=options))
    rows = table_rows(output)
    assert [(one["hash"], one["tags"], one["raw"], one["note"]) for one in rows] == [
        (2**64 - 1, [b"a"], b"abcd", None)
    ] * 3
    assert [one["at"] for one in rows] == [None, datetime(2026, 1, 2, 3, 4, 5, 678901, UTC), None]
    assert msgspec.json.decode(rows[2]["_extra"])["at"] == "2026-01-02T03:04:05.678901234Z"
