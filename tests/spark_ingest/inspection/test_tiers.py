"""`penstock ingest audit`: seven records that are dropped at any tier are named with the tier and the ten minutes."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import orjson
import pytest

from engine.format.paths import store_accepted_key
from engine.testing.memory_store import MemoryStore
from engine.tiering.manifest.accepted_object import CountedTopic, encode_accepted
from engine.tiering.store.store import open_store
from penstock.producer.statistics import PERIOD_MS, Tally
from spark_ingest.inspection.tiers import TIERS, TierCounts, compare_tiers
from spark_ingest.protocol.commit import Commit
from spark_ingest.protocol.history import History
from spark_ingest.protocol.results import TimeCounts
from tests.spark_ingest.jobs import invoke, run_job
from tests.spark_ingest.tiered import START_MS, TieredLog, row

PERIOD = START_MS // PERIOD_MS
SENT = {PERIOD: 10, PERIOD + 1: 10, PERIOD + 2: 10}
LOST = PERIOD + 1


def rows(counts: dict[int, int]) -> list[Any]:
    return [row(b"{}", timestamp=period * PERIOD_MS + at) for period, count in counts.items() for at in range(count)]


def less(dropped: int) -> dict[int, int]:
    return SENT | {LOST: SENT[LOST] - dropped}


def run(source: Any, output: Any, stored: dict[int, int]) -> Commit:
    """Ingests a log of these records, each in a batch of its own."""
    log = TieredLog(source)
    for one in rows(stored):
        log.add(0, [one])
    run_job(source, output)
    [commit] = History(output, "default").commits()
    return commit


def accept(source: Any, commit: Commit, counts: dict[int, int]) -> None:
    topic = CountedTopic("flights", commit.positions["flights"].topic_id)
    source.put(store_accepted_key(commit.cluster, PERIOD // 6, "ab"), encode_accepted({topic: counts}))


def in_tables(commit: Commit, counts: dict[int, int]) -> Commit:
    counted = commit.audit["flights"]
    return msgspec.structs.replace(commit, audit={"flights": TimeCounts(counted.records, counted.events, counts)})


def compared(sent: dict[int, int], at: dict[str, dict[int, int]], **more: Any) -> TierCounts:
    """Compares what clients sent with tiers that have all of it, or what `at` has for them."""
    source, output = MemoryStore(), MemoryStore()
    commit = run(source, output, at.get("store", sent))
    accept(source, commit, at.get("gateway", sent))
    commit = in_tables(commit, at.get("tables", at.get("store", sent)))
    [found] = compare_tiers(source, [commit], {"flights": sent}, **more).values()
    return found


@pytest.mark.parametrize("tier", TIERS[1:])
def test_seven_records_that_a_tier_drops_are_named(tier: str) -> None:
    behind = TIERS[TIERS.index(tier) :]
    found = compared(SENT, {name: less(7) for name in behind})
    [loss] = found.losses
    assert (loss.topic, loss.tier, loss.from_ms, loss.records) == ("flights", tier, LOST * PERIOD_MS, 7)
    assert loss.counts == tuple(3 if name in behind else 10 for name in TIERS)
    assert found.totals == {name: 23 if name in behind else 30 for name in TIERS}


def test_nothing_is_lost_where_a_later_tier_has_it() -> None:
    """A node that was killed has lost counts; retention takes records from the store that tables have."""
    assert compared(SENT, {"gateway": less(7)}).losses == []
    source, output = MemoryStore(), MemoryStore()
    commit = run(source, output, SENT)
    accept(source, commit, SENT)
    TieredLog(source).raise_log_start(0, 17)
    [found] = compare_tiers(source, [commit], {"flights": SENT}).values()
    assert (found.totals["store"], found.losses) == (13, [])


def test_a_batch_on_the_border_of_two_periods_is_not_lost() -> None:
    moved = {**SENT, PERIOD: 8, PERIOD + 1: 12}
    assert compared(SENT, {"gateway": moved, "store": moved}).losses == []
    [loss] = compared(SENT, {"gateway": {**moved, PERIOD: 1}, "store": {**moved, PERIOD: 1}}).losses
    assert (loss.tier, loss.records) == ("gateway", 7)


def test_periods_that_are_not_settled_are_to_come() -> None:
    found = compared(SENT, {"tables": less(7)}, settled_ms=1 << 60)
    assert (found.losses, found.pending) == ([], 30)


def test_the_command_names_each_loss_and_ends_with_1(tmp_path: Path) -> None:
    source, output = open_store(f"file://{tmp_path}/store"), open_store(f"file://{tmp_path}/out")
    commit = run(source, output, less(7))
    accept(source, commit, SENT)
    tally = Tally()
    for period, count in SENT.items():
        tally.on_acknowledged(count, 0.1, "flights", period * PERIOD_MS + 5)
    tally.on_acknowledged(2, 0.1, "flights", LOST * PERIOD_MS)
    lines = tmp_path / "counts.ndjson"
    lines.write_bytes(b"".join(orjson.dumps(asdict(count)) + b"\n" for count in tally.take_accepted()))
    assert tally.take_accepted() == []
    options = ("--store", f"file://{tmp_path}/store", "--output", f"file://{tmp_path}/out")
    ran = invoke("audit", *options, "--clients", str(lines))
    assert ran.exit_code == 1
    at = datetime.fromtimestamp(LOST * PERIOD_MS / 1000, UTC).isoformat()
    assert ran.output.count(f"lost: flights {at}: ") == 2
    assert "2 did not reach the tier gateway" in ran.output
    assert "7 did not reach the tier store" in ran.output
    document = orjson.loads(invoke("audit", *options, "--json").stdout)
    assert [(loss["tier"], loss["records"]) for loss in document["losses"]] == [("store", 7)]
    lines.write_text("{}\n")
    assert "line 1 is not" in invoke("audit", *options, "--clients", str(lines)).output


def test_counts_of_a_client_are_bounded() -> None:
    tally = Tally()
    for number in range(20_000):
        tally.on_acknowledged(1, 0.1, "t", number * PERIOD_MS)
    taken = tally.take_accepted()
    assert len(taken) == 10_000
    assert Counter(count.records for count in taken) == {1: 10_000}
