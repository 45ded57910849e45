"""Buffers of large reads: used again, and never while anything else can read them."""

import threading

from engine.runtime.read_buffers import KEPT_BYTES_MAX, SIZE_BYTES_MAX, SIZE_BYTES_MIN, ReadBuffers, ReceiveBuffers

SIZE = 1 << 20


def test_a_buffer_that_is_not_referred_to_is_used_again():
    buffers = ReadBuffers()
    first = buffers.take(SIZE)
    first[:4] = b"kept"
    number = id(first)
    view = memoryview(first)[2:4]
    del first
    assert id(buffers.take(SIZE)) != number, "a view of it is left"
    assert bytes(view) == b"pt"
    del view
    for length in (SIZE, SIZE - 1000, SIZE, SIZE * 2 // 3, SIZE):
        again = buffers.take(length)
        assert len(again) == length
        assert id(again) == number
        del again


def test_what_is_kept_is_bounded_and_follows_the_sizes_of_reads():
    buffers = ReadBuffers()
    taken = [buffers.take(SIZE) for _ in range(20)]
    assert len({id(one) for one in taken}) == 20
    assert buffers.kept_bytes == KEPT_BYTES_MAX
    assert len(buffers.take(SIZE_BYTES_MIN)) == SIZE_BYTES_MIN, "all are in use"
    taken.clear()
    small = buffers.take(SIZE_BYTES_MIN)
    number = id(small)
    del small
    assert id(buffers.take(SIZE_BYTES_MIN)) == number
    assert buffers.kept_bytes <= KEPT_BYTES_MAX


def test_small_and_very_large_reads_have_buffers_of_their_own():
    buffers = ReadBuffers()
    for length in (0, 1, SIZE_BYTES_MIN - 1, SIZE_BYTES_MAX + 1):
        assert len(buffers.take(length)) == length
    assert buffers.kept_bytes == 0


def test_a_body_takes_memory_that_no_other_refers_to():
    buffers = ReceiveBuffers(4 * SIZE)
    taken = [buffers.take(length) for length in (SIZE, 5, SIZE + 1, 2 * SIZE)]
    assert [len(view) for view in taken] == [SIZE, 5, SIZE + 1, 2 * SIZE]
    assert len({id(view.obj) for view in taken}) == 4
    assert buffers.kept_bytes == 3 * SIZE, "a third large one has no room"
    number, part = id(taken[2].obj), taken[2][:1]
    del taken[2]
    other = buffers.take(SIZE + 1)
    assert id(other.obj) != number, "a part of it is left"
    del part, other
    for length in (SIZE - 1, SIZE + 1):
        again = buffers.take(length)
        assert (len(again), id(again.obj)) == (length, number)
        del again
    taken.clear()
    assert len(buffers.take(4 * SIZE)) == buffers.kept_bytes, "in place of the shorter ones"


def test_threads_never_share_a_buffer():
    buffers, wrong = ReadBuffers(), []

    def use(number: int) -> None:
        for _ in range(300):
            own = buffers.take(SIZE_BYTES_MIN)
            own[:8] = number.to_bytes(8, "big")
            if own[:8] != number.to_bytes(8, "big") or any(own is other for other in in_use.values()):
                wrong.append(number)
            in_use[number] = own
            del in_use[number], own

    in_use: dict[int, bytearray] = {}
    threads = [threading.Thread(target=use, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
