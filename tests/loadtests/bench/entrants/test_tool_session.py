"""Sessions of tools: what they print is parsed, and the log is compared with what they sent."""

import sys
from functools import partial

import pytest

from loadtests.bench.entrants import kafka, nats, redis
from loadtests.bench.entrants.keyed_requests import key_header, sequence_headers
from loadtests.bench.entrants.tool_session import Printed, ToolSession
from loadtests.generators.load import GeneratorFailed

KAFKA = """\
1878411 records sent, 375682.2 records/sec (35.83 MB/sec), 62.7 ms avg latency, 373.0 ms max latency.
3000000 records sent, 265698.343814 records/sec (25.34 MB/sec), 111.88 ms avg latency, 1015.00 ms max latency, \
90 ms 50th, 368 ms 95th, 482 ms 99th, 554 ms 99.9th.
"""
NATS = """\
  [1] 5,020 msgs/sec ~ 490 KiB/sec ~ P50: 163.91us ~ P90: 323.61us ~ P99: 763.01us ~ P99.9: 2,757.87us (5,000 msgs)

 NATS JetStream synchronous publisher aggregated stats: 19,729 msgs/sec ~ 1.9 MiB/sec
 message rates min 4,935 | avg 4,970 | max 5,020 | stddev 33 msgs
 latencies per operation min 25.28us | avg 201.02us | max 6,390.89us | P50 1,163.54us | P90 327.15us | P99 1,808.62us \
| P99.9: 2,964.47us
"""
REDIS = """\
"test","rps","avg_latency_ms","min_latency_ms","p50_latency_ms","p95_latency_ms","p99_latency_ms","max_latency_ms"
"XADD s * v {"n":0,"pad":"x"}","555555.56","1.306","0.984","1.143","3.135","3.223","3.323"
"""
PARSERS = (kafka.parse_printed, nats.parse_printed, partial(redis.parse_printed, 1))


def test_figures_are_parsed():
    assert kafka.parse_printed(KAFKA, 9) == Printed(3_000_000, 265698.343814, 90.0, 482.0)
    assert nats.parse_printed(NATS, 20_000) == Printed(20_000, 19_729.0, 1.16354, 1.80862)
    assert redis.parse_printed(1000, REDIS, 40_000) == Printed(40_000, 555_555_560.0, 1.143, 3.223)


@pytest.mark.parametrize("parse", PARSERS)
def test_other_output_is_an_error(parse):
    with pytest.raises(GeneratorFailed, match="printed"):
        parse("usage: bench", 1)


def session(stored, code="print()"):
    return ToolSession(
        lambda records: [sys.executable, "-c", code],
        lambda text, records: Printed(records, 1000.0, 1.0, 2.0),
        10,
        count=lambda: stored,
    )


def test_a_run_has_the_figures_of_the_tool():
    counted = session(50).run(5)
    assert (counted.records, counted.outcome.good, counted.outcome.seconds) == (50, 5, 0.05)
    assert (counted.latency.p50_ms, counted.latency.p99_ms) == (1.0, 2.0)


@pytest.mark.parametrize(("stored", "problem"), [(50, ""), (49, "the log has 49 records, sent were 50")])
def test_the_log_must_have_what_was_sent(stored, problem):
    tool = session(stored)
    tool.run(5)
    assert tool.problem() == problem


def test_a_tool_that_fails_is_an_error():
    with pytest.raises(GeneratorFailed, match="ended with 3: no"):
        session(0, "import sys; print('no', file=sys.stderr); sys.exit(3)").run(1)


def test_keys_differ_and_sequences_count_records():
    assert key_header(1, 2, 3) == b"Idempotency-Key: 1-2-3\r\n"
    assert sequence_headers([5, 6], 1000, 1, 2) == b"Producer-Id: 6\r\nProducer-Epoch: 0\r\nProducer-Seq: 2000\r\n"
