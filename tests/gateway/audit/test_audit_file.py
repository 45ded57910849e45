"""The audit files: what was appended stays, what could not be is not there, and what is odd is left alone."""

import errno
import os
from random import Random

import pytest

from engine.format.paths import META
from engine.format.spare_files import fill_spares
from engine.runtime.disk import RealDisk, read_file
from engine.testing.faulty_disk import FaultyDisk, Rule
from engine.testing.recording_disk import RecordingDisk
from gateway.audit.audit_file import AuditFile, AuditLimits

LIMITS = AuditLimits(1000, 3)


def text(number: int, size: int = 100) -> bytes:
    return b'{"n":%d,"x":"' % number + b"x" * (size - 20) + b'"}\n'


def opened(directory, disk=None, limits=LIMITS) -> AuditFile:
    file = AuditFile(disk or RealDisk(), str(directory), limits)
    file.open()
    return file


def content(directory) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(directory.glob("audit-*"))}


def test_lines_stay_over_restarts_in_the_same_file(tmp_path):
    for number in range(3):
        file = opened(tmp_path)
        file.append(text(number))
        file.close()
    assert content(tmp_path) == {"audit-00000001.jsonl": b"".join(map(text, range(3)))}


def test_a_full_file_gives_way_and_the_oldest_go(tmp_path):
    (tmp_path / "audit-00000001.jsonl.gz").write_bytes(b"of the operator")
    file = opened(tmp_path)
    for number in range(100):
        file.append(text(number))
    file.close()
    files = content(tmp_path)
    assert files.pop("audit-00000001.jsonl.gz") == b"of the operator"
    assert len(files) == LIMITS.files_max
    kept = b"".join(files.values())
    assert kept == b"".join(map(text, range(100)))[-len(kept) :]
    assert all(len(one) <= LIMITS.file_bytes_max for one in files.values())


@pytest.mark.parametrize(
    "tail", [b'{"n":1', b"\n\n", b"[1]\n", b"nonsense\n", bytes(100), b'{"n":1}\r\n\x00', b"\xff\xfe\n"]
)
def test_an_odd_end_is_kept_and_the_next_file_begins(tmp_path, tail):
    first = tmp_path / "audit-00000007.jsonl"
    first.write_bytes(text(0) + tail)
    file = AuditFile(RealDisk(), str(tmp_path), LIMITS)
    assert not file.open()
    file.append(text(1))
    file.close()
    assert content(tmp_path) == {first.name: text(0) + tail, "audit-00000008.jsonl": text(1)}


def test_a_directory_or_a_link_with_the_name_of_a_file_is_left_alone(tmp_path):
    (tmp_path / "audit-00000001.jsonl").mkdir()
    (tmp_path / "audit-00000002.jsonl").symlink_to("/etc/passwd")
    os.mkfifo(tmp_path / "audit-00000003.jsonl")
    file = opened(tmp_path)
    for number in range(100):
        file.append(text(number))
    file.close()
    assert (tmp_path / "audit-00000002.jsonl").is_symlink()
    assert (tmp_path / "audit-00000001.jsonl").is_dir()
    assert (tmp_path / "audit-00000003.jsonl").is_fifo()


def test_only_one_process_has_the_directory(tmp_path):
    file = opened(tmp_path)
    with pytest.raises(BlockingIOError):
        opened(tmp_path)
    file.close()
    opened(tmp_path).close()


@pytest.mark.parametrize(
    "rule",
    [
        Rule("pwritev", "audit-", first=2, error=errno.ENOSPC),
        Rule("pwritev", "audit-", first=2, error=errno.EIO),
        Rule("pwritev", "audit-", first=2, write_bytes=7),
        Rule("fdatasync", "audit-", first=2, error=errno.EIO),
    ],
    ids=str,
)
def test_a_failed_append_leaves_no_part_and_the_next_one_works(tmp_path, rule):
    file = opened(tmp_path, FaultyDisk(RealDisk(), [rule]))
    file.append(text(0))
    with pytest.raises(OSError):
        file.append(text(1))
    file.append(text(2))
    file.close()
    assert b"".join(content(tmp_path).values()) == text(0) + text(2)


def test_a_file_that_cannot_be_cut_is_left_with_its_part(tmp_path):
    rules = [Rule("pwritev", "audit-", first=2, write_bytes=7), Rule("truncate", "audit-", error=errno.EIO)]
    file = opened(tmp_path, FaultyDisk(RealDisk(), rules))
    file.append(text(0))
    with pytest.raises(OSError, match="short write"):
        file.append(text(1))
    file.append(text(2))
    file.close()
    assert list(content(tmp_path).values()) == [text(0) + text(1)[:7], text(2)]


def test_a_full_disk_takes_lines_as_long_as_a_spare_file_has_room(tmp_path):
    (tmp_path / META).write_text("{}")
    disk = FaultyDisk(RealDisk())
    assert fill_spares(disk, str(tmp_path))
    file = opened(tmp_path / "audit", disk, AuditLimits(1 << 20, 9))
    file.append(text(0))
    disk.rules += [
        Rule("pwritev", "audit-00000001", times=None, error=errno.ENOSPC),
        Rule("open", "audit-00000003", times=None, error=errno.ENOSPC),
    ]
    for number in range(1, 200):
        file.append(text(number))
    spares = sorted(path.stat().st_size for path in (tmp_path / "spare").iterdir())
    assert spares == [16 * 1024] * 6 + [64 * 1024], "one of the large ones was used, and none of the small ones"
    file.close()
    files = content(tmp_path / "audit")
    assert b"".join(files.values()) == b"".join(map(text, range(200)))
    assert len(files) == 2


def test_after_a_power_loss_every_line_that_was_taken_is_there():
    disk = RecordingDisk()
    disk.mkdir("/d")
    disk.fsync_dir("/")
    file = AuditFile(disk, "/d/audit", AuditLimits(250, 100))
    file.open()
    for taken in range(1, 7):
        file.append(text(taken))
        for state in disk.crash_states(50, Random(taken)):
            after = AuditFile(state, "/d/audit", AuditLimits(250, 100))
            after.open()
            names = [name for name in state.listdir("/d/audit") if name.startswith("audit-")]
            found = b"".join(read_file(state, f"/d/audit/{name}") or b"" for name in names)
            assert found == b"".join(map(text, range(1, taken + 1)))
