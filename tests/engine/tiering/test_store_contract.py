"""One suite for every kind of store: the properties that tiering needs, for a directory and over the S3 API."""

import threading
import zlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
from crc32c import crc32c

from engine.testing.memory_store import MemoryStore
from engine.tiering.store.s3 import S3Store
from engine.tiering.store.store import NoSuchObject, ObjectExists, ObjectStore, StoreUnavailable, open_store

KEYS = [
    "a",
    "b!",
    "b-c",
    "b/a",
    "b/b/c",
    "b/ü",
    "b0",
    "c/0001.json",
    "c/0002.json",
    "c/0003.json",
    "c/latest.json",
    "é",
]


def filled(store: ObjectStore) -> ObjectStore:
    for key in reversed(KEYS):
        store.put(key, key.encode())
    return store


def test_probe_accepts_the_store_and_leaves_nothing(store):
    store.probe()
    assert [*store.list("")] == []


def test_what_was_put_is_got(store):
    store.put("some/key", b"0123456789")
    assert store.get("some/key") == b"0123456789"
    store.put("some/key", b"other")
    assert store.get("some/key") == b"other"


def test_a_range_ends_before_its_end_and_is_cut_at_the_objects_end(store):
    store.put("some/key", b"0123456789")
    assert store.get("some/key", 0, 4) == b"0123"
    assert store.get("some/key", 3, 5) == b"34"
    assert store.get("some/key", 7, 100) == b"789"
    assert store.get("some/key", 6) == b"6789"
    assert store.get("some/key", None, 2) == b"01"
    assert store.get("some/key", 10, 20) == store.get("some/key", 99) == b""


def test_an_absent_object_is_reported(store):
    store.put("a/b", b"")
    for key in ("a", "a/c", "a/b/c", "x/y/z"):
        with pytest.raises(NoSuchObject):
            store.get(key)
        assert store.head(key) is None
        store.delete(key)


def test_head_knows_the_size_and_the_time(store):
    store.put("k", b"12345")
    found = store.head("k")
    assert (found.key, found.size_bytes) == ("k", 5)
    assert found.modified_ms > 1_700_000_000_000
    assert found.crc32 in (None, zlib.crc32(b"12345"))


def test_create_if_absent_is_refused_when_present_and_changes_nothing(store):
    store.put("k", b"first", if_absent=True)
    with pytest.raises(ObjectExists):
        store.put("k", b"second", if_absent=True)
    assert store.get("k") == b"first"
    store.delete("k")
    store.put("k", b"third", if_absent=True)
    assert store.get("k") == b"third"


def test_of_racing_creators_exactly_one_wins(store):
    creators = 6
    for round_number in range(5):
        start = threading.Barrier(creators)

        def create(creator: int, key: str = f"race/{round_number}", start: threading.Barrier = start) -> bool:
            start.wait()
            try:
                store.put(key, b"creator %d" % creator, if_absent=True)
            except ObjectExists:
                return False
            return True

        with ThreadPoolExecutor(creators) as threads:
            won = list(threads.map(create, range(creators)))
        assert sum(won) == 1
        assert store.get(f"race/{round_number}") == b"creator %d" % won.index(True)


def test_list_is_in_byte_order_of_keys(store):
    listed = [*filled(store).list("")]
    assert [one.key for one in listed] == sorted(KEYS, key=str.encode) == KEYS
    assert [one.size_bytes for one in listed] == [len(key.encode()) for key in KEYS]


def test_list_takes_a_prefix_and_a_start(store):
    filled(store)
    for prefix in ["", "b", "b/", "b/b", "c/000", "d", "c/0002.json", "b/b/c/"]:
        for start_after in ["", "a", "b", "b/", "b/b/c", "c/0002.json", "c/0002", "z"]:
            expected = [key for key in KEYS if key.startswith(prefix) and key.encode() > start_after.encode()]
            assert [one.key for one in store.list(prefix, start_after)] == expected, (prefix, start_after)


def test_list_goes_over_pages(store):
    if isinstance(store, S3Store):  # its own list pages have a thousand entries: minutes of puts
        events = store._client.meta.events
        events.register("provide-client-params.s3.ListObjectsV2", lambda params, **_: {**params, "MaxKeys": 20})
    keys = [f"many/{number:05d}" for number in range(105)]
    for key in keys:
        store.put(key, b"")
    assert [one.key for one in store.list("many/")] == keys
    assert [one.key for one in store.list("many/", keys[9])] == keys[10:]


def test_list_prefixes_gives_the_next_level(store):
    filled(store)
    assert [*store.list_prefixes("")] == ["b/", "c/"]
    assert [*store.list_prefixes("b/")] == ["b/b/"]
    assert [*store.list_prefixes("b/b")] == ["b/b/"]
    assert [*store.list_prefixes("nothing/")] == []
    store.delete("b/b/c")
    assert [*store.list_prefixes("b/")] == []


def test_delete_removes_and_may_be_repeated(store):
    filled(store)
    for _ in range(2):
        store.delete("b/a")
    assert store.head("b/a") is None
    assert [one.key for one in store.list("b/")] == ["b/b/c", "b/ü"]


def test_a_file_is_put_whole_or_in_part(store, tmp_path):
    content = bytes(range(256)) * 12_000
    source = tmp_path / "a file.log"
    source.write_bytes(content)
    written = store.put_file("whole", str(source), size_bytes=len(content), crc32=zlib.crc32(content), if_absent=True)
    assert written in (None, crc32c(content))
    assert store.get("whole") == content
    part = content[1_000:2_000_000]
    store.put_file("part", str(source), start=1_000, size_bytes=len(part), crc32=zlib.crc32(part))
    assert store.get("part") == part
    with pytest.raises(ObjectExists):
        store.put_file("whole", str(source), size_bytes=5, if_absent=True)


def test_an_absent_file_is_not_the_stores_fault(store, tmp_path):
    with pytest.raises(FileNotFoundError):
        store.put_file("k", str(tmp_path / "absent"), size_bytes=5)
    assert store.head("k") is None


def test_bytes_that_differ_from_their_checksum_are_refused_or_not_vouched_for(store, tmp_path):
    store.probe()
    source = tmp_path / "file"
    source.write_bytes(b"flipped bit")
    with suppress(StoreUnavailable):  # moto stores the given checksum without a check
        store.put_file("k", str(source), size_bytes=11, crc32=zlib.crc32(b"flipped bat"))
    found = store.head("k")
    assert found is None or found.crc32 is None


def test_a_checked_checksum_is_known_to_head(ministack_store):
    ministack_store.put("k", b"some bytes")
    before, _ = ministack_store.head("k"), ministack_store.probe()
    after = ministack_store.head("k")
    assert before is not None
    assert (before.crc32, after.crc32) == (None, zlib.crc32(b"some bytes"))


def test_the_url_opens_the_same_store_again(store):
    if store.url == MemoryStore.url:
        pytest.skip("a store in memory has no address")
    store.put("k", b"v")
    again = open_store(store.url)
    assert again.url == store.url
    assert again.get("k") == b"v"


def test_a_key_may_hold_any_character_that_ours_do(store):
    key = "cluster-1/my.topic_name-2/0f" + "0" * 30 + "/11/00000000000000000042-7-" + "a" * 32 + ".log"
    store.put(key, b"x", if_absent=True)
    assert [one.key for one in store.list("cluster-1/")] == [key]
    assert [*store.list_prefixes("cluster-1/")] == ["cluster-1/my.topic_name-2/"]
