"""Bytes that are not a message: refused with one error, before anything is reserved for what they announce."""

from __future__ import annotations

import random
import struct

import pytest

from gateway.kafka.codec.messages import Cursor, Malformed, Output, direction, read_message, write_message
from gateway.kafka.codec.schema import Versions, parse
from gateway.kafka.codec.tables import TABLES
from tests.cells import each_cell

REQUESTS = [(api, version) for api, table in TABLES.items() for version in range(table.first, table.last + 1)]


@each_cell(
    ("api", "version", "data"),
    [
        ("Metadata", 12, b"\xff\xff\xff\xff\x0f"),  # 2^32 - 2 topics
        ("Metadata", 1, struct.pack(">i", 2**31 - 1)),
        ("Produce", 8, struct.pack(">hhii", -1, 1, 1000, 2**31 - 1)),
        ("JoinGroup", 5, struct.pack(">h", -5)),
        ("FindCoordinator", 0, struct.pack(">h", 100) + b"short"),
        ("Heartbeat", 4, b"\x02g\x00\x00\x00\x01\x02m\x00\x01\x05\xff\xff\xff\xff\x0f"),  # a tag of 4 GB
        ("Metadata", 12, b"\xff\xff\xff\xff\xff\xff"),  # a number without an end
        ("Metadata", 1, struct.pack(">i", -2)),
        ("Heartbeat", 0, struct.pack(">h", 2) + b"\xff\xfe"),  # no UTF-8
        ("Heartbeat", 0, struct.pack(">h", -1)),  # null where none may be
    ],
)
def test_announced_sizes_are_not_believed(api: str, version: int, data: bytes) -> None:
    with pytest.raises(Malformed):
        read_message(api, version, memoryview(data))


def test_unknown_tagged_fields_are_skipped_and_known_ones_are_exact() -> None:
    heartbeat = b"\x02g\x00\x00\x00\x01\x02m\x00"
    found = read_message("Heartbeat", 4, memoryview(heartbeat + b"\x02\x05\x03abc\x60\x00"))
    assert (found.group_id, found.generation_id, found.member_id) == ("g", 1, "m")
    with pytest.raises(Malformed, match="follows"):
        read_message("Heartbeat", 4, memoryview(heartbeat + b"\x02\x05\x00\x05\x00"))
    fetch = direction("Fetch", is_request=True).types[""](cluster_id="c")
    out = Output()
    write_message("Fetch", 12, fetch, out, is_request=True)
    data = b"".join(out.finished())
    assert read_message("Fetch", 12, memoryview(data)).cluster_id == "c"
    longer = data.replace(b"\x00\x02\x02c", b"\x00\x03\x02c\x00")
    assert longer != data
    with pytest.raises(Malformed, match="cluster_id"):
        read_message("Fetch", 12, memoryview(longer))


@each_cell(("api", "version"), REQUESTS)
def test_any_bytes_are_a_message_or_refused(api: str, version: int) -> None:
    dice = random.Random(f"{api} {version}")
    out = Output()
    write_message(api, version, direction(api, is_request=True).types[""](), out, is_request=True)
    valid = b"".join(out.finished())
    for _ in range(60):
        data = bytearray(valid) + dice.randbytes(dice.randrange(40))
        for _ in range(dice.randrange(4)):
            if data:
                data[dice.randrange(len(data))] = dice.choice((0, 1, 2, 0x7F, 0x80, 0xFF))
        cut = memoryview(data)[: dice.randrange(len(data) + 1)]
        try:
            read_message(api, version, cut)
        except Malformed:
            continue


def test_a_cursor_ends_with_its_bytes() -> None:
    cursor = Cursor(memoryview(b"abc"))
    assert bytes(cursor.take(2)) == b"ab"
    with pytest.raises(Malformed, match="2 bytes are announced, 1 are left"):
        cursor.take(2)


@each_cell("text", ["a:i32]", "a[b:i32}", "a:i32 -"])
def test_a_text_that_is_no_table_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"closes nothing|closed by|not a field"):
        parse(text, Versions(0, 1))
