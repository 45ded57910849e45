"""Successive manifests: each generation has exactly one writer, a lost answer loses nothing, an old leader is
fenced.
"""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from engine.errors import Corrupt
from engine.format.paths import store_manifest_key, store_manifest_prefix
from engine.tiering.manifest.chain import (
    Conflict,
    commit,
    fold_if_due,
    iter_entries,
    load_newest,
    load_sub_manifest,
    take_over,
)
from engine.tiering.manifest.encoding import encode_manifest
from engine.tiering.manifest.keys import generation_of, latest_key
from engine.tiering.manifest.manifest import (
    ENTRIES_MAX,
    FOLD_ENTRIES,
    Fenced,
    Manifest,
    SubManifestRef,
    append,
    first_manifest,
    successor,
)
from engine.tiering.store.store import ObjectStore, StoreUnavailable
from tests.engine.tiering.making import PREFIX, entries, entry
from tests.engine.tiering.stores import FAILS, LOSES, Watched


def grown(manifest: Manifest, writer: str = "writer", epoch: int | None = None) -> Manifest:
    """Return the next generation, with one more entry of ten offsets."""
    end = manifest.end_offset
    epoch = manifest.leader_epoch if epoch is None else epoch
    return append(successor(manifest, epoch, writer), entry(end, end + 10, epoch))


def chain(store: ObjectStore, length: int, writer: str = "writer") -> Manifest:
    manifest = take_over(store, PREFIX, 1, writer, 0)
    while manifest.generation < length:
        manifest = grown(manifest, writer)
        commit(store, manifest)
    return manifest


def test_the_newest_is_what_was_committed_last(store):
    assert load_newest(store, PREFIX) is None
    newest = chain(store, 12)
    assert newest.end_offset == 110
    assert load_newest(store, PREFIX) == newest


def test_a_taken_slot_is_a_conflict_and_stays_as_it_is(store):
    base = chain(store, 3)
    commit(store, grown(base, "one"))
    with pytest.raises(Conflict):
        commit(store, grown(base, "another"))
    newest = load_newest(store, PREFIX)
    assert newest.writer == "one"
    commit(store, grown(newest, "another"))


def test_committing_the_same_again_is_a_success(store):
    newest = grown(chain(store, 3))
    commit(store, newest)
    commit(store, newest)
    assert load_newest(store, PREFIX) == newest


def test_racing_writers_get_one_generation_each(store):
    """Every writer appends its entries and reads again after each conflict: no entry is lost or duplicated."""
    writers, rounds = 4, 4
    start = threading.Barrier(writers)
    take_over(store, PREFIX, 1, "first", 0)

    def write(writer: str) -> list[int]:
        won: list[int] = []
        start.wait()
        while len(won) < rounds:
            newest = load_newest(store, PREFIX)
            assert newest is not None
            try:
                commit(store, grown(newest, writer))
            except Conflict:
                continue
            won.append(newest.generation + 1)
        return won

    with ThreadPoolExecutor(writers) as threads:
        won = [*threads.map(write, [f"writer {at}" for at in range(writers)])]
    newest = load_newest(store, PREFIX)
    assert newest is not None
    # A winner that is overtaken before it reads gets a conflict; its entry counts nevertheless.
    claimed = [generation for one in won for generation in one]
    assert len(claimed) == len({*claimed}) == writers * rounds
    assert newest.generation >= 1 + writers * rounds
    assert newest.end_offset == 10 * (newest.generation - 1)


@pytest.mark.parametrize("fault", [FAILS, LOSES])
def test_a_commit_without_an_answer_is_resolved_by_reading(file_store, fault):
    base = chain(file_store, 3)
    slot = store_manifest_key(PREFIX, 4)
    spoiled = Watched(file_store, lambda number, method, key: fault if (method, key) == ("put", slot) else None)
    if fault == LOSES:
        commit(spoiled, grown(base))
        assert load_newest(file_store, PREFIX) == grown(base)
    else:
        with pytest.raises(StoreUnavailable):
            commit(spoiled, grown(base))
        assert load_newest(file_store, PREFIX) == base
        commit(file_store, grown(base))


def test_a_lost_answer_to_anothers_commit_is_a_conflict(file_store):
    base = chain(file_store, 3)
    commit(file_store, grown(base, "another"))
    slot = store_manifest_key(PREFIX, 4)
    spoiled = Watched(file_store, lambda number, method, key: FAILS if (method, key) == ("put", slot) else None)
    with pytest.raises(Conflict):
        commit(spoiled, grown(base))


def test_a_new_leader_fences_the_old_one(store):
    old = chain(store, 3, "old")
    fence = take_over(store, PREFIX, 2, "new", 0)
    assert (fence.generation, fence.leader_epoch, fence.entries) == (4, 2, old.entries)
    with pytest.raises(Conflict):
        commit(store, grown(old, "old"))
    with pytest.raises(Fenced):
        take_over(store, PREFIX, 1, "old", 0)
    assert load_newest(store, PREFIX) == fence
    assert take_over(store, PREFIX, 2, "new", 0) == fence, "nothing is written for an epoch that is in place"


def test_leaders_that_race_to_take_over_end_with_the_highest_epoch(store):
    leaders = 4
    start = threading.Barrier(leaders)

    def lead(epoch: int) -> bool:
        start.wait()
        try:
            take_over(store, PREFIX, epoch, f"leader {epoch}", 0)
        except Fenced:
            return False
        return True

    with ThreadPoolExecutor(leaders) as threads:
        led = [*threads.map(lead, range(1, leaders + 1))]
    newest = load_newest(store, PREFIX)
    assert newest.leader_epoch == leaders
    assert led[-1]


def test_a_writer_that_slept_until_its_slot_was_removed_is_not_deceived(file_store):
    slept = chain(file_store, 3, "sleeper")
    newest = slept
    for _ in range(5):
        newest = grown(newest, "awake")
        commit(file_store, newest)
    for generation in range(1, 8):
        file_store.delete(store_manifest_key(PREFIX, generation))
    with pytest.raises(Conflict):
        commit(file_store, grown(slept, "sleeper"))
    assert load_newest(file_store, PREFIX) == newest


@pytest.mark.parametrize(
    "hint",
    [None, b"", b"{", b"[]", b'{"generation":"7"}', b'{"generation":-1}', b'{"generation":5}', b'{"generation":99}'],
)
def test_a_hint_that_is_absent_or_stale_or_wrong_does_no_harm(file_store, hint):
    newest = chain(file_store, 12)
    if hint is None:
        file_store.delete(latest_key(PREFIX))
    else:
        file_store.put(latest_key(PREFIX), hint)
    assert load_newest(file_store, PREFIX) == newest


def test_opening_takes_one_list_however_long_the_chain(file_store):
    chain(file_store, 30)
    watched = Watched(file_store)
    load_newest(watched, PREFIX)
    assert watched.calls == [
        ("get", latest_key(PREFIX)),
        ("list", store_manifest_prefix(PREFIX)),
        ("get", store_manifest_key(PREFIX, 30)),
    ]
    starts: list[str] = []
    watched.inner = Listing(file_store, starts)
    load_newest(watched, PREFIX)
    assert starts == [store_manifest_key(PREFIX, 29)]


class Listing:
    """Records where listings start."""

    def __init__(self, inner: ObjectStore, starts: list[str]) -> None:
        self.inner, self.starts = inner, starts

    def __getattr__(self, name: str) -> object:
        return getattr(self.inner, name)

    def list(self, prefix: str, start_after: str = "") -> Iterator[object]:
        self.starts.append(start_after)
        return self.inner.list(prefix, start_after)


def test_entries_are_folded_and_all_can_be_read_back(store, new_id):
    manifest = first_manifest(PREFIX, 1, "writer", 0)
    expected = [entry(at * 10, at * 10 + 10) for at in range(ENTRIES_MAX + 300)]
    for one in expected:
        manifest = fold_if_due(store, append(manifest, one), new_id)
    commit(store, manifest)
    watched = Watched(store)
    newest = load_newest(watched, PREFIX)
    assert newest == manifest
    assert len(newest.folded) == 2
    assert [*iter_entries(watched, newest)] == expected
    assert [*iter_entries(watched, newest, 4995)] == expected[499:]
    assert watched.count("list") == 1


def test_a_hundred_thousand_entries_are_opened_with_one_list(file_store):
    width = FOLD_ENTRIES * 10
    refs = tuple(
        SubManifestRef(
            at, at + width, 0, 1, 1, 1, FOLD_ENTRIES, width, 1, 1, f"{PREFIX}folded/{at:020d}-{'0' * 32}.json"
        )
        for at in range(0, 400 * width, width)
    )
    manifest = Manifest(PREFIX, 1, 1, "writer", 0, refs, tuple(entries(ENTRIES_MAX, 400 * width)))
    commit(file_store, manifest)
    watched = Watched(file_store)
    assert load_newest(watched, PREFIX) == manifest
    assert manifest.entry_count == 100_000 + ENTRIES_MAX
    assert len(encode_manifest(manifest)) < 400_000
    assert watched.count("list") == 1


def test_a_damaged_sub_manifest_is_corrupt(file_store, new_id):
    manifest = first_manifest(PREFIX, 1, "writer", 0)
    for at in range(ENTRIES_MAX + 1):
        manifest = append(manifest, entry(at * 10, at * 10 + 10))
    (ref,) = fold_if_due(file_store, manifest, new_id).folded
    data = bytearray(file_store.get(ref.key))
    data[len(data) // 2] ^= 1
    file_store.put(ref.key, bytes(data))
    with pytest.raises(Corrupt, match="checksum"):
        load_sub_manifest(file_store, ref)


def test_a_manifest_copied_from_elsewhere_is_corrupt(file_store):
    newest = chain(file_store, 2)
    file_store.put(store_manifest_key(PREFIX, 3), encode_manifest(newest))
    with pytest.raises(Corrupt, match="copy of another"):
        load_newest(file_store, PREFIX)


def test_only_twenty_digits_name_a_root():
    assert generation_of(PREFIX, store_manifest_key(PREFIX, 7)) == 7
    for key in (latest_key(PREFIX), PREFIX + "manifest/7.json", "00000000000000000007.json", PREFIX + "x"):
        assert generation_of(PREFIX, key) is None
