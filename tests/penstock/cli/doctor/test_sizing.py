"""What a node needs for a workload, by the costs that were measured."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cli.doctor.machine_checks import FAIL, OK, WARN
from penstock.cli.doctor.sizing import DAY_MS, FETCH, PRODUCE, SEGMENT_BYTES, Plan, Workload, check_plan, parse_workload
from penstock.cli.doctor.sizing import plan_node as plan_of
from tests.penstock.cli.doctor.test_doctor import FIT

WORKLOADS = st.builds(
    Workload,
    records_per_s=st.floats(1, 1e6),
    record_bytes=st.floats(1, 1e5),
    request_records=st.floats(1, 1e4),
    readers=st.integers(0, 20),
    reads=st.sampled_from(sorted(FETCH)),
    retention_ms=st.floats(0, 100 * DAY_MS),
    times_smaller=st.floats(1, 20),
    partitions=st.integers(1, 1000),
    replicas=st.just(3),
    nodes=st.integers(3, 9),
)


def levels(plan: Plan, **machine: int) -> dict[str, str]:
    return {finding.name: finding.level for finding in check_plan(plan, replace(FIT, **machine))}


def test_a_workload_by_hand():
    plan = plan_of(parse_workload(["records_per_s=1000", "record_bytes=939", "request_records=1", "retention=1d"]))
    # 939 + 10 + 61 bytes for a record alone in its batch
    assert plan.disk_bytes_per_s == pytest.approx(1_010_000)
    assert plan.disk_bytes == pytest.approx((1_010_000 * 86_400 + 12 * SEGMENT_BYTES) / 0.8)
    assert plan.network_in_bytes_per_s == pytest.approx(939_000)
    assert plan.network_out_bytes_per_s == pytest.approx(939_000 + 1_010_000)  # a reader, and the store
    each_us = PRODUCE.request_us + PRODUCE.record_us + 939 * PRODUCE.byte_ns / 1000
    read_us = FETCH["json"].request_us + FETCH["json"].record_us + 939 * FETCH["json"].byte_ns / 1000
    assert plan.processors == pytest.approx(2 * 1000 * (each_us + read_us) / 1e6)
    assert plan.shards == 1


def test_replicas_are_stored_and_sent_once_each():
    alone = Workload(1000, 500, readers=0, nodes=1)
    one, three = plan_of(alone), plan_of(replace(alone, replicas=3, nodes=3))
    assert three.disk_bytes == pytest.approx(one.disk_bytes)
    assert three.processors == pytest.approx(one.processors)
    # each leads a third, and follows two
    assert three.network_in_bytes_per_s > one.network_in_bytes_per_s


@given(WORKLOADS, st.sampled_from(["records_per_s", "record_bytes", "retention_ms", "partitions", "readers"]))
def test_more_work_never_needs_less(workload: Workload, name: str):
    less, more = plan_of(workload), plan_of(replace(workload, **{name: getattr(workload, name) * 2}))
    assert all(getattr(less, need) <= getattr(more, need) * (1 + 1e-9) for need in Plan.__slots__)


def test_what_a_machine_lacks_is_named():
    plan = plan_of(Workload(1000, 300, nodes=1))
    enough = {"size_bytes": 1 << 50, "memory_bytes": 1 << 40, "processors": 64}
    assert set(levels(plan, **enough).values()) == {OK}
    assert levels(plan, **enough | {"size_bytes": int(plan.disk_bytes) - 1})["disk"] == FAIL
    assert levels(plan, **enough | {"memory_bytes": int(plan.memory_bytes) - 1})["memory"] == WARN
    many = replace(plan, processors=2.5, shards=3)
    assert levels(many, **enough)["processors"] == WARN  # it needs --shards
    assert levels(many, **enough | {"processors": 2})["processors"] == FAIL


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("record_bytes=1", "needs records_per_s"),
        ("records_per_s=1", "needs record_bytes"),
        ("records_per_s", "is not name=value"),
        ("records_per_s=1,record_bytes=1,disks=3", "disks is not a part"),
        ("records_per_s=many,record_bytes=1", "is not a number"),
        ("records_per_s=nan,record_bytes=1", "is from"),
        ("records_per_s=0,record_bytes=1", "is from"),
        ("records_per_s=1e16,record_bytes=1", "is from"),
        ("records_per_s=1,record_bytes=1,partitions=1.5", "whole number"),
        ("records_per_s=1,record_bytes=1,reads=xml", "json, batch"),
        ("records_per_s=1,record_bytes=1,replicas=3,nodes=2", "3 replicas need"),
        ("records_per_s=1,record_bytes=1,retention=7", "retention"),
    ],
)
def test_what_is_no_workload_is_refused(text: str, reason: str):
    with pytest.raises(ValueError, match=reason):
        parse_workload(text.split(","))
