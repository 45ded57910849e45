"""The bench's recovery figure, for a real node that is killed, with little data."""

import pytest

from loadtests.bench.recovery import Recovery, Start, measure_recovery, recovery_lines
from loadtests.generators.generators import Generators

pytestmark = [pytest.mark.slow, pytest.mark.e2e]


@pytest.mark.long
def test_a_killed_node_is_timed_and_holds_everything(tmp_path):
    generators = Generators(use_h2load=False)
    try:
        found = measure_recovery(tmp_path, 16_000_000, generators, lambda _: None)
    finally:
        generators.close()
    assert found.mismatch == ""
    assert found.stored_bytes >= 15_000_000
    assert found.without_points.scanned_bytes >= found.stored_bytes
    assert found.killed.recovery_s > 0
    assert found.without_points.recovery_s > 0
    assert min(found.empty.seconds, found.killed.seconds, found.without_points.seconds) > 0
    first, second = recovery_lines(found)
    assert "after kill -9" in first
    assert "Without recovery points" in second


def test_the_rate_is_that_of_the_recovery_alone_and_stands_beside_the_disk_s():
    found = Recovery(10**9, Start(0.5), Start(0.7, 10**9, 0.25), Start(1.5, 10**9, 0.5), disk_bytes_per_s=4e9)
    first, second = recovery_lines(found)
    assert "scanned at 4.0 GB/s" in first
    assert "at 2.0 GB/s, 50% of the 4.0 GB/s" in second
