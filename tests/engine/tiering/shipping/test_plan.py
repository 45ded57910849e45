"""The next segments to ship: complete sealed ones, in order, without a gap, and only when they cannot be lost any
more.
"""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.tiering.shipping.local_log import SealedSegment
from engine.tiering.shipping.plan import Halt, Plan, Upload, plan_uploads
from tests.engine.tiering.making import local_log


def segments(*bounds: int) -> list[SealedSegment]:
    """Return contiguous sealed segments between these offsets."""
    return [SealedSegment(base, end, f"/{base}", 100) for base, end in pairwise(bounds)]


SEALED = segments(0, 10, 20, 30)


@pytest.mark.parametrize(
    ("tiered_end", "positions", "uploads"),
    [
        pytest.param(0, {}, [0, 10, 20], id="in order"),
        pytest.param(20, {}, [20], id="what is in the store is skipped"),
        pytest.param(30, {}, [], id="all is in the store"),
        pytest.param(14, {}, [14, 20], id="the store ends in a segment"),
        pytest.param(0, {"log_start": 12}, [12, 20], id="what was given up is not missed"),
        pytest.param(0, {"high_watermark": 20}, [0, 10], id="what is not committed waits"),
        pytest.param(0, {"high_watermark": 9}, [], id="nothing is committed"),
        pytest.param(0, {"durable_end": 20}, [0, 10], id="what is not durable waits"),
        pytest.param(0, {"durable_end": 9}, [], id="nothing is durable"),
    ],
)
def test_whole_segments_are_shipped_in_order_once_they_cannot_be_lost(tiered_end, positions, uploads):
    expected = tuple(Upload(SEALED[offset // 10], offset) for offset in uploads)
    assert plan_uploads(tiered_end, local_log(SEALED, **positions)) == Plan(expected)


@pytest.mark.parametrize(
    ("tiered_end", "local", "halt", "reason"),
    [
        (5, local_log(SEALED[1:], log_start=0), Halt.GAP, "the store ends at 5, the local log begins at 10"),
        (5, local_log([], log_start=0, local_log_start=10, log_end=10), Halt.GAP, "the local log begins at 10"),
        (35, local_log(SEALED), Halt.STORE_AHEAD, "the store ends at 35, the log at 30"),
    ],
)
def test_a_log_that_does_not_continue_the_store_halts(tiered_end, local, halt, reason):
    plan = plan_uploads(tiered_end, local)
    assert (plan.halt, plan.uploads) == (halt, ())
    assert reason in plan.reason


def test_segments_that_do_not_join_halt_after_those_before():
    sealed = [*segments(0, 10), *segments(15, 20)]
    plan = plan_uploads(0, local_log(sealed))
    assert (plan.halt, plan.uploads) == (Halt.LOCAL_GAP, (Upload(sealed[0], 0),))


@given(
    st.lists(st.integers(1, 50), max_size=8), st.integers(0, 30), st.integers(0, 400), st.integers(0, 400), st.data()
)
def test_uploads_always_continue_the_store_and_end_below_the_limit(widths, base, high_watermark, durable_end, data):
    bounds = [base]
    for width in widths:
        bounds.append(bounds[-1] + width)
    local = local_log(segments(*bounds), high_watermark=high_watermark, durable_end=durable_end)
    tiered_end = data.draw(st.integers(0, bounds[-1] + 3))
    plan = plan_uploads(tiered_end, local)
    end = max(tiered_end, local.log_start)
    for upload in plan.uploads:
        assert upload.from_offset == end
        assert upload.segment.base_offset <= end < upload.segment.end_offset <= min(high_watermark, durable_end)
        end = upload.segment.end_offset
    if plan.halt is None:
        assert not any(end < one.end_offset <= min(high_watermark, durable_end) for one in local.sealed)
