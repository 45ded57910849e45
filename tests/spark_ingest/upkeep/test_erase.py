"""`penstock ingest erase` drops the rows of a key, may be killed at any step, and says what remains."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from engine.testing.memory_store import MemoryStore
from engine.testing.store_proxy import StoreProxy
from engine.tiering.store.store import ObjectStore, open_store
from spark_ingest.errors import IngestRefused
from spark_ingest.output.rewrites import Rewrites
from spark_ingest.protocol.history import History
from spark_ingest.upkeep.erase import Erased, erase
from tests.spark_ingest.jobs import assert_sound, dead_letters, invoke, listed_files, new_id, run_job, table_rows
from tests.spark_ingest.killing_store import DyingStore, Killed
from tests.spark_ingest.tiered import TieredLog, json_rows, row
from tests.spark_ingest.upkeep.compacting import compacted


def filled() -> tuple[MemoryStore, MemoryStore, TieredLog]:
    """Return a store, the output of two runs with five keys, and the log. A dead letter of `k1` is in the first run."""
    source, output = MemoryStore(), MemoryStore()
    log = TieredLog(source)
    log.add(0, [*json_rows(10), row(b"no JSON", 3, key=b"k1")])
    run_job(source, output, bad_percent_max=100)
    log.add(0, [row(b'{"id":1}', at, key=b"only") for at in range(3)])
    run_job(source, output)
    return source, output, log


def erased(output: ObjectStore, key: bytes = b"k1", **options: Any) -> Erased:
    topics = options.pop("topics", re.compile(".*"))
    return erase(output, "default", key, topics, new_id=new_id, **options)


def keys_of(output: ObjectStore) -> set[bytes]:
    return {one["_key"] for one in (*table_rows(output), *dead_letters(output))}


def test_the_rows_and_dead_letters_of_a_key_go_and_all_others_stay() -> None:
    _, output, _ = filled()
    others = [one for one in table_rows(output) if one["_key"] != b"k1"]
    done = erased(output)
    assert (done.found, done.done.dropped, done.done.removed) == ({"flights": 3}, {"flights": 3}, 2)
    assert table_rows(output) == others
    assert b"k1" not in keys_of(output)
    assert not any(b"k1" in data for data in output.objects.values()), "no plan names the key"
    assert assert_sound(output).dropped == {"dead_letters/flights/": 1, "tables/flights/": 2}
    assert erased(output).found == {}


def test_a_file_without_other_rows_has_no_successor() -> None:
    source, output, log = filled()
    assert erased(output, b"only").done.files == 0
    assert len(listed_files(output)) == 1
    assert_sound(output)
    log.add(0, [row(b'{"id":1}', 90, key=b"only")])
    assert run_job(source, output).rows == 1, "the position is the same, and later records come"
    assert_sound(output)


def test_files_that_wait_for_their_removal_go_too() -> None:
    _, output, _ = filled()
    assert compacted(output, grace_ms=10**9).waiting == 2
    assert erased(output).done.removed == 4
    assert b"k1" not in keys_of(output)
    assert_sound(output)


@pytest.mark.parametrize("is_after", [False, True])
def test_whatever_operation_it_ends_at_the_next_one_finishes(is_after: bool) -> None:
    _, output, _ = filled()
    objects = dict(output.objects)
    counting = DyingStore(output, 0, is_after=False)
    erased(counting)
    done = listed_files(output)
    for at in range(1, counting.operations + 1):
        output.objects = dict(objects)
        with pytest.raises(Killed):
            erased(DyingStore(output, at, is_after=is_after))
        assert_sound(output)
        erased(output)
        assert listed_files(output) == done, at
        assert b"k1" not in keys_of(output), at


def test_what_remains_is_named() -> None:
    source, output, log = filled()
    log.add(0, json_rows(2))

    def killed(_: Any) -> Any:
        raise Killed("in the tasks")

    with pytest.raises(Killed):
        run_job(source, output, execute=killed)
    [plan, store] = erased(output, source=source).remains
    assert plan.startswith("plan 3 is not committed")
    assert store.startswith("flights partition 0: the store has offsets 0 to 15 until retention removes them")
    assert erased(output).remains[-1] == "the store of segments was not looked at: name it with --store"


def test_another_topic_and_a_dry_run_change_nothing() -> None:
    _, output, _ = filled()
    before = dict(output.objects)
    assert erased(output, is_dry=True).found == {"flights": 3}
    assert erased(output, topics=re.compile("rides")).found == {}
    assert output.objects == before
    History(output, "default").mark_published()
    with pytest.raises(IngestRefused, match="Iceberg tables have the files of job default"):
        erased(output)


def test_a_compaction_finishes_an_erasure_that_was_killed() -> None:
    _, output, _ = filled()

    class Planned(StoreProxy):
        def put(self, key: str, data: bytes, *, if_absent: bool = False) -> None:
            super().put(key, data, if_absent=if_absent)
            raise Killed(key)

    with pytest.raises(Killed):
        erased(Planned(output))
    assert Rewrites(output, "default").plan(1)
    compacted(output)
    assert b"k1" not in keys_of(output)
    assert_sound(output)


def test_the_command_names_rows_and_what_remains(tmp_path: Path) -> None:
    source, output = open_store((tmp_path / "store").as_uri()), open_store((tmp_path / "lake").as_uri())
    TieredLog(source).add(0, json_rows(10))
    run_job(source, output)
    given = ["erase", "--output", output.url, "--key", "k1"]
    assert json.loads(invoke(*given, "--dry-run", "--json").stdout)["rows"] == {"flights": 2}
    done = invoke(*given, "--store", source.url)
    assert done.exit_code == 0
    assert "flights: 2 rows dropped." in done.output
    assert "not erased: flights partition 0: the store has offsets 0 to 9" in done.output
    assert "No row has this key." in invoke(*given).output


@pytest.mark.parametrize("damage", [b"", b"PAR1PAR1", b"no Parquet", None])
def test_a_file_that_cannot_be_searched_is_named_and_the_others_are_erased(damage: bytes | None) -> None:
    _, output, _ = filled()
    [only] = [key for key in listed_files(output) if "-00000000000000000013+" in key]
    whole = output.objects[only]
    output.objects[only] = whole[:4] + b"\xff" * (len(whole) - 12) + whole[-8:] if damage is None else damage
    done = erased(output)
    assert f"{only} differs from the committed file" in done.done.left["tables/flights/dt=2013-11-21/hr=05/"]
    assert done.done.dropped == {"flights": 3}
