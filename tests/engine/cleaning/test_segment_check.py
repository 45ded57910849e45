"""The check of a sealed segment file finds every change of a byte, and attributes it to as few records as possible."""

from pathlib import Path

import pytest

from engine.cleaning.segment_check import SealedFile, examine
from engine.format import paths
from engine.format.batch import Row, encode, stamp
from engine.format.checksum import at_once, checksum_of, load_checksum, save_checksum
from engine.log.damaged_ranges import Damage
from engine.log.segment import Segment, save_index
from engine.runtime.disk import RealDisk
from engine.testing.faulty_disk import FaultyDisk, Rule

DISK = RealDisk()
BASE = 1000


@pytest.fixture
def batches() -> list[bytes]:
    """Return eight batches of three records; some smaller and some larger than the distance of index entries."""
    made = []
    for number in range(8):
        data = encode([Row(5, b"k", b"%d" % number * (900 if number % 2 else 2000), []) for _ in range(3)])
        stamp(data, BASE + 3 * number, 7)
        made.append(bytes(data))
    return made


@pytest.fixture
def sealed(tmp_path, batches) -> SealedFile:
    """Write a segment as the engine leaves it: with its indexes and its checksum."""
    data = b"".join(batches)
    path = tmp_path / paths.segment_file(BASE, paths.LOG)
    path.write_bytes(data)
    segment = Segment(DISK, str(tmp_path), BASE, size_bytes=len(data), next_offset=BASE + 24)
    save_index(DISK, segment)
    segment.close()
    save_checksum(DISK, str(path), checksum_of(DISK, str(path)))
    return SealedFile(str(path), BASE, BASE + 24, len(data))


def change(file: SealedFile, position: int, mask: int = 1) -> None:
    data = bytearray(Path(file.path).read_bytes())
    data[position] ^= mask
    Path(file.path).write_bytes(data)


def lose_what_is_beside(file: SealedFile, *suffixes: str) -> None:
    for suffix in suffixes:
        Path(paths.beside_log(file.path, suffix)).unlink()


def place(batches: list[bytes], first: int, end: int) -> Damage:
    """Return the damage of the batches from `first` to before `end`."""
    sizes = [len(data) for data in batches]
    return Damage(BASE + 3 * first, BASE + 3 * end, sum(sizes[:first]), sum(sizes[:end]))


def test_every_changed_byte_is_found(sealed, batches):
    for position in range(0, sealed.size_bytes, 61):
        change(sealed, position)
        assert examine(DISK, sealed, at_once).damage, f"byte {position}"
        change(sealed, position)
    assert examine(DISK, sealed, at_once).damage == ()


@pytest.mark.parametrize("suffixes", [(), (paths.CHECKSUM,), (paths.OFFSET_INDEX,), (paths.CHECKSUM, paths.TIME_INDEX)])
def test_a_bad_record_damages_its_batch_alone(sealed, batches, suffixes):
    lose_what_is_beside(sealed, *suffixes)
    change(sealed, place(batches, 2, 3).start_position + 100)
    assert examine(DISK, sealed, at_once).damage == (place(batches, 2, 3),)


def test_a_bad_header_damages_up_to_the_next_index_entry_at_most(sealed, batches):
    change(sealed, place(batches, 2, 3).start_position + 11, 0xFF)  # its length
    (damage,) = examine(DISK, sealed, at_once).damage
    assert (damage.start_offset, damage.start_position) == place(batches, 2, 3)[0::2]
    assert damage.end_offset <= BASE + 3 * 4


def test_without_an_index_a_bad_header_damages_its_batch_alone(sealed, batches):
    lose_what_is_beside(sealed, paths.OFFSET_INDEX)
    change(sealed, place(batches, 2, 3).start_position + 11, 0xFF)
    assert examine(DISK, sealed, at_once).damage == (place(batches, 2, 3),)


def test_neighbours_are_one_damage_and_others_are_not(sealed, batches):
    for number in (1, 2, 5):
        change(sealed, place(batches, number, number + 1).start_position + 100)
    assert examine(DISK, sealed, at_once).damage == (place(batches, 1, 3), place(batches, 5, 6))


def test_a_changed_leader_epoch_puts_the_whole_segment_in_doubt(sealed, batches):
    change(sealed, place(batches, 2, 3).start_position + 15)
    assert examine(DISK, sealed, at_once).damage == (place(batches, 0, 8),)


def test_a_file_cut_short_lacks_its_last_records(sealed, batches):
    end = place(batches, 6, 8)
    Path(sealed.path).write_bytes(b"".join(batches[:6]))
    assert examine(DISK, sealed, at_once).damage == (Damage(*end[:2], end.start_position, end.start_position),)


def test_a_missing_checksum_is_made_and_a_bad_one_too(sealed):
    for change_it in (Path.unlink, lambda path: path.write_text("nonsense")):
        change_it(Path(paths.beside_log(sealed.path, paths.CHECKSUM)))
        assert examine(DISK, sealed, at_once).damage == ()
        assert load_checksum(DISK, sealed.path) == checksum_of(DISK, sealed.path)


def test_no_checksum_is_made_for_damaged_records(sealed, batches):
    lose_what_is_beside(sealed, paths.CHECKSUM)
    change(sealed, 100)
    assert examine(DISK, sealed, at_once).damage == (place(batches, 0, 1),)
    assert load_checksum(DISK, sealed.path) is None


def test_what_the_disk_cannot_give_is_damaged(sealed, batches):
    disk = FaultyDisk(DISK, [Rule("pread", paths.LOG, times=None, error=5)])
    assert examine(disk, sealed, at_once).damage == (place(batches, 0, 8),)


def test_every_byte_read_is_counted_for_the_pace(sealed):
    counted: list[int] = []
    examine(DISK, sealed, counted.append)
    assert sum(counted) == sealed.size_bytes
