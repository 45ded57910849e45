"""The compiled codec reads a block as msgspec and Arrow do, or leaves it to them."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engine.testing.memory_store import MemoryStore
from spark_ingest.decode.compiled_rows import CompiledRows
from spark_ingest.decode.json_columns import payload_arrays
from spark_ingest.decode.json_rows import JsonRows
from spark_ingest.protocol.chunks import BLOCK_RECORDS
from spark_ingest.types.json_types import Members, evolve, infer
from tests.codecs import needs_compiled, plainly
from tests.spark_ingest.hostile_json import hostile_values
from tests.spark_ingest.jobs import another_output, listed_files, run_job
from tests.spark_ingest.json_values import OBJECTS
from tests.spark_ingest.tiered import TieredLog, row

pytestmark = needs_compiled

INNER: Members = [["city", "string"], ["lat", "double"], ["deeper", ["struct", [["ok", "boolean"], ["n", "bigint"]]]]]
MEMBERS: Members = [
    ["id", "bigint"],
    ["name", "string"],
    ["price", "double"],
    ["ok", "boolean"],
    ["nothing", "null"],
    ["where", ["struct", INNER]],
]
WHERE = b'{"city":"c","lat":1,"deeper":{"ok":false,"n":-3}}'
ROW = b'{"id":1,"name":"n","price":2.5,"ok":true,"nothing":null,"where":%s}' % WHERE


def by_twin(members: Members, values: list[bytes | None], *, keeps_others: bool) -> list[pa.Array] | None:
    """Return the arrays of msgspec's rows; None if a value does not fit."""
    rows = JsonRows(members, keeps_others=keeps_others).decode(values)
    return None if rows.leftovers or rows.bad else payload_arrays(members, rows.structs)


def is_same(members: Members, values: list[bytes | None], *, keeps_others: bool = True) -> bool:
    """Return whether the codec took the values. Fails if it took them otherwise than the twin."""
    found = CompiledRows(members, keeps_others=keeps_others).arrays(pa.array(values, pa.binary()))
    if found is None:
        return False
    wanted = by_twin(members, values, keeps_others=keeps_others)
    assert wanted is not None
    for one, other in zip(found, wanted, strict=True):
        one.validate(full=True)
        assert one.type == other.type
        assert one.null_count == other.null_count
        assert one.equals(other)
        assert str(one.to_pylist()) == str(other.to_pylist())  # -0.0 equals 0.0
    return True


@pytest.mark.parametrize(
    "values",
    [
        [ROW],
        [ROW, None, b"{}", ROW],
        [b"{}", b" { } ", b'\n{ "id" : 1 ,\t"ok":false }\r\n'],
        [b'{"ok":true,"id":9223372036854775807,"price":-1e5}', b'{"price":0.1,"id":-9223372036854775807}'],
        [b'{"where":null}', b'{"where":{}}', b'{"where":{"deeper":null}}', b'{"where":{"deeper":{}}}'],
        [b'{"name":"\\u00e9\\ud83d\\ude00\\n\\/\\""}', '{"name":"é😀"}'.encode(), b'{"name":""}', b'{"name":null}'],
        [None, None],
        [b'{"id":%d}' % at for at in range(20)],
    ],
)
def test_what_fits_is_taken(values: list[bytes | None]) -> None:
    assert is_same(MEMBERS, values)


@pytest.mark.parametrize(
    "value",
    [
        *(
            b"",
            b"null",
            b"[]",
            b"1",
            b'"x"',
            b"{",
            b"}",
            b'{"id"',
            b'{"id":',
            b'{"id":1',
            b'{"id":1,}',
            b"{,}",
            b'{"id"1}',
        ),
        *(b"{}}", b"{} {}", b"{}x", b'{"id":1 "ok":true}', b'{"other":1}', b'{"id":1,"id":2}', b'{"id":1,"id":null}'),
        *(b'{"id":1.0}', b'{"id":1e3}', b'{"id":"1"}', b'{"id":9223372036854775808}', b'{"id":-0}', b'{"id":01}'),
        *(
            b'{"id":-}',
            b'{"id":1-}',
            b'{"price":1e400}',
            b'{"price":-0.0}',
            b'{"price":1.}',
            b'{"price":.5}',
            b'{"price":1e}',
        ),
        *(
            b'{"price":NaN}',
            b'{"ok":1}',
            b'{"ok":tru}',
            b'{"ok":truex}',
            b'{"ok":nul}',
            b'{"nothing":1}',
            b'{"nothing":{}}',
        ),
        *(
            b'{"name":1}',
            b'{"name":"\xff"}',
            b'{"name":"\\ud800"}',
            b'{"name":"\x01"}',
            b'{"name":"\\x"}',
            b'{"name":"',
        ),
        *(
            b'{"where":[]}',
            b'{"where":{"x":1}}',
            b'{"where":{"city":1}}',
            b'{"where":{}',
            b'{"where":{"deeper":{"n":1}}',
        ),
        *(b'{"n\\u0061me":"x"}', b"{id:1}", b"\xef\xbb\xbf{}", b'{"price":' + b"1" * 100 + b"}"),
    ],
)
def test_what_is_unusual_is_left_to_the_twin(value: bytes) -> None:
    assert not is_same(MEMBERS, [ROW, value])


@pytest.mark.parametrize("kind", ["json", "decimal", ["array", "bigint"], ["struct", [["x", ["array", "string"]]]]])
def test_other_types_are_left_to_the_twin(kind: Any) -> None:
    assert CompiledRows([["id", "bigint"], ["x", kind]]).arrays(pa.array([b"{}"])) is None


OTHERS = b'"x":{"y":[1,{"z":null}],"a\\"b":"\\u00e9"},"t":-1.5e3,"e":[],"f":true'


@pytest.mark.parametrize(
    "value",
    [
        b"{%s}" % OTHERS,
        b'{%s,"id":1}' % OTHERS,
        b'{ "x" : [ 1 , 2 ] , "id" : 1 , "id2" : "\xc3\xa9" }',
        b'{"where":{%s,"city":"c","deeper":{%s}},"ok":true}' % (OTHERS, OTHERS),
        b'{"x":' + b"[" * 60 + b"]" * 60 + b',"name":"n"}',
    ],
)
def test_members_without_a_column_can_be_skipped(value: bytes) -> None:
    assert is_same(MEMBERS, [ROW, value, None], keeps_others=False)
    assert not is_same(MEMBERS, [ROW, value, None])


@pytest.mark.parametrize(
    "value",
    [
        *(b'{"n\\u0061me":"x"}', b'{"id":1,"x":}', b'{"x":1,}', b'{"x"}', b'{"x":1 "y":2}', b'{"x":[1}', b'{"x":01}'),
        *(b'{"x":"\xff"}', b'{"x":1,"id":1,"id":2}', b'{"id":"text","x":1}', b'{"x":' + b"[" * 99 + b"]" * 99 + b"}"),
    ],
)
def test_what_is_unusual_is_never_skipped(value: bytes) -> None:
    assert not is_same(MEMBERS, [ROW, value], keeps_others=False)


def test_narrow_numbers_are_read_if_they_fit() -> None:
    members: Members = [
        ["t", "tinyint"],
        ["s", "smallint"],
        ["i", "int"],
        ["f", "float"],
        ["o", ["struct", [["i", "int"]]]],
    ]
    fitting = b'{"t":-128,"s":32767,"i":-2147483648,"f":3.4028234663852886e38,"o":{"i":1}}'
    assert is_same(members, [fitting, None, b"{}", b'{"f":0.1,"i":null}', b'{"f":16777217}'])
    for value in (b'{"t":128}', b'{"s":-32769}', b'{"i":2147483648}', b'{"f":3.5e38}', b'{"o":{"i":2147483648}}'):
        assert not is_same(members, [fitting, value])


def test_a_part_of_an_array_is_read() -> None:
    values = pa.array([b'{"id":%d}' % at if at % 3 else None for at in range(100)], pa.binary())
    [found] = CompiledRows([["id", "bigint"]]).arrays(values[37:61]) or []
    assert found.to_pylist() == [at if at % 3 else None for at in range(37, 61)]
    assert CompiledRows([["id", "bigint"]]).arrays(values[:0]) is None


def test_structs_nested_too_deeply_are_left_to_the_twin() -> None:
    taken = []
    for depth in (14, 15, 16, 40):
        kind: Any = "bigint"
        for _ in range(depth):
            kind = ["struct", [["a", kind]]]
        taken.append(is_same([["a", kind]], [b'{"a":' * (depth + 1) + b"1" + b"}" * (depth + 1)]))
    assert taken == [True, True, False, False]


@given(st.lists(OBJECTS, min_size=1, max_size=6), st.booleans(), st.booleans())
def test_any_objects_are_read_as_the_twin_reads_them(objects: list[Any], is_ascii: bool, is_wide: bool) -> None:
    members: Members = []
    for one in objects:
        members = evolve(members, infer(one)[1])
    separators = (" ,\n", "\t: ") if is_wide else (",", ":")
    values = [json.dumps(one, ensure_ascii=is_ascii, separators=separators).encode() for one in objects]
    is_same(members, [*values])
    is_same(members[::2], [*values], keeps_others=False)


@given(st.binary(max_size=8), st.integers(0, len(ROW)), st.integers(0, 8))
@example(b"", 10, 0)
def test_a_damaged_value_is_read_as_the_twin_reads_it(more: bytes, at: int, removed: int) -> None:
    is_same(MEMBERS, [ROW, ROW[:at] + more + ROW[at + removed :], ROW])


@given(st.from_regex(r"-?(0|[1-9][0-9]{0,24})(\.[0-9]{1,24})?([eE][+-]?[0-9]{1,3})?", fullmatch=True))
@example("9007199254740993")
@example("123456789012345678")
@example("1.7976931348623157e308")
@example("4.9e-324")
@example("2.2250738585072011e-308")
@example("0.1e23")
@example("8.5e22")
def test_any_number_is_rounded_as_by_the_twin(number: str) -> None:
    for kind in ("double", "bigint"):
        is_same([["x", kind]], [b'{"x":%s}' % number.encode()])


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1))
def test_any_double_keeps_its_value(numbers: list[float]) -> None:
    values = pa.array([json.dumps({"x": number}).encode() for number in numbers])
    [found] = CompiledRows([["x", "double"]]).arrays(values) or [None]
    if found is not None:
        assert [one.hex() for one in found.to_pylist()] == [one.hex() for one in numbers]


def test_hostile_values_are_read_as_the_twin_reads_them() -> None:
    """A third of them fit the schema of the harmless ones."""
    members: Members = [["id", "bigint"], ["price", "double"], ["nested", "string"], ["a.b", "bigint"], ["", "double"]]
    values = hostile_values(2000, seed=7)
    taken = [is_same(members, [value]) for value in values]
    assert sum(taken) > 300
    assert sum(is_same(members[:2], [value], keeps_others=False) for value in values) >= sum(taken)
    fitting = [value for value, is_taken in zip(values, taken, strict=True) if is_taken]
    assert is_same(members, fitting)


def test_a_task_writes_the_same_bytes_without_the_compiled_codec() -> None:
    """Its second block has a value that does not fit."""
    log = TieredLog(MemoryStore(), batch_records=100)
    log.add(0, [row(ROW.replace(b'"id":1', b'"id":%d' % at), at) for at in range(BLOCK_RECORDS)])
    log.add(0, [row(b'{"id":"text"}'), *(row(None if at % 9 == 0 else ROW, at) for at in range(200))])
    outputs = another_output(), another_output()
    for output, run in zip(outputs, (run_job, partial(plainly, run_job)), strict=True):
        run(log.store, output, task_bytes=1 << 30)
    compiled, plain = ({key: output.objects[key] for key in listed_files(output)} for output in outputs)
    assert len(compiled) > 1
    assert compiled == plain
