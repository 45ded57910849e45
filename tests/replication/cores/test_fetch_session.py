"""A leader's memory of a follower's fetch session, and the throttle of catch-up reads."""

from replication.cores.fetch import FetchError, FollowerFetch, Send
from replication.cores.fetch_session import FetchSession
from replication.cores.throttle import TokenBucket


def fetch(log_end: int = 5, high_watermark: int = 5) -> FollowerFetch:
    return FollowerFetch(2, 2, 1, log_end, log_end, 1, high_watermark)


def session(*keys: str) -> FetchSession:
    made = FetchSession("s")
    made.on_fetch(0, [(key, fetch()) for key in keys], [])
    return made


def test_a_round_that_was_lost_or_comes_twice_does_not_follow():
    made = session("a")
    assert made.follows("s", 1)
    assert not made.follows("s", 0)
    assert not made.follows("s", 2)
    assert not made.follows("another", 1)


def test_a_requested_partition_is_read_once_and_then_only_after_changes():
    made = session("a", "b")
    assert list(made.ready) == ["a", "b"]
    made.mark_unchanged("a")
    made.mark_unchanged("b")
    made.on_fetch(1, [], [])
    assert not made.ready
    assert made.on_change("b")
    assert not made.on_change("not requested")
    assert list(made.ready) == ["b"]


def test_a_position_is_sent_once_and_the_follower_waits_on():
    made = session("a")
    assert not made.has_changes("a", Send(5, 5, 0))
    for answer in (Send(5, 6, 0), Send(5, 6, 3), Send(5, 6, 3, 2)):
        assert made.has_changes("a", answer)
        made.record_positions("a", answer)
        assert not made.has_changes("a", answer)
    assert made.on_change("a"), "it still waits"


def test_who_was_sent_something_to_do_asks_again():
    made = session("a", "b")
    made.on_answer("a", Send(5, 6, 2))
    made.on_answer("b", FetchError.NOT_LEADER)
    assert not made.on_change("a")
    assert not made.on_change("b")
    made.on_fetch(1, [("a", fetch(6, 6))], [])
    assert not made.has_changes("a", Send(6, 6, 2)), "the log's start came with the batches"


def test_what_is_forgotten_is_not_waited_for():
    made = session("a", "b")
    made.acknowledge("a", is_acknowledged=False)
    made.on_fetch(1, [], ["a", "not requested"])
    assert not made.on_change("a")
    assert not made.unacknowledged
    assert made.on_change("b")


def test_a_token_bucket_fills_up_to_a_second_and_may_be_overdrawn_by_a_batch():
    made = TokenBucket(100, now=10.0)
    assert made.left(10.0) == 100
    made.take(150)
    assert made.left(10.1) == 0
    assert 0.4 < made.wait_s() < 0.5
    assert made.left(11.5) == 100
    assert made.left(99.0) == 100, "no more than a second's worth"


def test_no_limit_has_no_token_bucket():
    assert TokenBucket(0, now=0.0).left(1.0) is None
    assert TokenBucket(0, now=0.0).wait_s() == 0.0
