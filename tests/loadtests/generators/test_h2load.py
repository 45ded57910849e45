import pytest

from loadtests.generators.h2load import parse_log, parse_printed
from loadtests.generators.load import GeneratorFailed

# Printed by nghttp2 1.52.0.
GOOD = """\
starting benchmark...
spawning thread #0: 4 total client(s). 20000 total requests
Application protocol: h2c
progress: 10% done
progress: 100% done

finished in 6.94s, 2883.09 req/s, 498.27KB/s
requests: 20000 total, 20000 started, 20000 done, 20000 succeeded, 0 failed, 0 errored, 0 timeout
status codes: 20000 2xx, 0 3xx, 0 4xx, 0 5xx
traffic: 3.38MB (3539482) total, 498.41KB (510372) headers (space savings 81.61%), 2.55MB (2668890) data
                     min         max         mean         sd        +/- sd
time for request:     5.13ms     92.03ms     22.12ms     11.55ms    87.46%
time for connect:      122us       383us       239us       108us    50.00%
time to 1st byte:    37.21ms     52.41ms     41.64ms      7.21ms    75.00%
req/s           :     720.99      721.94      721.27        0.45    75.00%
"""
REFUSED = """\
finished in 13.46ms, 1485.99 req/s, 467.28KB/s
requests: 20 total, 20 started, 20 done, 3 succeeded, 17 failed, 0 errored, 0 timeout
status codes: 3 2xx, 0 3xx, 17 4xx, 0 5xx
traffic: 6.29KB (6440) total, 760B (760) headers (space savings 74.15%), 4.98KB (5100) data
"""


def test_totals_are_read():
    printed = parse_printed(GOOD)
    assert (printed.seconds, printed.total, printed.good, printed.answer_bytes) == (6.94, 20000, 20000, 2668890)


def test_a_run_of_milliseconds_is_reported_in_seconds():
    assert parse_printed(REFUSED).seconds == pytest.approx(0.01346)


def test_kinds_of_bad_answers_are_counted():
    printed = parse_printed(REFUSED)
    assert printed.total - printed.good == 17
    assert "17 4xx" in printed.statuses


def test_an_unknown_output_is_refused_rather_than_guessed():
    with pytest.raises(GeneratorFailed, match="something unknown"):
        parse_printed("finished in a hurry")


def test_only_good_answers_give_durations():
    log = (
        "1795223565344440\t200\t36683\n1795223565344441\t503\t12\n1795223565344450\t-1\t9\n1795223565344460\t202\t40\n"
    )
    assert parse_log(log) == [36683, 40]
