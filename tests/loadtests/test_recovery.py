"""The bench's figure for recovery, of a real node that is really killed, with little data."""

import pytest

from loadtests.generators import Generators
from loadtests.recovery import Recovery, Start, measure_recovery, recovery_lines

pytestmark = [pytest.mark.slow, pytest.mark.e2e]


def test_a_killed_node_is_timed_and_holds_everything(tmp_path):
    generators = Generators(use_h2load=False)
    try:
        found = measure_recovery(tmp_path, 16_000_000, generators, lambda _: None)
    finally:
        generators.close()
    assert found.mismatch == ""
    assert found.stored_bytes >= 15_000_000
    assert found.without_points.scanned_bytes >= found.stored_bytes
    assert min(found.empty.seconds, found.killed.seconds, found.without_points.seconds) > 0
    first, second = recovery_lines(found)
    assert "after kill -9" in first
    assert "Without recovery points" in second


def test_the_rate_is_that_of_the_scan_alone():
    found = Recovery(10**9, Start(0.5, 0), Start(0.5, 0), Start(1.0, 10**9))
    assert found.bytes_per_s == 2e9
