import pytest

from loadtests.generators.load import GeneratorFailed
from loadtests.peer_bench.entrants.kafka_client_session import parse_printed

PRINTED = """\
49152 records sent, 9830.4 records/sec (0.94 MB/sec), 12.3 ms avg latency, 350.0 ms max latency.
100000 records sent, 20000.5 records/sec (1.91 MB/sec), 9.10 ms avg latency, 350.00 ms max latency, 3 ms 50th.
"""


def test_the_last_line_counts():
    assert parse_printed(PRINTED) == (100_000, 20_000.5)


def test_another_output_is_an_error():
    with pytest.raises(GeneratorFailed, match="something unknown: no records"):
        parse_printed("no records")
