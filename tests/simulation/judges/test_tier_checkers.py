"""The judges of the object store find each anomaly in an otherwise good store, and nothing in the good one."""

from __future__ import annotations

from dataclasses import replace

import pytest
from crc32c import crc32c

from engine.tiering.manifest.manifest import ManifestEntry, append, first_manifest, successor
from tests.simulation.judges.checkers import FinalLog
from tests.simulation.judges.test_checkers import batches
from tests.simulation.judges.tier_checkers import FinalTier, check_tier, left_behind

PREFIX = "sim/t/id/0/"


def entry(offset: int, data: bytes) -> ManifestEntry:
    key = f"{PREFIX}{offset}.log"
    return ManifestEntry(
        offset, offset + 1, ((1, offset),), 1, 1, len(data), crc32c(data), 1, key, f"{PREFIX}{offset}.aux"
    )


def good() -> tuple[FinalTier, FinalLog]:
    stored = batches()[:2]
    roots = [first_manifest(PREFIX, 1, "w", 0)]
    objects = {}
    for offset, data in enumerate(stored):
        roots.append(append(successor(roots[-1], 1, "w"), entry(offset, data)))
        objects |= {f"{PREFIX}{offset}.log": data, f"{PREFIX}{offset}.aux": b"aux"}
    leader = FinalLog("t", 1, 0, 3, 2, batches()[2:], {})
    return FinalTier("t", roots, roots[-1], objects, list(stored)), leader


def problems(tier: FinalTier, leader: FinalLog) -> list[str]:
    return check_tier(tier, leader, 0, is_one_history=True) + left_behind(tier)


def test_a_good_store_is_good():
    assert problems(*good()) == []


def plant_missing(tier, leader):
    del tier.objects[f"{PREFIX}1.log"]


def plant_no_aux(tier, leader):
    del tier.objects[f"{PREFIX}1.aux"]


def plant_changed(tier, leader):
    tier.objects[f"{PREFIX}1.log"] = tier.objects[f"{PREFIX}1.log"][:-1] + b"?"


def plant_other_offsets(tier, leader):
    data = tier.objects[f"{PREFIX}0.log"]
    tier.objects[f"{PREFIX}1.log"] = data
    changed = replace(tier.newest.entries[1], size_bytes=len(data), crc32c=crc32c(data))
    tier.newest = replace(tier.newest, entries=(tier.newest.entries[0], changed))


def plant_zombie(tier, leader):
    tier.roots[1:1] = [replace(tier.roots[0], generation=2, leader_epoch=5)]
    tier.roots[2:] = [replace(root, generation=root.generation + 1) for root in tier.roots[2:]]


def plant_second_of_a_generation(tier, leader):
    tier.roots.append(tier.roots[-1])


def plant_end_went_back(tier, leader):
    tier.roots.append(replace(tier.roots[-1], generation=4, entries=tier.roots[-1].entries[:1]))


def plant_gap(tier, leader):
    leader.local_log_start = 3


def plant_other_record(tier, leader):
    tier.batches[1] = tier.batches[1][:-1] + b"?"
    leader.batches.insert(0, batches()[1])


def plant_orphan(tier, leader):
    tier.objects[f"{PREFIX}7.log"] = b"nobody's"


@pytest.mark.parametrize(
    ("plant", "says"),
    [
        (plant_missing, "C13 missing"),
        (plant_no_aux, "C13 missing"),
        (plant_changed, "C13 changed"),
        (plant_other_offsets, "C13 offsets"),
        (plant_zombie, "C13 not fenced"),
        (plant_second_of_a_generation, "C13 chain"),
        (plant_end_went_back, "C13 end"),
        (plant_gap, "C13 gap"),
        (plant_other_record, "C13 differs"),
        (plant_orphan, "C13 orphan"),
    ],
    ids=lambda value: value.__name__.removeprefix("plant_") if callable(value) else "",
)
def test_a_planted_anomaly_is_found(plant, says):
    tier, leader = good()
    plant(tier, leader)
    assert any(says in problem for problem in problems(tier, leader)), problems(tier, leader)
