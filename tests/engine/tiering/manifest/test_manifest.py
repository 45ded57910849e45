"""The rules of a manifest; its JSON keeps everything and rejects invalid content."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from engine.errors import Corrupt
from engine.tiering.manifest.encoding import (
    decode_manifest,
    decode_sub_manifest,
    encode_manifest,
    encode_sub_manifest,
    with_checksum,
)
from engine.tiering.manifest.json_reading import UnsupportedFormat
from engine.tiering.manifest.manifest import (
    ENTRIES_MAX,
    FOLD_ENTRIES,
    Manifest,
    ManifestEntry,
    NotContiguous,
    SubManifest,
    SubManifestRef,
    append,
    find_run,
    first_manifest,
    problem_of,
    raise_log_start,
    reference_to,
    replace_runs,
    successor,
)
from tests.engine.tiering.making import PREFIX, entry, manifest_of


@st.composite
def manifests(draw: st.DrawFn, entries_max: int = 12) -> Manifest:
    """Generate any manifest that the rules allow: uneven segments, several epochs in one, a log_start inside the
    first.
    """
    offset = draw(st.integers(0, 2**40))
    epoch = draw(st.integers(0, 3))
    log_start = offset + draw(st.integers(0, 2))
    made = first_manifest(PREFIX, 10**6, draw(st.text(min_size=1, max_size=8)), log_start)
    for _ in range(draw(st.integers(0, entries_max))):
        width = draw(st.integers(3, 1000))
        epoch += draw(st.integers(0, 2))
        epochs = [(epoch, offset)]
        if draw(st.booleans()):
            epoch += 1
            epochs.append((epoch, offset + draw(st.integers(1, width - 1))))
        earliest = draw(st.integers(-1, 2**50))
        key = f"{PREFIX}{offset:020d}-{epoch}-x"
        made = append(
            made,
            ManifestEntry(
                offset,
                offset + width,
                tuple(epochs),
                earliest,
                earliest + draw(st.integers(0, 10**9)),
                draw(st.integers(61, 2**31)),
                draw(st.integers(0, 2**32 - 1)),
                width,
                key + ".log",
                key + ".aux",
                draw(st.none() | st.integers(0, 2**50)),
                draw(st.none() | st.integers(0, 2**50)),
            ),
        )
        offset += width
    return made


@given(manifests())
def test_json_gives_back_the_manifest(manifest):
    data = encode_manifest(manifest)
    assert decode_manifest(data, "key") == manifest
    assert encode_manifest(decode_manifest(data, "key")) == data


@given(manifests(), st.data())
def test_raising_log_start_keeps_what_is_at_or_above_it(manifest, data):
    log_start = data.draw(st.integers(manifest.log_start, manifest.end_offset + 5))
    raised = raise_log_start(manifest, log_start)
    assert problem_of(raised) is None
    assert raised.end_offset == max(manifest.end_offset, log_start)
    assert [one for one in manifest.entries if one.end_offset > log_start] == [*raised.entries]
    assert raised.entries or raised.log_start == raised.end_offset


def merged(some: Sequence[ManifestEntry], key: str) -> ManifestEntry:
    """Return the entry of an object with the records of these."""
    epochs = dict(pair for one in reversed(some) for pair in reversed(one.leader_epochs))
    return replace(
        some[0],
        end_offset=some[-1].end_offset,
        leader_epochs=tuple(sorted(epochs.items())),
        min_timestamp_ms=min(one.min_timestamp_ms for one in some),
        max_timestamp_ms=max(one.max_timestamp_ms for one in some),
        size_bytes=sum(one.size_bytes for one in some),
        record_count=sum(one.record_count for one in some),
        key=f"{PREFIX}{some[0].base_offset:020d}-1-{key}.log",
        stored_ms=7,
    )


class ChangedManifest(RuleBasedStateMachine):
    """A manifest under every change that a leader makes, beside a plain list of the appended objects."""

    def __init__(self) -> None:
        super().__init__()
        self.manifest = first_manifest(PREFIX, 1, "writer", 0)
        self.subs: dict[str, tuple[ManifestEntry, ...]] = {}
        self.ids = count()
        self.appended: list[ManifestEntry] = []

    @rule(width=st.integers(1, 9), is_new_epoch=st.booleans())
    def append(self, width, is_new_epoch):
        end, epoch = self.manifest.end_offset, self.manifest.leader_epoch + is_new_epoch
        self.manifest = append(successor(self.manifest, epoch, "writer"), entry(end, end + width, epoch))
        self.appended.append(self.manifest.entries[-1])

    @precondition(lambda self: len(self.manifest.entries) > 3)
    @rule(data=st.data())
    def fold(self, data):
        taken = self.manifest.entries[: data.draw(st.integers(1, len(self.manifest.entries) - 1))]
        ref = self.stored(taken)
        rest = self.manifest.entries[len(taken) :]
        self.manifest = replace(self.manifest, folded=(*self.manifest.folded, ref), entries=rest)

    def stored(self, some: Sequence[ManifestEntry]) -> SubManifestRef:
        key = f"{PREFIX}folded/{some[0].base_offset:020d}-{next(self.ids)}.json"
        sub = SubManifest(PREFIX, tuple(some))
        self.subs[key] = decode_sub_manifest(encode_sub_manifest(sub), key).entries
        return reference_to(sub, key, 1)

    @precondition(lambda self: len(self.manifest.entries) > 1)
    @rule(data=st.data())
    def merge(self, data):
        one = merged(drawn_run(data, self.manifest.entries), f"merged{next(self.ids)}")
        self.manifest = replace_runs(successor(self.manifest, self.manifest.leader_epoch, "writer"), one)

    @precondition(lambda self: self.manifest.folded)
    @rule(data=st.data())
    def merge_folded(self, data):
        refs = drawn_run(data, self.manifest.folded)[:2]
        entries = [one for ref in refs for one in self.subs[ref.key]]
        run = drawn_run(data, entries)
        at = entries.index(run[0])
        entries[at : at + len(run)] = [merged(run, f"merged{next(self.ids)}")]
        self.manifest = replace_runs(self.manifest, self.stored(entries))

    @rule(data=st.data())
    def raise_log_start(self, data):
        self.manifest = raise_log_start(
            self.manifest, data.draw(st.integers(self.manifest.log_start, self.manifest.end_offset))
        )

    @rule(data=st.data())
    def reject_other_records(self, data):
        """A run that lacks a record, or ends within another one, never takes the place of any."""
        runs = self.manifest.entries
        if len(runs) < 2:
            return
        right = merged(drawn_run(data, runs), "wrong")
        change = data.draw(st.sampled_from(["record_count", "size_bytes", "end_offset", "base_offset"]))
        wrong = replace(right, **{change: getattr(right, change) + data.draw(st.sampled_from([-1, 1]))})
        with pytest.raises(NotContiguous):
            replace_runs(self.manifest, wrong)

    @invariant()
    def the_records_are_those_that_were_appended(self):
        manifest = self.manifest
        assert problem_of(manifest) is None
        assert decode_manifest(encode_manifest(manifest), "key") == manifest
        held = [one for ref in manifest.folded for one in self.subs[ref.key]] + [*manifest.entries]
        start = held[0].base_offset if held else manifest.log_start
        kept = [one for one in self.appended if one.base_offset >= start]
        assert [one.end_offset for one in held[-1:]] == [one.end_offset for one in kept[-1:]]
        for name in ("size_bytes", "record_count"):
            assert sum(getattr(one, name) for one in held) == sum(getattr(one, name) for one in kept)
        for one in kept:
            found = manifest.find(one.base_offset)
            among = self.subs[found.key] if isinstance(found, SubManifestRef) else manifest.entries
            assert (holder := find_run(among, one.base_offset)) is not None
            assert holder.end_offset >= one.end_offset


def drawn_run(data: st.DataObject, runs: Sequence[Any]) -> Sequence[Any]:
    start = data.draw(st.integers(0, len(runs) - 1))
    return runs[start : data.draw(st.integers(start + 1, len(runs)))]


TestChangedManifest = ChangedManifest.TestCase
TestChangedManifest.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)


@given(manifests(), st.data())
def test_find_gives_the_run_that_holds_the_offset(manifest, data):
    offset = data.draw(st.integers(max(0, manifest.base_offset - 3), manifest.end_offset + 3))
    expected = [one for one in manifest.entries if one.base_offset <= offset < one.end_offset]
    assert manifest.find(offset) == (expected[0] if expected else None)


@pytest.mark.parametrize("count", [0, 1, ENTRIES_MAX, ENTRIES_MAX + 1, 3 * ENTRIES_MAX + 7])
def test_a_folded_manifest_describes_the_same_log(count):
    manifest = manifest_of(count)
    assert problem_of(manifest) is None
    assert len(manifest.entries) <= ENTRIES_MAX
    assert all(ref.entry_count == FOLD_ENTRIES for ref in manifest.folded)
    assert (manifest.base_offset, manifest.end_offset, manifest.entry_count) == (0, 10 * count, count)
    assert manifest.data_bytes == 1000 * count
    assert decode_manifest(encode_manifest(manifest), "key") == manifest
    for offset in range(0, 10 * count, 97):
        run = manifest.find(offset)
        assert run.base_offset <= offset < run.end_offset


def test_only_the_next_entry_can_be_appended():
    manifest = append(first_manifest(PREFIX, 2, "writer", 5), entry(3, 10))
    for wrong in (entry(9, 12), entry(11, 12), entry(0, 3), entry(10, 12, epoch=0), entry(10, 12, epoch=3)):
        with pytest.raises(NotContiguous):
            append(manifest, wrong)
    assert append(manifest, entry(10, 12, epoch=2)).end_offset == 12


def broken(change: Any) -> bytes:
    found = orjson.loads(encode_manifest(manifest_of(3)))
    del found["crc32c"]
    change(found)
    return with_checksum(found)


@pytest.mark.parametrize(
    "change",
    [
        lambda found: found.pop("prefix"),
        lambda found: found.pop("entries"),
        lambda found: found.update(log_start="0"),
        lambda found: found.update(log_start=True),
        lambda found: found.update(log_start=11),
        lambda found: found.update(end_offset=29),
        lambda found: found.update(generation=0),
        lambda found: found.update(leader_epoch=0),
        lambda found: found.update(prefix="elsewhere"),
        lambda found: found.update(folded=[1]),
        lambda found: found.update(entries={}),
        lambda found: found["entries"].pop(1),
        lambda found: found["entries"].reverse(),
        lambda found: found["entries"][0].pop("object"),
        lambda found: found["entries"][0].update(leader_epochs=[]),
        lambda found: found["entries"][0].update(leader_epochs=[[1]]),
        lambda found: found["entries"][0].update(leader_epochs=[[1, 1]]),
        lambda found: found["entries"][0].update(crc32c=1.5),
        lambda found: found["entries"][2].update(end_offset=20),
        lambda found: found["entries"][1].update(leader_epochs=[[2, 10]]),
    ],
)
def test_a_manifest_that_breaks_a_rule_is_corrupt(change):
    with pytest.raises(Corrupt):
        decode_manifest(broken(change), "key")


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"null", b"{}", b'{"format":"1"}', b"\xff", b'{"format":1}'])
def test_what_is_no_manifest_is_corrupt(data):
    with pytest.raises(Corrupt):
        decode_manifest(data, "key")


@given(st.data())
def test_a_changed_bit_is_noticed(data):
    spoiled = bytearray(encode_manifest(manifest_of(2)))
    spoiled[data.draw(st.integers(0, len(spoiled) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises((Corrupt, UnsupportedFormat)):
        decode_manifest(bytes(spoiled), "key")


def test_a_future_format_is_refused_with_the_advice_to_upgrade():
    data = broken(lambda found: found.update(format=4, entries="whatever"))
    with pytest.raises(UnsupportedFormat, match="run a newer Penstock"):
        decode_manifest(data, "key")


def test_format_1_which_does_not_know_arrival_is_still_read():
    arrived = replace(manifest_of(1), entries=(replace(entry(0, 10), arrived_ms=5),))
    assert decode_manifest(encode_manifest(arrived), "key") == arrived
    found = orjson.loads(encode_manifest(arrived))
    del found["crc32c"], found["entries"][0]["arrived_ms"]
    assert decode_manifest(with_checksum({**found, "format": 1}), "key").entries == (entry(0, 10),)


def test_members_that_this_version_does_not_know_are_ignored():
    data = broken(lambda found: (found.update(extra=1), found["entries"][0].update(extra=1)))
    assert decode_manifest(data, "key") == manifest_of(3)
