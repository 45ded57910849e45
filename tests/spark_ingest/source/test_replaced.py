"""A slice of an object that a merge has replaced is read from the merged one, batch for batch."""

from __future__ import annotations

import pytest

from engine.testing.memory_store import MemoryStore
from engine.testing.store_proxy import StoreProxy
from engine.tiering.store.store import NoSuchObject
from spark_ingest.source.scan import scan
from spark_ingest.source.slices import Slice
from tests.spark_ingest.tiered import TieredLog, json_rows

COUNT = 600


def log_of(segments: int = 3) -> TieredLog:
    log = TieredLog(MemoryStore(), batch_records=7)
    for at in range(segments):
        log.add(0, json_rows(COUNT, first=at * COUNT))
    return log


def read(store: MemoryStore | StoreProxy, wanted: list[Slice], piece_bytes: int = 1 << 20) -> list[tuple[int, bytes]]:
    return [(one.header.base_offset, bytes(one.raw)) for one in scan(store, wanted, piece_bytes)]


@pytest.mark.parametrize("piece_bytes", [300, 1 << 20])
@pytest.mark.parametrize(("start", "end"), [(0, 1800), (3, 599), (590, 1210), (1199, 1201), (1795, 1800)])
def test_the_batches_are_the_same(start: int, end: int, piece_bytes: int) -> None:
    log = log_of()
    wanted = log.slices(start, end)
    before = read(log.store, wanted)
    log.merge(0)
    assert read(log.store, wanted, piece_bytes) == before


def test_an_object_that_goes_while_it_is_read_is_continued_in_the_other() -> None:
    log = log_of()
    wanted = log.slices(0, 1800)
    before = read(log.store, wanted)

    class Removing(StoreProxy):
        left = 4

        def get(self, key: str, start: int | None = None, end: int | None = None) -> bytes:
            self.left -= 1
            if not self.left:
                log.merge(0)
            return super().get(key, start, end)

    assert read(Removing(log.store), wanted, 1000) == before


def test_an_object_that_nothing_has_replaced_is_missed() -> None:
    log = log_of()
    wanted = log.slices(0, 1800)
    log.store.delete(wanted[1].key)
    with pytest.raises(NoSuchObject, match=r"is gone from memory:// \(penstock tier repair .*penstock ingest abandon"):
        read(log.store, wanted)
    log.raise_log_start(0, 1800)
    with pytest.raises(NoSuchObject):
        read(log.store, wanted)
