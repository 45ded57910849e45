"""When a connection is idle, dead or stalled. The test sets the time."""

from types import SimpleNamespace

from gateway.wire.idle import PING_ANSWER_S, Progress, Times, Verdict, verdict_on

TIMES = Times(silent_s=10, idle_s=100, ping_s=30, stall_s=20, bytes_per_second_min=1000)


def seen(**changes):
    known = {
        "has_requests": False, "unsent_bytes": 0, "taken_bytes": 0, "is_http2": True, "has_asked": True,
        "opened_at": 0.0, "received_at": 0.0, "idle_since": 0.0, "pinged_at": None, "progress": Progress(),
    }  # fmt: skip
    return SimpleNamespace(**(known | changes))


def test_who_has_not_asked_has_less_time():
    silent = seen(has_asked=False, received_at=10.0)
    assert verdict_on(silent, 9.9, TIMES) is Verdict.KEEP
    assert verdict_on(silent, 10.0, TIMES) is Verdict.IDLE
    assert verdict_on(seen(received_at=99), 99.9, TIMES) is Verdict.KEEP
    assert verdict_on(seen(received_at=99), 100.0, TIMES) is Verdict.IDLE
    assert verdict_on(seen(is_http2=False), 10.0, TIMES) is Verdict.IDLE


def test_who_has_requests_is_not_idle_and_is_asked_for_a_sign_of_life():
    busy = seen(has_requests=True)
    assert verdict_on(busy, 29.9, TIMES) is Verdict.KEEP
    assert verdict_on(busy, 1000.0, TIMES) is Verdict.PING
    busy.pinged_at = 1000.0
    assert verdict_on(busy, 1000.0 + PING_ANSWER_S - 0.1, TIMES) is Verdict.KEEP
    assert verdict_on(busy, 1000.0 + PING_ANSWER_S, TIMES) is Verdict.DEAD
    busy.received_at = 1001.0
    assert verdict_on(busy, 1000.0 + PING_ANSWER_S, TIMES) is Verdict.KEEP
    assert verdict_on(seen(has_requests=True, is_http2=False), 1000.0, TIMES) is Verdict.PASS, "HTTP/1.1 has no ping"


def test_who_takes_nothing_is_stalled():
    stalled = seen(has_requests=True, unsent_bytes=100_000, is_http2=False)
    assert [verdict_on(stalled, now, TIMES) for now in (0, 19, 20)] == [Verdict.KEEP, Verdict.KEEP, Verdict.STALLED]


def test_who_takes_a_little_now_and_then_has_twice_the_time_of_a_stall():
    slow = seen(has_requests=True, unsent_bytes=100_000, is_http2=False)
    verdicts = []
    for now in range(0, 130, 10):
        verdicts.append(verdict_on(slow, float(now), TIMES))
        slow.taken_bytes += 100
        slow.unsent_bytes -= 100
    assert verdicts.index(Verdict.STALLED) == 4, "20 s, and 20 for the bytes that the slowest rate takes in them"


def test_who_has_taken_what_was_there_has_time_for_the_rest():
    steady = seen(has_requests=True, unsent_bytes=10_000, is_http2=False)
    for now in range(0, 300, 10):
        assert verdict_on(steady, float(now), TIMES) is Verdict.KEEP
        steady.taken_bytes += 10_000
    steady.unsent_bytes = 0
    assert verdict_on(steady, 1000.0, TIMES) is Verdict.PASS
    steady.unsent_bytes = 5
    assert verdict_on(steady, 2000.0, TIMES) is Verdict.KEEP, "the time begins with the first look"


def test_a_trickle_is_cut_off_whatever_is_pending():
    """A reader of 10 bytes a second held an answer of 32 MiB for 34 minutes."""
    progress = Progress()
    seconds = (s for s in range(10_000) if progress.is_stalled(10 * s, 2**25 - 10 * s, float(s), TIMES))
    assert TIMES.stall_s <= next(seconds) <= 2 * TIMES.stall_s


def test_the_slowest_rate_that_is_allowed_is_never_cut_off():
    progress, rate = Progress(), TIMES.bytes_per_second_min
    assert not any(progress.is_stalled(rate * s, 2**25 - rate * s, float(s), TIMES) for s in range(2**25 // rate))
