"""The audit files read back: pages of any size give each event once, the newest first, and one answer reads little."""

from pathlib import Path
from random import Random

import orjson
import pytest

from engine.runtime.disk import RealDisk
from gateway.audit.reading import SCAN_BYTES_MAX, AuditFilters, AuditPage, read_back

DISK, ANY = RealDisk(), AuditFilters()


def event(number: int, size: int = 0, kind: str = "denied") -> bytes:
    data = {"principal": f"token:{number % 3}", "resource": {"kind": "topic", "name": "t"}, "x": "x" * size}
    fields = {"type": f"penstock.audit.v1.{kind}", "time": "2026-11-27T14:08:34.994Z", "id": str(number), "data": data}
    return orjson.dumps(fields | {"subject": "topic/t"}) + b"\n"


def write(directory: Path, *files: bytes) -> None:
    for number, content in enumerate(files, 1):
        (directory / f"audit-{number:08d}.jsonl").write_bytes(content)


def read_all(directory: Path, limit: int, filters: AuditFilters = ANY) -> tuple[list[int], int, int]:
    """Return the ids in the order of pages, the number of odd lines, and of pages."""
    ids, odd, pages = [], 0, 0
    page = AuditPage(True, [], None)
    while not pages or page.next is not None:
        page = read_back(DISK, str(directory), page.next, limit, filters)
        ids += [int(orjson.loads(row)["id"]) for row in page.events]
        odd, pages = odd + page.odd, pages + 1
    return ids, odd, pages


@pytest.mark.parametrize("limit", [1, 7, 1000])
def test_pages_have_each_event_once_and_the_newest_first(tmp_path: Path, limit: int) -> None:
    random = Random(limit)
    rows = [event(number, random.choice((0, 40, 60_000))) for number in range(60)]
    odd = b'{"half": \nnot ours\n\xff\n{"deep":' + b"[" * 60_000 + b"\n"
    odd += b"y" * 700_000 + b"\n"  # longer than any line of ours
    write(tmp_path, b"".join(rows[:20]), odd + b"".join(rows[20:50]) + b"\0" * 600_000, b"".join(rows[50:]) + b'{"cut')
    (tmp_path / "audit-00000002.jsonl.bak").write_bytes(event(99))
    ids, odd_lines, _ = read_all(tmp_path, limit)
    assert ids == [*reversed(range(60))]
    assert odd_lines >= 4


def test_one_answer_reads_a_bounded_part_and_says_where_to_go_on(tmp_path: Path) -> None:
    write(tmp_path, event(1) + event(2, 60_000) * 120)
    filters = AuditFilters(principal="token:1", resource="topic/t", kinds=("denied",))
    page = read_back(DISK, str(tmp_path), None, 50, filters)
    assert (page.events, page.next is not None) == ([], True)
    assert SCAN_BYTES_MAX < 120 * 60_000
    assert read_all(tmp_path, 50, filters)[0] == [1]
    assert read_all(tmp_path, 50, filters._replace(resource="topic"))[0] == [1]
    assert read_all(tmp_path, 50, filters._replace(kinds=("refused",)))[0] == []


def test_a_position_in_a_file_that_is_gone_or_shorter_goes_on_before_it(tmp_path: Path) -> None:
    write(tmp_path, event(1), event(2), event(3))
    page = read_back(DISK, str(tmp_path), (9, 10**9), 1, ANY)
    assert '"id":"3"' in page.events[0]
    assert page.next is not None
    (tmp_path / "audit-00000002.jsonl").unlink()
    assert '"id":"1"' in read_back(DISK, str(tmp_path), page.next, 9, ANY).events[0]
    assert read_back(DISK, str(tmp_path / "none"), None, 9, ANY) == AuditPage(True, [])
