"""No value stops a job: each record becomes a row or a dead letter, and keeps all its members."""

from __future__ import annotations

import json

import msgspec
import pytest

from engine.testing.memory_store import MemoryStore
from spark_ingest.errors import IngestRefused
from spark_ingest.protocol.history import History
from spark_ingest.types.json_types import COLUMNS_MAX, MEMBERS_MAX
from tests.scale.count import SCALE
from tests.spark_ingest.hostile_json import NOT_JSON, hostile_values
from tests.spark_ingest.jobs import dead_letters, head_of, run_job, table_rows
from tests.spark_ingest.tiered import TieredLog, row


def log_of(*values: bytes) -> TieredLog:
    log = TieredLog(MemoryStore())
    log.add(0, [row(value, at) for at, value in enumerate(values)])
    return log


def ingest(log: TieredLog, output: MemoryStore) -> None:
    run_job(log.store, output, bad_percent_max=100, task_bytes=1 << 20)


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(b'{"id":1,"price":1e400}', id="a number beyond doubles"),
        pytest.param(b'{"id":1,"n":%s}' % (b"1" * 5000), id="an integer of 5,000 digits"),
        pytest.param(rb'{"id":1,"say \"hi\"":1}', id="a quote in a name"),
        pytest.param(rb'{"id":1,"a\\b":1}', id="a backslash in a name"),
        pytest.param(rb'{"id":1,"a\u0000b\n":1}', id="control characters in a name"),
        pytest.param(rb'{"id":1,"inner":{"a\"b":1e400,"c":2}}', id="the same further in"),
    ],
)
def test_a_legal_value_makes_a_row_in_the_run_that_meets_it_and_in_the_next(value: bytes) -> None:
    log, output = log_of(b'{"id":0}', value), MemoryStore()
    ingest(log, output)
    log.add(0, [row(value, 2), row(b'{"id":3,"price":3.5}', 3)])
    ingest(log, output)
    rows = table_rows(output)
    assert [one["id"] for one in rows] == [0, 1, 1, 3]
    assert dead_letters(output) == []
    assert names_of(rows[1]) == names_of(rows[2]) == set(members(value))


def test_a_number_beyond_doubles_does_not_change_the_type_of_its_column() -> None:
    log, output = log_of(b'{"price":1e400}', b'{"price":1.5}'), MemoryStore()
    ingest(log, output)
    assert [one["price"] for one in table_rows(output)] == [None, 1.5]


def test_a_name_that_no_column_can_have_is_not_kept_in_commits() -> None:
    """A commit of an older release may hold one; the next run omits it."""
    log, output = log_of(b'{"id":0}'), MemoryStore()
    ingest(log, output)
    history = History(output, "default")
    head = history.head()
    assert head is not None
    output.objects[head_key(output)] = msgspec.json.encode(
        msgspec.structs.replace(head, seen={"flights": [['say "hi"', "bigint"], ["name", "string"]]})
    )
    log.add(0, [row(rb'{"id":1,"say \"hi\"":7,"name":"x"}', 1)])
    ingest(log, output)
    last = History(output, "default").head()
    assert last is not None
    assert 'say "hi"' not in msgspec.json.encode([last.seen, last.schemas]).decode().replace('\\"', '"')
    assert [(one["id"], one.get("name")) for one in table_rows(output)] == [(0, None), (1, "x")]


def test_names_without_end_do_not_grow_plans_and_commits() -> None:
    log, output = log_of(b'{"id":0}'), MemoryStore()
    for run in range(2):
        first = run * 2500
        values = [b'{"id":%d,"k%d":1,"o":{"x%d":1}}' % (at, at, at) for at in range(first, first + 2500)]
        log.add(0, [row(value, first + at) for at, value in enumerate(values)])
        ingest(log, output)
    head = head_of(output)
    assert len(head.schemas["flights"].members) <= MEMBERS_MAX + COLUMNS_MAX
    assert len(msgspec.json.encode(head)) < 200_000
    assert len(table_rows(output)) == 5001


def head_key(output: MemoryStore) -> str:
    [key] = [key for key in output.objects if "commits" in key]
    return key


def test_hostile_values_are_all_accounted_for() -> None:
    """Several runs, so that members seen in one become columns of the next."""
    values = hostile_values(SCALE, seed=SCALE)
    log, output = TieredLog(MemoryStore()), MemoryStore()
    step = max(1, len(values) // 5)
    for begin in range(0, len(values), step):
        log.add(0, [row(value, begin + at) for at, value in enumerate(values[begin : begin + step])])
        ingest(log, output)
    rows, dead = table_rows(output), dead_letters(output)
    assert sorted([one["_offset"] for one in rows] + [one["_offset"] for one in dead]) == list(range(len(values)))
    assert {values[one["_offset"]] for one in dead} <= {one for one in values if not is_object(one)} | set(NOT_JSON)
    for one in rows:
        if not is_object(values[one["_offset"]]):
            continue  # nested too deeply for this test's parser
        assert names_of(one) == {name for name, text in members(values[one["_offset"]]).items() if text is not None}


def test_an_event_time_that_cannot_be_looked_for_is_refused() -> None:
    from spark_ingest.config.choosing import check_event_time

    check_event_time("meta.ts")
    check_event_time(None)
    with pytest.raises(IngestRefused, match="names the member"):
        check_event_time('/say "hi"')


def is_object(value: bytes) -> bool:
    try:
        return bool(members(value)) or value == b"{}"
    except (ValueError, RecursionError):
        return False


def members(value: bytes) -> dict[str, object]:
    """Return the members with their numbers as text, since some fit no type."""
    found = json.loads(value.decode(), parse_int=str, parse_float=str, parse_constant=_no_constant)
    return found if isinstance(found, dict) else {}


def _no_constant(name: str) -> object:
    raise ValueError(name)


def names_of(row_: dict[str, object]) -> set[str]:
    """Return the members that a row holds, in columns or in `_extra`."""
    extra = json.loads(str(row_["_extra"]), parse_int=str) if row_["_extra"] is not None else {}
    own = {name for name, value in row_.items() if value is not None and not is_standard(name)}
    return own | {name for name, value in extra.items() if value is not None}


def is_standard(name: str) -> bool:
    return name.startswith("_") and name != "_EXTRA"
