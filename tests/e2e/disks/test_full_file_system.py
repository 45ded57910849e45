"""A node on a full file system, over HTTP: 507; reads and deletes continue; more space ends the errors.

A start uses the spare files of its data directory; a first start prints one line and exits with a code.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests import disk_faults
from tests.e2e.lifecycle.test_shards import children, is_alive
from tests.e2e.node_process import refused_start, running_process
from tests.scenarios.conformity import assert_problem
from tests.scenarios.gateways import Topic, over_http2
from tests.waiting import wait_until

pytestmark = pytest.mark.e2e

SIZE_MIB, FILLER_MIB = 12, 6
CONFIG = {"segment_bytes": 1 << 20, "batch_bytes_max": 1 << 20}
BODY = b"v" * 400_000
BINARY = "application/octet-stream"


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    try:
        with disk_faults.small_file_system(tmp_path / "small", SIZE_MIB, disk_faults.make_tmpfs) as mounted:
            yield mounted
    except disk_faults.CannotMount as error:
        pytest.skip(str(error))


async def fill(topic) -> int:
    """Produce until the disk is full; return how many records were accepted."""
    for taken in range(1000):
        answer = await topic.post(BODY, BINARY)
        if answer.status != 200:
            assert answer.status == 507
            assert_problem(answer, "storage_full", retryable=True, no_side_effects=True)
            return taken
    raise AssertionError("the disk is never full")


async def records_of(topic) -> int:
    offset, count = 0, 0
    while True:
        answer = await topic.fetch(offset, value="base64", max_bytes=1 << 20)
        assert answer.status == 200
        if not answer.json["records"]:
            return count
        count += len(answer.json["records"])
        offset = answer.json["next_offset"]


async def test_a_full_disk_refuses_produces_only_and_recovers_by_itself(small):
    filler = small / "filler"
    filler.write_bytes(bytes(FILLER_MIB << 20))
    with running_process(small) as process:
        async with over_http2(process.port) as gateway:
            other, topic = await gateway.create("other", **CONFIG), await gateway.create("t", **CONFIG)
            assert (await other.post(b"kept", "text/plain")).status == 200
            taken = await fill(topic)
            assert taken > 0
            for acks in ("1", "all"):
                assert (await topic.post(BODY, BINARY, acks=acks)).status == 507, "it stays so"
            assert (await topic.positions())["log_end"] == taken
            assert await records_of(topic) == taken
            assert await other.values() == ["kept"]
            assert (await gateway.send("GET", "/readyz")).status == 200
            half = taken // 2
            answer = await gateway.send("DELETE", f"{topic.path}/partitions/0/records", before=half)
            assert answer.status in (200, 507), answer.body
            assert (await gateway.send("DELETE", other.path)).status == 204
            filler.unlink()
            assert (await topic.post(BODY, BINARY)).status == 200, "it recovers without an operator"
            assert (await topic.positions())["log_end"] == taken + 1
        assert process.stop() == 0
        assert "Traceback" not in process.errors
    with running_process(small) as process:
        async with over_http2(process.port) as gateway:
            assert (await Topic(gateway, "t").positions())["log_end"] == taken + 1


def leave_no_room(directory: Path) -> Path:
    """Fill a file system to its last byte; return the file that does it."""
    filler = directory / "filler"
    with filler.open("ab", buffering=0) as file:
        for size in (1 << 20, 4096, 1):
            with suppress(OSError):
                while True:
                    file.write(bytes(size))
    assert os.statvfs(directory).f_bavail == 0
    return filler


def assert_refused_for_room(small: Path, **settings: object) -> None:
    code, out, err = refused_start(port=0, data_dir=small / "data", **settings)
    assert (code, out) == (1, ""), err
    assert "Traceback" not in err
    line = err.splitlines()[-1]
    assert line.startswith("penstock: "), err
    assert "no space" in line.lower(), err
    assert "free" in line, err


async def test_a_node_that_was_killed_starts_on_a_full_disk_and_serves_what_it_has(small, tmp_path):
    data_dir = small / "data"
    with running_process(tmp_path, data_dir=data_dir) as process:
        async with over_http2(process.port) as gateway:
            topic = await gateway.create("t", **CONFIG)
            for _ in range(3):
                assert (await topic.post(BODY, BINARY)).status == 200
        process.kill()
    filler = leave_no_room(small)
    for stop in (False, True):
        with running_process(tmp_path, data_dir=data_dir) as process:
            async with over_http2(process.port) as gateway:
                topic = Topic(gateway, "t")
                assert await records_of(topic) == 3
                answer = await topic.post(BODY, BINARY)
                assert answer.status == 507
                assert_problem(answer, "storage_full", retryable=True, no_side_effects=True)
            if stop:
                assert process.stop() == 0
            else:
                process.kill()
            assert "Traceback" not in process.errors
    filler.unlink()
    with running_process(tmp_path, data_dir=data_dir) as process:
        async with over_http2(process.port) as gateway:
            assert (await Topic(gateway, "t").post(BODY, BINARY)).status == 200
            assert await records_of(Topic(gateway, "t")) == 4
        assert process.stop() == 0


@pytest.mark.parametrize(
    ("forms", "end"),
    [
        pytest.param({}, "stopped", marks=pytest.mark.long),
        ({"shards": 2}, "killed"),
        pytest.param({"coordination": "embedded"}, "stopped", marks=pytest.mark.long),
    ],
    ids=["one process", "two shards", "embedded"],
)
async def test_a_start_on_a_full_disk_is_served_by_its_spare_files(small, tmp_path, forms, end):
    """It was refused until `running`, the recovery points of shards and the journal could use the spare files."""
    data_dir = small / "data"
    with running_process(tmp_path, data_dir=data_dir, **forms) as process:
        async with over_http2(process.port) as gateway:
            topic = await gateway.create("t", **CONFIG)
            assert (await topic.post(BODY, BINARY)).status == 200
        if end == "stopped":
            assert process.stop() == 0
        else:
            left = children(process.pid).values()
            process.kill()
            wait_until(lambda: not any(map(is_alive, left)))
    filler = leave_no_room(small)
    with running_process(tmp_path, data_dir=data_dir, **forms) as process:
        async with over_http2(process.port) as gateway:
            topic = Topic(gateway, "t")
            assert await records_of(topic) == 1
            assert (await topic.post(BODY, BINARY)).status == 507
            assert (await gateway.send("DELETE", topic.path)).status == 204
        process.stop()
        assert "Traceback" not in process.errors
    filler.unlink()
    with running_process(tmp_path, data_dir=data_dir, **forms) as process:
        async with over_http2(process.port) as gateway:
            topic = await gateway.create("t", **CONFIG)
            assert (await topic.post(BODY, BINARY)).status == 200
        assert process.stop() == 0


def test_a_first_start_on_a_full_disk_is_refused_in_one_line(small):
    filler = leave_no_room(small)
    assert_refused_for_room(small)
    filler.unlink()
    with running_process(small) as process:
        assert process.stop() == 0
