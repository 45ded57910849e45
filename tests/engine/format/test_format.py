"""engine/format/FORMAT.md is correct: every example in it is parsed byte by byte, and by the code itself."""

import hashlib
import re
import struct
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from crc32c import crc32c

from engine.compaction.progress import Progress, Round, load_progress, save_progress
from engine.directory.data_directory import DataDirectory, Identity, open_data_directory
from engine.directory.high_watermark_checkpoint import load_high_watermarks, save_high_watermarks
from engine.directory.log_directories import LogDirectories, open_data_directories
from engine.directory.topic_scan import scan_topics
from engine.directory.topics import save_topic
from engine.format import batch, keyed_batch, paths
from engine.format.checksum import Checksum, decode_checksum, encode_checksum
from engine.format.control_batch import encode_fence, read_fence
from engine.format.index import SegmentIndex, load_index
from engine.format.small_file import rows_as_text
from engine.log.damaged_ranges import Damage, decode_quarantine, encode_quarantine
from engine.log.leader_epochs import load_epochs, save_epochs
from engine.log.recovery import Checkpoint, LastShutdown
from engine.log.segment_swap import Swap, begin_swap, load_swap, new_file_path
from engine.producers import key_window
from engine.producers.fence_file import load_fence
from engine.producers.fencing import Fence
from engine.producers.sequences import Producer
from engine.producers.snapshots import State, decode_state, encode_state
from engine.producers.sources import Source, source_hash
from engine.runtime.disk import RealDisk
from replication.cluster.registration_state import RegistrationState, load_registration_state, save_registration_state
from replication.cluster.start_counter import StartCounter, load_start_counter, save_start_counter
from tests.engine.format.first_entry import read_entry

PAGE = Path(batch.__file__).with_name("FORMAT.md").read_text()
FENCE = re.compile(r"^```\w+ (?P<name>[\w.-]+)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
EXAMPLES = {match["name"]: match["body"] for match in FENCE.finditer(PAGE)}
EXAMPLE_DIRECTORY = "6f1e1fd1ed0c4b50a9c0a0f4d2b0d3c1"
ROW = re.compile(r"^(?P<at>\d+) +(?P<bytes>[0-9a-f]{2}(?: [0-9a-f]{2})*)  +(?P<type>\w+) +(?P<rest>.*)$")
STRUCTS = {"i64": ">q", "i32": ">i", "i16": ">h", "i8": ">b", "u32": ">I", "u16": ">H"}


class Row(NamedTuple):
    at: int
    data: bytes
    type: str
    field: str
    value: str


def rows_of(name: str) -> list[Row]:
    """Return the rows of a table of bytes. Each must be parseable, so that every row of the page is checked."""
    _, *lines = EXAMPLES[name].splitlines()
    rows = []
    for line in lines:
        match = ROW.match(line)
        assert match is not None, f"not a row: {line!r}"
        field, value = re.split(r"  +", match["rest"])
        rows.append(Row(int(match["at"]), bytes.fromhex(match["bytes"]), match["type"], field, value))
    return rows


def decoded(row: Row) -> str:
    """Decode the bytes of a row by its type alone."""
    if row.type == "bytes":
        return row.data.decode()
    if row.type == "hash":
        return row.data.hex()
    if row.type == "u48":
        return str(int.from_bytes(row.data, "big"))
    if row.type == "varint":
        unsigned = sum((byte & 0x7F) << (7 * place) for place, byte in enumerate(row.data))
        return str(unsigned >> 1 ^ -(unsigned & 1))
    return str(struct.unpack(STRUCTS[row.type], row.data)[0])


def bytes_of(rows: list[Row]) -> bytes:
    return b"".join(row.data for row in rows)


def values_of(rows: list[Row], field: str) -> Iterator[int]:
    return (int(row.value) for row in rows if row.field == field)


@pytest.mark.parametrize(
    "name", ["batch", "entry", "requests", "keys", "control", "index", "timeindex", "snapshot", "source", "sources"]
)
def test_each_row_stands_where_it_says_and_means_what_it_says(name):
    position = 0
    for row in rows_of(name):
        assert row.at == position, row
        assert decoded(row) == row.value, row
        position += len(row.data)


def test_the_entry_of_the_example_is_read_from_a_batch_that_carries_it():
    key, request, partitions, time_ms = rows_of("entry")
    entry = keyed_batch.KeyEntry(key.data, request.data, int(partitions.value), int(time_ms.value))
    name, value = keyed_batch.stored_entry(entry)
    assert value == bytes_of(rows_of("entry"))
    assert name in PAGE
    assert key.data == hashlib.blake2b(b"order-7", digest_size=keyed_batch.HASH_BYTES).digest()
    encoded = batch.encode_values([b"1"], int(time_ms.value), entry=(name, value))
    assert batch.read_header(encoded).producer_id == -2
    assert read_entry(encoded) == entry


def test_the_entry_of_a_source_is_read_from_a_batch_that_carries_it():
    source, first, last, _, time_ms = rows_of("source")
    entry = keyed_batch.SourceEntry(source.data, int(first.value), int(last.value), int(time_ms.value))
    stored = keyed_batch.stored_entry(entry)
    assert stored[1] == bytes_of(rows_of("source"))
    assert source.data == source_hash("etl/orders/3")
    assert read_entry(batch.encode_values([b"1"], 5, entry=stored)) == entry


def test_the_requests_of_the_example_are_read_from_a_batch_that_carries_them():
    rows = rows_of("requests")
    key_hash, request_hash, partitions, time_ms, *of_key = rows[:6]
    producer, epoch, sequence, _, latest, _, _, _, first, count = rows[6:]
    key = keyed_batch.KeyEntry(key_hash.data, request_hash.data, int(partitions.value), int(time_ms.value))
    sequenced = keyed_batch.SequenceEntry(*(int(one.value) for one in (producer, epoch, sequence, latest)))
    requests = [
        keyed_batch.RequestEntry(key, *(int(one.value) for one in of_key)),
        keyed_batch.RequestEntry(sequenced, int(first.value), int(count.value)),
    ]
    stored = keyed_batch.stored_rows(requests)
    assert stored[1] == bytes_of(rows)
    encoded = batch.encode([(5, None, b"1", [])] * 5, entry=stored, sequenced=(-1, -1, 2))
    assert keyed_batch.read_entries(encoded) == requests


def test_the_engine_reads_and_writes_sources_of_snapshots_as_shown():
    rows = rows_of("sources")
    fields = array("q", [int(row.value) for row in rows[3:]])
    state = State(118, sources=[(rows[0].data, Source(int(rows[1].value), fields))])
    data = encode_state(state)
    assert data.endswith(bytes_of(rows))
    found = decode_state(data, 118)
    assert found is not None
    assert encode_state(found) == data
    assert encode_state(State(118)) == encode_state(State(118, sources=[])), "none: as before sources"


def test_lengths_of_the_example_agree_with_its_bytes():
    rows = rows_of("batch")
    size_bytes = len(bytes_of(rows))
    assert next(values_of(rows, "batch length")) == size_bytes - batch.PREFIX_BYTES
    starts = [row.at for row in rows if row.field == "length"]
    assert starts[0] == batch.HEADER_BYTES
    ends = [*starts[1:], size_bytes]
    for start, end, length in zip(starts, ends, values_of(rows, "length"), strict=True):
        assert length == end - start - 1  # the length itself takes one byte here


def test_the_checksum_of_the_example_covers_what_the_page_says():
    rows = rows_of("batch")
    begins = next(row.at for row in rows if row.field == "attributes")
    assert crc32c(bytes_of(rows)[begins:]) == next(values_of(rows, "CRC-32C"))


def test_the_engine_writes_the_bytes_of_the_example():
    unit: list[tuple[str, bytes | None]] = [("unit", b"USD")]
    made = batch.encode(
        [
            batch.Row(1_700_000_000_000, b"taxi-7", b'{"fare":12.5}', unit),
            batch.Row(1_700_000_000_250, b"taxi-7", None, []),
        ]
    )
    batch.stamp(made, base_offset=41, leader_epoch=3)
    assert bytes(made) == bytes_of(rows_of("batch"))


def test_the_engine_reads_the_bytes_of_the_example():
    data = bytes_of(rows_of("batch"))
    ((position, header),) = batch.walk(data)
    assert batch.has_valid_crc(data, position, header)
    assert [(r.offset, r.timestamp, r.key, r.value) for r in batch.decode(data)] == [
        (41, 1_700_000_000_000, b"taxi-7", b'{"fare":12.5}'),
        (42, 1_700_000_000_250, b"taxi-7", None),
    ]


def test_the_engine_writes_and_reads_the_control_batch_of_the_example():
    data = bytes_of(rows_of("control"))
    made = encode_fence("writer-2", 1_700_000_000_500)
    batch.stamp(made, base_offset=43, leader_epoch=3)
    assert bytes(made) == data
    assert read_fence(data) == "writer-2"


def test_the_engine_makes_the_index_files_of_the_example():
    _, *lines = EXAMPLES["batches"].splitlines()
    header = batch.read_header(bytes_of(rows_of("batch")))
    index = SegmentIndex(1000)
    for position, base_offset, max_timestamp in (map(int, line.split()) for line in lines):
        index.add(header._replace(base_offset=base_offset, max_timestamp=max_timestamp), position)
    offsets, times = bytes_of(rows_of("index")), bytes_of(rows_of("timeindex"))
    assert (index.offset_index_bytes(15_000), index.time_index_bytes(15_000)) == (offsets, times)
    loaded = load_index(1000, offsets, times, 15_000)
    assert loaded is not None
    assert loaded.positions == index.positions
    assert load_index(1000, offsets, times, 14_999) is None, "made for a segment of another size"


def test_the_engine_reads_and_writes_keys_of_snapshots_as_shown():
    rows = rows_of("keys")
    assert len(bytes_of(rows[2:])) == key_window.ROW.size
    data = encode_state(State(118, keys=bytes_of(rows[2:]), key_files=(96,)))
    assert data.endswith(bytes_of(rows))
    state = decode_state(data, 118)
    assert state is not None
    assert (state.keys, state.key_files) == (bytes_of(rows[2:]), (96,))
    key_hash, request_hash, *numbers = key_window.ROW.unpack(state.keys)
    assert (key_hash, request_hash) == (rows[2].data, rows[3].data)
    assert numbers == [int(row.value) for row in rows[4:]]


def test_the_engine_reads_and_writes_snapshots_as_shown():
    batches = array("q", [0, 2, 96, 1_700_000_000_000, 3, 4, 110, 1_700_000_000_250])
    state = State(118, [(1007, Producer(2, 5, 1_700_000_000_900, batches))])
    data = bytes_of(rows_of("snapshot"))
    assert encode_state(state) == data
    found = decode_state(data, 118)
    assert found is not None
    assert encode_state(found) == data


def test_the_engine_reads_and_writes_recovery_points_as_shown(tmp_path):
    (tmp_path / paths.RECOVERY_POINTS).write_text(EXAMPLES["recovery-points"])
    directory = DataDirectory(RealDisk(), str(tmp_path), Identity("", 1), last_shutdown=LastShutdown.KILLED)
    points = directory.load_checkpoints()
    topic_id = "eaa0ec4499334a868153b0a426f98c19"
    assert points == {f"{topic_id}/0": Checkpoint(6, 0), f"{topic_id}/1": Checkpoint(118, 40)}
    (tmp_path / paths.RECOVERY_POINTS).unlink()
    directory.save_checkpoints(points)
    assert (tmp_path / paths.RECOVERY_POINTS).read_text() == EXAMPLES["recovery-points"]


def test_recovery_points_of_format_1_are_still_read(tmp_path):
    _, _, *rows, _ = EXAMPLES["recovery-points"].splitlines()
    (tmp_path / paths.RECOVERY_POINTS).write_text("\n".join(["penstock recovery-points 1", "2", *rows]) + "\n")
    directory = DataDirectory(RealDisk(), str(tmp_path), Identity("", 1), last_shutdown=LastShutdown.KILLED)
    assert sorted(directory.load_checkpoints().values()) == [Checkpoint(6, 0), Checkpoint(118, 40)]


def test_the_engine_reads_and_writes_high_watermarks_as_shown(tmp_path):
    (tmp_path / paths.HIGH_WATERMARKS).write_text(EXAMPLES["high-watermarks"])
    hints = load_high_watermarks(RealDisk(), str(tmp_path))
    assert hints == {"eaa0ec4499334a868153b0a426f98c19/1": 97}
    save_high_watermarks(RealDisk(), str(tmp_path), 0, hints)
    assert (tmp_path / paths.high_watermarks_file(0)).read_text() == EXAMPLES["high-watermarks"]


def test_the_engine_reads_and_writes_leader_epochs_as_shown(tmp_path):
    (tmp_path / paths.LEADER_EPOCHS).write_text(EXAMPLES["leader-epochs"])
    epochs = load_epochs(RealDisk(), str(tmp_path))
    assert epochs == [(1, 0), (4, 118)]
    save_epochs(RealDisk(), str(tmp_path), epochs)
    assert (tmp_path / paths.LEADER_EPOCHS).read_text() == EXAMPLES["leader-epochs"]


def test_the_engine_reads_the_kept_token_as_shown(tmp_path):
    (tmp_path / paths.FENCED).write_text(EXAMPLES["fenced"])
    assert load_fence(RealDisk(), str(tmp_path)) == Fence("writer-7", 17)
    assert rows_as_text("penstock fenced 1", ["17 writer-7"]).decode() == EXAMPLES["fenced"]


def test_replication_reads_and_writes_the_registration_state_as_shown(tmp_path):
    (tmp_path / paths.REGISTRATION_STATE).write_text(EXAMPLES["vouching"])
    found = load_registration_state(RealDisk(), str(tmp_path), LastShutdown.CLEAN)
    assert found == RegistrationState(4294967298, None, "0a4f6b1c2d3e4f5061728394a5b6c7d8")
    save_registration_state(RealDisk(), str(tmp_path), found)
    assert (tmp_path / paths.REGISTRATION_STATE).read_text() == EXAMPLES["vouching"]


def test_replication_reads_and_writes_the_start_counter_as_shown(tmp_path):
    (tmp_path / paths.START_COUNTER).write_text(EXAMPLES["start-counter"])
    found = load_start_counter(RealDisk(), str(tmp_path))
    assert found == StartCounter(17, ("5b8f0c6e9d2a4713a0c4d1e6f7b28390",), 0)
    save_start_counter(RealDisk(), str(tmp_path), found)
    assert (tmp_path / paths.START_COUNTER).read_text() == EXAMPLES["start-counter"]


def test_the_engine_reads_and_writes_checksums_and_quarantines_as_shown():
    checksum, damages = Checksum(67_108_012, 0x0F3A91C4), (Damage(1020, 1031, 6000, 9000),)
    assert encode_checksum(checksum).decode() == EXAMPLES["checksum"]
    assert decode_checksum(EXAMPLES["checksum"].encode()) == checksum
    assert encode_quarantine(damages).decode() == EXAMPLES["quarantine"]
    assert decode_quarantine(EXAMPLES["quarantine"].encode(), 1000, 1050, 15_000) == damages


def test_the_engine_reads_and_writes_swaps_and_the_progress_of_compaction_as_shown(tmp_path):
    swap = Swap(1024, (4096, 9120), Checksum(15_731_002, 0x0F3A91C4), 1_700_000_000_000)
    Path(new_file_path(str(tmp_path), 1024)).touch()
    begin_swap(RealDisk(), str(tmp_path), swap)
    path = tmp_path / paths.segment_file(1024, paths.SWAP)
    assert path.read_text() == EXAMPLES["swap"]
    assert load_swap(RealDisk(), str(tmp_path), 1024) == swap
    Path(new_file_path(str(tmp_path), 1024, paths.REPAIRED)).touch()
    begin_swap(RealDisk(), str(tmp_path), repair := Swap(1024, (), Checksum(5, 0x0F), 1000, paths.REPAIRED))
    assert path.read_text().splitlines()[2] == "5 0000000f 1000 repaired"
    assert load_swap(RealDisk(), str(tmp_path), 1024) == repair
    progress = Progress(12288, (Round(4096, 1_700_000_000_000), Round(12288, 1_700_003_600_000)))
    save_progress(RealDisk(), str(tmp_path), progress)
    assert (tmp_path / paths.CLEANED).read_text() == EXAMPLES["cleaned"]
    assert load_progress(RealDisk(), str(tmp_path)) == progress


def test_the_engine_reads_and_writes_meta_and_running_as_shown(tmp_path):
    def opened(boot_id: str) -> DataDirectory:
        return open_data_directory(
            RealDisk(),
            str(tmp_path),
            node_id=1,
            cluster_id=None,
            boot_id=boot_id,
            new_id=lambda: "f42e6bbca2a04691b707cde14e721bd3",
        )

    opened("0b5ad4a6-63f9-4b43-a9d7-2f6f4c1e9d0c").release()
    assert (tmp_path / paths.META).read_text() == EXAMPLES["meta"].rstrip()
    assert (tmp_path / paths.RUNNING).read_text() == EXAMPLES["running"].rstrip()
    directory = opened("another")
    assert directory.last_shutdown is LastShutdown.POWER_LOSS, "running was there, from another boot"
    directory.close_clean()
    assert not (tmp_path / paths.RUNNING).exists()


def test_the_engine_reads_and_writes_the_meta_of_several_directories_as_shown(tmp_path):
    first, further = tmp_path / "a", tmp_path / "b"
    ids = iter(("f42e6bbca2a04691b707cde14e721bd3", "6f1e1fd1ed0c4b50a9c0a0f4d2b0d3c1"))

    def opened() -> LogDirectories:
        return open_data_directories(
            RealDisk(),
            [str(first), str(further)],
            node_id=1,
            cluster_id=None,
            boot_id="boot",
            new_id=ids.__next__,
        )

    for _ in range(2):  # written, then read: no third id is drawn
        directories = opened()
        assert [directory.fault for directory in directories] == [None, None]
        directories.release()
        shown = EXAMPLES["meta-of-the-first"].rstrip().replace("/mnt/b/penstock-data", str(further))
        assert (first / paths.META).read_text() == shown
        assert (further / paths.META).read_text() == EXAMPLES["meta-of-a-further-one"].rstrip()


@pytest.mark.parametrize("example", ["topic.json", "topic-elsewhere.json", "topic-hosted.json"])
def test_the_engine_reads_and_writes_topic_json_as_shown(tmp_path, example):
    disk, topic_id = RealDisk(), "eaa0ec4499334a868153b0a426f98c19"
    home = tmp_path / "topics" / "rides" / topic_id
    home.mkdir(parents=True)
    (home / paths.TOPIC_FILE).write_text(EXAMPLES[example])
    (topic,) = scan_topics(disk, str(tmp_path)).records
    expected = {
        "topic.json": (60_000, {}, None),
        "topic-elsewhere.json": (3_600_000, {"1": EXAMPLE_DIRECTORY}, None),
        "topic-hosted.json": (3_600_000, {}, (0,)),
    }
    assert (topic.name, topic.partitions) == ("rides", 2)
    assert (topic.settings.segment_ms, topic.directory_ids, topic.hosted) == expected[example]
    save_topic(disk, str(tmp_path), topic)
    assert (home / paths.TOPIC_FILE).read_text() == EXAMPLES[example].rstrip()
    assert (
        sorted(path.name for path in home.iterdir() if path.is_dir())
        == ["0", "1"][: len(topic.local_partitions) - len(topic.directory_ids)]
    )


def test_the_page_names_every_file_that_paths_names():
    names = [paths.LOCK, paths.META, paths.RUNNING, paths.RECOVERY_POINTS, paths.TOPIC_FILE, paths.TIER_CACHE,
             paths.EMBEDDED_STORE, paths.LOG, paths.OFFSET_INDEX, paths.TIME_INDEX, paths.DELETED_SUFFIX,
             paths.CHECKSUM, paths.QUARANTINE, paths.SWAP, paths.CLEANED]  # fmt: skip
    assert [name for name in names if name not in PAGE] == []
