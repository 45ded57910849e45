"""Keys are remembered for the window, unless a bound on their number evicts the oldest."""

from hypothesis import given
from hypothesis import strategies as st

from engine.format.keyed_batch import KeyEntry
from engine.producers.key_window import _EXPIRED_AT_ONCE, SLICES, KeyBudget, KeyWindow

WINDOW_MS = 800
MANY = 10**9


def key(number: int) -> bytes:
    return number.to_bytes(16, "big")


def entry(number: int, time_ms: int, request: int = 0) -> KeyEntry:
    return KeyEntry(key(number), key(request), 3, time_ms)


def add(window: KeyWindow, number: int, time_ms: int, keys_max: int = MANY, request: int = 0) -> None:
    """`time_ms` is the arrival time; the entry's own time is that of another clock."""
    remembered = entry(number, 10**15 - time_ms, request)
    at = {"now_ms": time_ms, "since_ms": time_ms, "window_ms": WINDOW_MS, "keys_max": keys_max}
    window.add([(remembered, 10 * number, 2)], **at)


def test_what_is_found_is_what_was_put_in():
    window = KeyWindow()
    at = {"now_ms": 2**42, "window_ms": WINDOW_MS, "keys_max": MANY}
    window.add([(KeyEntry(key(1), key(9), 10_000, 2**42), 2**62, 2**31 - 1)], since_ms=2**42 - 10**9, **at)
    window.add([(KeyEntry(key(2), key(9), 1, 0), 0, 1)], since_ms=None, **at)
    assert window.find(key(1)) == (key(9), 2**62, 2**31 - 1, 10_000, 2**42, 2**42 - 10**9)
    assert window.find(key(2)) == (key(9), 0, 1, 1, 0, None)
    assert window.find(key(3)) is None
    assert list(window.items()) == [(key(1), window.find(key(1))), (key(2), window.find(key(2)))]


def test_a_key_of_unknown_age_is_kept_and_nothing_is_promised():
    window = KeyWindow()
    window.add([(entry(1, 0), 0, 1)], now_ms=0, since_ms=None, window_ms=WINDOW_MS, keys_max=MANY)
    window.expire(WINDOW_MS - 1, WINDOW_MS)
    remembered = window.find(key(1))
    assert window.kept_ms(remembered.since_ms, 1, WINDOW_MS) == 0


@given(st.lists(st.tuples(st.integers(0, 60), st.booleans(), st.integers(0, 30)), max_size=120))
def test_a_key_is_known_for_the_window_and_an_eighth_longer_at_most(steps):
    window, came, now = KeyWindow(), {}, 0
    for number, adds, pause in steps:
        now += pause
        if adds:
            add(window, number, now)
            came[number] = now
        window.expire(now, WINDOW_MS)
        for one, time_ms in came.items():
            age = now - time_ms
            if age < WINDOW_MS:
                assert window.find(key(one)).since_ms == time_ms
                assert window.kept_ms(time_ms, now, WINDOW_MS) == WINDOW_MS - age
            elif age > WINDOW_MS + WINDOW_MS // SLICES:
                assert window.find(key(one)) is None
    window.expire(now + 2 * WINDOW_MS, WINDOW_MS)
    assert len(window) == 0


@given(st.integers(1, 40), st.integers(1, 200))
def test_beyond_a_number_the_oldest_go_and_seven_eighths_stay(keys_max, count):
    window = KeyWindow()
    for number in range(count):
        add(window, number, number, keys_max)
        assert len(window) <= keys_max
    stays = min(count, keys_max - keys_max // SLICES)
    assert all(window.find(key(number)) for number in range(count - stays, count))
    assert window.dropped == count - len(window)


def test_what_is_promised_is_less_when_keys_go_before_their_time():
    window = KeyWindow()
    for number in range(100):
        add(window, number, number, keys_max=16)
    promised = window.kept_ms(99, 99, WINDOW_MS)
    assert 14 <= promised <= 16
    assert window.kept_ms(95, 99, WINDOW_MS) == promised - 4
    assert window.kept_ms(0, 99, WINDOW_MS) == 0
    at = 99 + WINDOW_MS  # much later: the window applies again
    assert window.kept_ms(at, at, WINDOW_MS) == WINDOW_MS


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 20)), min_size=1, max_size=150))
def test_partitions_together_hold_so_many_and_the_oldest_of_all_go_first(steps):
    budget = KeyBudget(40)
    windows = [KeyWindow(budget) for _ in range(4)]
    now, latest = 0, []
    for number, (at, pause) in enumerate(steps):
        now += pause
        add(windows[at], number, now)
        latest.append((at, number))
        assert budget.keys == sum(map(len, windows)) <= 40
    assert windows[latest[-1][0]].find(key(latest[-1][1]))
    windows[0].clear()
    assert budget.keys == sum(map(len, windows))


def test_slices_that_are_gone_behind_one_that_stays_leave_the_budget():
    """One partition keeps a key for long; another one has few keys in many slices."""
    budget = KeyBudget(40)
    kept, other = KeyWindow(budget), KeyWindow(budget)
    add(kept, 0, 0)
    for number in range(10_000):
        add(other, number, 1, keys_max=8)
    assert budget.keys <= 9
    assert budget.slice_count < 50
    assert kept.find(key(0))


def test_of_very_many_keys_that_expire_at_once_some_go_at_each_call():
    window, count = KeyWindow(), 5 * _EXPIRED_AT_ONCE // 2
    for number in range(count):
        add(window, number, number * SLICES // count, keys_max=2 * count)
    calls = 0
    while len(window):
        before = len(window)
        window.expire(10**6, WINDOW_MS)
        assert 0 < before - len(window) <= _EXPIRED_AT_ONCE + count // SLICES + 1
        calls += 1
    assert calls > 1
