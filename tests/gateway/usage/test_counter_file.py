"""A file of counters gives back what was counted in it, and is never taken for what it is not."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import Corrupt
from engine.runtime.disk import RealDisk
from engine.testing.faulty_disk import FaultyDisk, Rule
from gateway.usage.counter_file import CHUNK_BYTES, COUNTERS, ROW_BYTES, CounterFile, Origin, read_counters
from gateway.usage.meters import Usage

ORIGIN = Origin(490_000, "c1", 1, 0)


@pytest.fixture
def path(tmp_path) -> str:
    return str(tmp_path / "counters")


def read(path: str, origin: Origin = ORIGIN) -> dict[str, Usage]:
    with open(path, "rb") as file:
        return read_counters(file.read(), origin, path)


def counted(path: str, tenants: dict[str, Usage]) -> CounterFile:
    file = CounterFile(RealDisk(), path, ORIGIN)
    for tenant, usage in tenants.items():
        place = file.add(tenant)
        COUNTERS.pack_into(place.memory, place.at, *usage)
    return file


def test_the_counters_of_many_tenants_are_read_while_the_file_is_open(path):
    tenants = {f"t{number}": Usage(*range(number, number + 15)) for number in range(1000)}
    file = counted(path, tenants)
    assert read(path) == tenants
    file.sync()
    file.close()
    assert read(path) == tenants


def test_a_full_disk_is_an_error_of_the_tenant_that_has_no_room(path):
    disk = FaultyDisk(RealDisk())
    file = CounterFile(disk, path, ORIGIN)
    for number in range(CHUNK_BYTES // ROW_BYTES - 1):
        file.add(f"t{number}")
    disk.rules.append(Rule("pwritev", error=28))
    with pytest.raises(OSError, match="28"):
        file.add("last")
    disk.rules.clear()
    file.add("last")
    assert len(read(path)) == CHUNK_BYTES // ROW_BYTES


def test_a_write_that_found_no_room_leaves_a_file_that_is_read(path):
    disk = FaultyDisk(RealDisk())
    file = CounterFile(disk, path, ORIGIN)
    for number in range(CHUNK_BYTES // ROW_BYTES - 1):
        file.add(f"t{number}")
    disk.rules.append(Rule("pwritev", write_bytes=ROW_BYTES + 100))
    with pytest.raises(OSError):
        file.add("last")
    assert len(read(path)) == CHUNK_BYTES // ROW_BYTES - 1


def test_a_file_that_cannot_be_made_leaves_nothing(path, tmp_path):
    with pytest.raises(OSError):
        CounterFile(FaultyDisk(RealDisk(), [Rule("pwritev", error=28)]), path, ORIGIN)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "origin", [ORIGIN._replace(hour=1), ORIGIN._replace(node_id=2), ORIGIN._replace(cluster_id="c2")]
)
def test_a_file_of_another_hour_node_or_cluster_is_not_read(path, origin):
    counted(path, {"acme": Usage(1)})
    with pytest.raises(Corrupt, match="does not begin as a file of counters"):
        read(path, origin)


def test_zeros_and_nothing_have_no_counts():
    assert read_counters(b"", ORIGIN, "x") == read_counters(bytes(CHUNK_BYTES), ORIGIN, "x") == {}


def test_a_tenant_whose_process_was_killed_while_it_was_written_has_counted_nothing(path):
    counted(path, {"acme": Usage(1), "bolt": Usage()})
    with open(path, "r+b") as file:
        file.seek(2 * ROW_BYTES + 2)
        file.write(b"\0\0")
    assert read(path) == {"acme": Usage(1)}


@settings(max_examples=200)
@given(at=st.integers(0, CHUNK_BYTES - 1), flip=st.integers(1, 255))
def test_a_changed_byte_is_found_or_changes_a_counter_alone(tmp_path_factory, at, flip):
    """Counters have no checksum: they change all the time."""
    path = str(tmp_path_factory.mktemp("flip") / "counters")
    counted(path, {"acme": Usage(3, 4), "bolt": Usage(5)}).close()
    with open(path, "rb") as file:
        data = bytearray(file.read())
    data[at] ^= flip
    try:
        found = read_counters(bytes(data), ORIGIN, path)
    except Corrupt:
        return
    assert found.keys() == {"acme", "bolt"}


@given(data=st.binary(max_size=600))
def test_other_bytes_are_corrupt(data):
    if data.strip(b"\0"):
        with pytest.raises(Corrupt):
            read_counters(data, ORIGIN, "x")
