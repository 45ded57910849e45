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


def test_sealed_segments_are_shipped_in_order():
    sealed = segments(0, 10, 20, 30)
    assert plan_uploads(0, local_log(sealed)).uploads == (
        Upload(sealed[0], 0),
        Upload(sealed[1], 10),
        Upload(sealed[2], 20),
    )


def test_what_is_in_the_store_is_skipped():
    sealed = segments(0, 10, 20, 30)
    assert plan_uploads(20, local_log(sealed)).uploads == (Upload(sealed[2], 20),)
    assert plan_uploads(30, local_log(sealed)) == Plan(())


@pytest.mark.parametrize("limit", ["high_watermark", "durable_end"])
def test_what_is_not_committed_and_durable_waits(limit):
    sealed = segments(0, 10, 20, 30)
    assert plan_uploads(0, local_log(sealed, **{limit: 20})).uploads == (Upload(sealed[0], 0), Upload(sealed[1], 10))
    assert plan_uploads(0, local_log(sealed, **{limit: 9})) == Plan(())


def test_a_segment_that_the_store_ends_in_is_shipped_from_there():
    sealed = segments(0, 10, 20)
    assert plan_uploads(14, local_log(sealed)).uploads == (Upload(sealed[1], 14),)


def test_a_log_that_begins_after_the_store_ends_halts():
    plan = plan_uploads(5, local_log(segments(10, 20), log_start=0))
    assert (plan.halt, plan.uploads) == (Halt.GAP, ())
    assert "the store ends at 5, the local log begins at 10" in plan.reason
    assert plan_uploads(5, local_log([], log_start=0, local_log_start=10, log_end=10)).halt is Halt.GAP


def test_what_was_given_up_is_no_gap():
    sealed = segments(10, 20)
    assert plan_uploads(5, local_log(sealed, log_start=12)).uploads == (Upload(sealed[0], 12),)


def test_a_store_that_is_ahead_of_the_log_halts():
    plan = plan_uploads(25, local_log(segments(0, 10, 20)))
    assert (plan.halt, plan.uploads) == (Halt.STORE_AHEAD, ())
    assert "the store ends at 25, the log at 20" in plan.reason


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
