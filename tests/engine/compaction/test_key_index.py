"""The index of a table's keys, which threads of cancelled reads still fill."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Barrier, BrokenBarrierError

from engine.compaction import key_index
from engine.compaction.key_index import KeyIndex
from engine.format.batch import encode
from engine.format.batch_header import stamp

KEYS = 400


def log_of(begin: int, end: int) -> bytes:
    data = bytearray()
    for offset in range(begin, end, 10):
        batch = encode([(0, b"k%d" % at, b"v", []) for at in range(offset, offset + 10)])
        stamp(batch, offset, 0)
        data += batch
    return bytes(data)


def test_two_threads_that_add_the_same_records_lose_no_key(monkeypatch):
    index, meeting, unpacked = KeyIndex(1 << 20, os.urandom(16), 0), Barrier(2), key_index.unpacked
    met = []

    def meet(*args):
        with suppress(BrokenBarrierError):
            met.append(meeting.wait(0.05))  # both threads are inside of `add`
        return unpacked(*args)

    monkeypatch.setattr(key_index, "unpacked", meet)
    with ThreadPoolExecutor(2) as threads:
        adding = [threads.submit(index.add, log_of(0, KEYS), KEYS) for _ in range(2)]
        for thread in adding:
            thread.result()
    assert not met
    assert [index.find(b"k%d" % at) for at in range(KEYS)] == list(range(KEYS))


def test_a_late_thread_does_not_take_the_index_back():
    index = KeyIndex(1 << 20, os.urandom(16), 0)
    index.add(log_of(0, KEYS), KEYS)
    index.add(log_of(0, 10), 10)
    assert (index.end, index.find(b"k399")) == (KEYS, 399)
