"""A counter that rose is named for its window, also after it began again."""

from gateway.status.recent_rises import RecentRises


def test_a_counter_is_named_until_its_window_has_passed_since_it_last_rose() -> None:
    rises = RecentRises[str](1000)
    assert rises.follow({"a": 2, "b": 0}, 0) == [("a", 2)]
    assert rises.follow({"a": 3, "b": 0}, 900) == [("a", 3)]
    assert rises.follow({"a": 3, "b": 0}, 999) == [("a", 3)]
    assert rises.follow({"a": 3, "b": 0}, 1000) == [("a", 1)], "the first rise is older than the window"
    assert rises.follow({"a": 3, "b": 0}, 1899) == [("a", 1)]
    assert rises.follow({"a": 3, "b": 0}, 1900) == []
    assert rises.follow({"a": 4}, 2000) == [("a", 1)]


def test_a_counter_that_begins_again_rises_from_zero_and_one_that_is_gone_is_still_named() -> None:
    rises = RecentRises[str](1000)
    assert rises.follow({"a": 5}, 0) == [("a", 5)]
    assert rises.follow({"a": 2}, 10) == [("a", 7)]
    assert rises.follow({}, 20) == [("a", 7)]
    assert rises.follow({"a": 2}, 2000) == [("a", 2)]
