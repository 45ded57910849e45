"""Keys go to the partitions that Kafka's producers use; records without a key stay together, and reach every
partition.
"""

from collections import Counter
from itertools import pairwise
from random import Random

import pytest
from aiokafka.partitioner import murmur2
from hypothesis import given
from hypothesis import strategies as st

from gateway.http.problems import Problem
from gateway.produce.partitioner import STICKY_BYTES, STICKY_S, Partitioner, kafka_hash


def partitioner(partitions, seed=1):
    return Partitioner("t", partitions, Random(seed))


@pytest.mark.parametrize(
    ("key", "murmur2_of_kafka"),
    [(b"21", -973_932_308), (b"foobar", -790_332_482), (b"a-little-bit-long-string", -985_981_536), (b"", 275_646_681)],
)
def test_the_hash_is_kafkas(key, murmur2_of_kafka):
    assert kafka_hash(key) == murmur2_of_kafka & 0x7FFF_FFFF


@given(st.binary(max_size=40), st.integers(1, 1000))
def test_every_key_lands_where_aiokafka_would_put_it(key, partitions):
    assert partitioner(partitions).for_key(key) == (murmur2(key) & 0x7FFF_FFFF) % partitions


def test_keys_spread_evenly():
    spread = Counter(partitioner(10).for_key(b"key-%d" % n) for n in range(10_000))
    assert len(spread) == 10
    assert all(800 < count < 1200 for count in spread.values())


def test_records_without_a_key_stay_for_64_kib():
    one = partitioner(5)
    first = [one.sticky(1024, now=1.0) for _ in range(64)]
    second = [one.sticky(1024, now=1.0) for _ in range(64)]
    assert len(set(first)) == len(set(second)) == 1
    assert set(first) != set(second)


def test_records_without_a_key_stay_for_10_ms():
    one = partitioner(5)
    now = 100.0
    chosen = []
    for _ in range(20):
        begun = one.sticky(10, now)
        assert one.sticky(10, now + STICKY_S * 0.9) == begun
        chosen.append(begun)
        now += STICKY_S * 1.01
    assert all(before != after for before, after in pairwise(chosen))


@given(st.integers(2, 20), st.integers(0, 1000))
def test_a_change_never_stays_and_is_even_over_the_others(partitions, seed):
    one = partitioner(partitions, seed)
    chosen = [one.sticky(STICKY_BYTES, now=0.0) for _ in range(300 * partitions)]
    assert all(before != after for before, after in pairwise(chosen))
    counts = Counter(chosen)
    assert len(counts) == partitions
    assert max(counts.values()) < 2 * min(counts.values())


def test_one_partition_is_always_the_one():
    one = partitioner(1)
    assert {one.sticky(STICKY_BYTES, now=float(n)) for n in range(10)} == {0}


def test_a_partition_that_is_not_there_is_refused():
    partitioner(3).check(2)
    with pytest.raises(Problem) as refused:
        partitioner(3).check(3)
    assert refused.value.code == "unknown_partition"
    assert "0 to 2" in refused.value.detail
