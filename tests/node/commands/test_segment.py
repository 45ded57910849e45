"""`penstock segment dump`: its output for a sound file and for a damaged one."""

from pathlib import Path

import orjson
import pytest

from engine.format.batch import Codec, Row, encode, stamp
from engine.format.control_batch import encode_fence


@pytest.fixture
def segment(tmp_path) -> Path:
    """Write three batches: two plain records, two with zstd, one of them a tombstone, one of bytes."""
    batches = [
        (encode([Row(1_000, b"k", b'{"n":1}', [("h", b"v")]), Row(2_000, None, b'{"n":2}', [])]), 0, 0),
        (encode([Row(3_000, b"k", None, []), Row(4_000, b"l", b'"x"', [])], Codec.ZSTD), 2, 0),
        (encode([Row(5_000, None, b"\xff\x00", [])]), 4, 1),
    ]
    path = tmp_path / "00000000000000000000.log"
    for batch, base_offset, epoch in batches:
        stamp(batch, base_offset, epoch)
    path.write_bytes(b"".join(batch for batch, _, _ in batches))
    return path


def test_batches_are_lines_that_fit_80_columns(run, segment):
    ran = run("segment", "dump", segment)
    assert ran.code == 0
    lines = ran.out.splitlines()[1:]  # the first holds the path
    assert max(map(len, lines)) <= 80
    rows = [line.split() for line in lines[3:6]]
    assert [(row[1], row[2], row[3], row[4], row[-1]) for row in rows] == [
        ("0", "2", "0", "none", "ok"),
        ("2", "2", "0", "zstd", "ok"),
        ("4", "1", "1", "none", "ok"),
    ]
    assert lines[-1] == "3 batches, 5 records, all sound"


def test_records_are_shown_below_their_batch(run, segment):
    shown = run("segment", "dump", segment, "--records").out
    assert '    0  1970-01-01 00:00:01.000  k  {"n":1}\n    1  1970-01-01 00:00:02.000  {"n":2}\n' in shown
    assert "    2  1970-01-01 00:00:03.000  k  (tombstone)\n" in shown
    assert "    4  1970-01-01 00:00:05.000  \\\\xff\\x00\n" in shown


def test_json_is_an_object_a_line(run, segment):
    objects = [orjson.loads(line) for line in run("segment", "dump", segment, "--records", "--json").out.splitlines()]
    assert [one["kind"] for one in objects] == [
        "batch",
        *["record"] * 2,
        "batch",
        *["record"] * 2,
        "batch",
        "record",
        "end",
    ]
    assert objects[0]["base_offset"] == 0
    assert objects[0]["crc_ok"] is True
    assert objects[1] == {
        "kind": "record", "offset": 0, "timestamp": 1_000, "key": "k", "value": '{"n":1}',
        "headers": [{"name": "h", "value": "v"}],
    }  # fmt: skip
    assert objects[7]["value_base64"] == "/wA="
    assert objects[-1] == {"kind": "end", "batches": 3, "records": 5, "damage": []}


def test_a_changed_byte_is_a_bad_crc(run, segment):
    data = bytearray(segment.read_bytes())
    data[65] ^= 1
    segment.write_bytes(data)
    ran = run("segment", "dump", segment)
    assert ran.code == 1
    assert "BAD" in ran.out
    assert ran.err == f"penstock: {segment}: the batch at byte 0 fails its CRC\n"


def test_a_torn_tail_is_reported_beside_other_damage(run, segment):
    data = bytearray(segment.read_bytes())[:-3]
    data[65] ^= 1
    segment.write_bytes(data)
    ran = run("segment", "dump", segment, "--json")
    assert ran.code == 1
    *_, end = (orjson.loads(line) for line in ran.out.splitlines())
    assert end["batches"] == 2
    assert end["damage"][0] == "the batch at byte 0 fails its CRC"
    assert end["damage"][1].endswith("bytes are an incomplete batch")


def test_records_that_cannot_be_decoded_are_reported(run, segment):
    data = bytearray(segment.read_bytes())
    data[61] = 0x7F  # the first record's length
    segment.write_bytes(data)
    ran = run("segment", "dump", segment, "--records")
    assert ran.code == 1
    assert "2 faults" in ran.out


def test_another_file_is_no_segment(run, tmp_path):
    path = tmp_path / "text"
    path.write_text("not a segment, but long enough to hold a header of sixty-one bytes\n")
    ran = run("segment", "dump", path)
    assert ran.code == 1
    assert "no batch header at byte 0" in ran.err


def test_an_empty_file_is_sound(run, tmp_path):
    (tmp_path / "empty").write_bytes(b"")
    ran = run("segment", "dump", tmp_path / "empty")
    assert ran.out.endswith("0 batches, 0 records, all sound\n")
    assert ran.code == 0


def test_control_batches_are_shown_and_their_records_not_counted(run, tmp_path):
    batches = [encode_fence("writer-1", 1_000), encode([Row(2_000, None, b"1", [])]), encode_fence("", 3_000)]
    for offset, batch in enumerate(batches):
        stamp(batch, offset, 0)
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(b"".join(batches))
    ran = run("segment", "dump", "--records", path)
    assert ran.code == 0
    assert "(fencing token writer-1)" in ran.out
    assert "(no fencing token)" in ran.out
    assert ran.out.splitlines()[-1] == "3 batches, 1 record, all sound"
    lines = [orjson.loads(line) for line in run("segment", "dump", "--records", "--json", path).out.splitlines()]
    shown = [(line["offset"], line["type"], line["value"]) for line in lines if line["kind"] == "control"]
    assert shown == [(0, 1000, "writer-1"), (2, 1000, "")]
