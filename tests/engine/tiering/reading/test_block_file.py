"""The file of cached blocks: bounded, shared by processes without a lock, and harmless in any state."""

import errno
import os
import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from engine.runtime.disk import RealDisk
from engine.testing.faulty_disk import FaultyDisk, Rule
from engine.tiering.reading import block_file
from engine.tiering.reading.block_file import WAYS, BlockFile
from engine.tiering.reading.cache_directory import remove_copies
from tests.scale.calls import counted_calls

BLOCK = 64


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(block_file, "BLOCK_BYTES", BLOCK)


def opened(path: Path, bytes_max: int = 14_000, disk: RealDisk | FaultyDisk | None = None) -> BlockFile:
    file = BlockFile(disk or RealDisk(), str(path), bytes_max)
    file.open()
    return file


def block(key: str, number: int, size: int = BLOCK) -> bytes:
    return f"{key}/{number};".encode().ljust(size, b"x")[:size]


def test_the_file_never_grows_above_its_bound_and_keeps_what_is_used(tmp_path):
    file = opened(tmp_path / "blocks")
    file.put("used", 0, block("used", 0))
    for number in range(1000):
        file.put("others", number, block("others", number))
        assert file.get("used", 0) == block("used", 0)
    assert os.path.getsize(tmp_path / "blocks") <= 14_000
    assert file.counts.evictions == 1001 - file.blocks_max
    kept = [number for number in range(1000) if file.get("others", number)]
    assert len(kept) == file.blocks_max - 1
    assert min(kept) >= 1000 - file.blocks_max - WAYS, "the ones used last"


def test_an_eviction_among_10_000_blocks_costs_what_one_among_8_costs(tmp_path):
    counts = []
    for blocks in (WAYS, 10_000):
        file = opened(tmp_path / f"{blocks}", 8192 + (blocks + WAYS) * (BLOCK + 32))
        assert file.blocks_max >= blocks
        for number in range(2 * file.blocks_max):
            file.put("key", number, b"x")
        with counted_calls() as calls:
            file.put("key", 3 * file.blocks_max, b"x")
        counts.append(calls[0])
    assert counts[1] <= counts[0] * 1.2


def test_processes_share_the_blocks_and_the_bound(tmp_path):
    one, other = (opened(tmp_path / "blocks") for _ in range(2))
    one.put("a", 0, block("a", 0))
    assert other.get("a", 0) == block("a", 0)
    for number in range(500):
        (one, other)[number % 2].put("b", number, block("b", number))
    assert os.path.getsize(tmp_path / "blocks") <= 14_000


def test_any_order_of_concurrent_reads_and_writes_returns_right_blocks_only(tmp_path):
    files = [opened(tmp_path / "blocks", 8192 + 2000) for _ in range(4)]

    def work(seed: int) -> int:
        chosen, found = random.Random(seed), 0
        for _ in range(2000):
            file, number = files[seed], chosen.randrange(60)
            size = chosen.randrange(1, BLOCK + 1)
            if chosen.random() < 0.5:
                file.put("key", number, block("key", number, size))
            elif (data := file.get("key", number)) is not None:
                assert data == block("key", number, len(data))
                found += 1
        return found

    with ThreadPoolExecutor(4) as threads:
        assert sum(threads.map(work, range(4)))


@pytest.mark.parametrize("left", [b"", b"a foreign text", bytes(9000), b"PSBLOCK1" + b"\xff" * 9000])
def test_a_file_without_the_right_head_becomes_an_empty_cache(tmp_path, left):
    (tmp_path / "blocks").write_bytes(left)
    file = opened(tmp_path / "blocks")
    assert file.get("a", 0) is None
    assert file.put("a", 0, b"data")
    assert file.get("a", 0) == b"data"


def test_other_settings_empty_the_file_and_the_same_keep_it(tmp_path):
    opened(tmp_path / "blocks").put("a", 0, b"data")
    assert opened(tmp_path / "blocks").get("a", 0) == b"data"
    assert opened(tmp_path / "blocks", 20_000).get("a", 0) is None


def test_flipped_bits_lose_blocks_and_nothing_else(tmp_path):
    file = opened(tmp_path / "blocks")
    for number in range(file.blocks_max):
        file.put("key", number, block("key", number))
    stored, chosen = (tmp_path / "blocks").read_bytes(), random.Random(5)
    for _ in range(200):
        spoiled = bytearray(stored)
        for _ in range(20):
            spoiled[chosen.randrange(4096, len(stored))] ^= 1 << chosen.randrange(8)
        (tmp_path / "blocks").write_bytes(spoiled)
        for number in range(file.blocks_max):
            assert file.get("key", number) in (None, block("key", number))


def test_a_full_disk_refuses_blocks_and_keeps_reading(tmp_path):
    full = FaultyDisk(RealDisk())
    file = opened(tmp_path / "blocks", disk=full)
    file.put("a", 0, b"data")
    full.rules.append(Rule("pwritev", error=errno.ENOSPC, first=2))
    assert not file.put("b", 0, b"data")
    assert file.counts.refused == 1
    assert (file.get("b", 0), file.get("a", 0)) == (None, b"data")


async def test_copies_of_earlier_versions_are_removed_and_foreign_files_stay(tmp_path):
    name = f"{0:020d}-1-{1:032x}.log"
    for place in ("", "0", "17", "notes"):
        (tmp_path / place).mkdir(exist_ok=True)
        for file in (name, f"{name}.part", "notes.txt"):
            (tmp_path / place / file).write_bytes(b"")
    (tmp_path / "0" / "notes.txt").unlink()
    (tmp_path / "1").symlink_to(tmp_path / "notes")
    await remove_copies(str(tmp_path))
    await remove_copies(str(tmp_path / "absent"))
    left = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}  # follows no link
    assert left == {"17/notes.txt", f"notes/{name}", f"notes/{name}.part", "notes/notes.txt", "notes.txt"}
    assert not (tmp_path / "0").exists()
