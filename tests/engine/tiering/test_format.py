"""engine/tiering/FORMAT.md is correct: the code writes and reads its examples."""

import itertools
import re
from dataclasses import replace
from pathlib import Path

import orjson
import pytest

import engine.tiering
from engine.format.batch import Row, encode, stamp
from engine.format.paths import store_manifest_key, store_manifest_prefix, store_partition_prefix
from engine.runtime.disk import RealDisk
from engine.tiering.manifest import manifest as rules
from engine.tiering.manifest.aux_object import decode_aux, encode_aux
from engine.tiering.manifest.chain import commit, fold_if_due, take_over
from engine.tiering.manifest.encoding import (
    decode_manifest,
    decode_sub_manifest,
    encode_manifest,
    encode_sub_manifest,
    with_checksum,
)
from engine.tiering.manifest.manifest import append, raise_log_start, successor
from engine.tiering.shipping.plan import Upload
from engine.tiering.shipping.upload import upload_segment
from engine.tiering.store.file_store import FileStore
from tests.engine.tiering.making import write_segment

FORMAT = Path(engine.tiering.__file__).with_name("FORMAT.md")
PREFIX = store_partition_prefix("c0ffee", "flights", "5f0c" + "0" * 28, 2)
MIDNIGHT_MS = 1_357_016_400_000  # 2013-01-01T05:00:00Z


def examples() -> list[bytes]:
    """Return the examples as they are stored: without the page's extra white space."""
    blocks = re.findall(r"```json\n(.*?)```", FORMAT.read_text(), re.DOTALL)
    return [orjson.dumps(orjson.loads(block)) for block in blocks]


def one_batch(base_offset: int, epoch: int, count: int = 2) -> bytes:
    made = encode([Row(MIDNIGHT_MS + base_offset + at, b"N14228", b'{"delay":%d}' % at, []) for at in range(count)])
    stamp(made, base_offset, epoch)
    return bytes(made)


@pytest.fixture
def store(tmp_path, monkeypatch) -> FileStore:
    """The store that FORMAT.md describes: three segments, a root of at most two entries, a new leader for the third."""
    monkeypatch.setattr(rules, "ENTRIES_MAX", 2)
    monkeypatch.setattr(rules, "FOLD_ENTRIES", 1)
    store = FileStore(str(tmp_path / "store"), new_id=lambda: "temporary")
    ids = itertools.count(0xA1)
    unique = lambda: f"{next(ids):032x}"  # noqa: E731
    for epoch, base in ((4, 0), (4, 4), (5, 8)):
        manifest = take_over(store, PREFIX, epoch, f"node-{epoch - 3}", 0)
        segment = write_segment(tmp_path, one_batch(base, 4) + one_batch(base + 2, epoch))
        segment = replace(segment, arrived_ms=MIDNIGHT_MS + 60_000 + base)
        entry = upload_segment(store, RealDisk(), PREFIX, Upload(segment, base), epoch, unique)
        grown = append(successor(manifest, epoch, f"node-{epoch - 3}"), entry)
        commit(store, fold_if_due(store, raise_log_start(grown, max(1, grown.log_start)), unique))
    return store


def test_the_manifest_example_is_what_is_written(store):
    newest = store.get(store_manifest_key(PREFIX, 5))
    assert orjson.loads(examples()[0]) == orjson.loads(newest)
    manifest = decode_manifest(examples()[0], "example")
    assert encode_manifest(manifest) == newest
    assert (manifest.log_start, manifest.end_offset, manifest.entry_count) == (1, 12, 3)


def test_the_sub_manifest_example_is_what_is_written(store):
    sub = decode_sub_manifest(examples()[1], "example")
    (ref,) = decode_manifest(examples()[0], "example").folded
    assert store.get(ref.key) == encode_sub_manifest(sub)


def test_the_aux_example_is_what_is_written(store):
    last = decode_manifest(examples()[0], "example").entries[-1]
    aux = decode_aux(examples()[2], "example")
    assert store.get(last.aux_key) == encode_aux(aux)
    assert aux.leader_epochs == last.leader_epochs == ((4, 8), (5, 10))


def test_the_listing_example_is_what_is_written(store):
    (listing,) = re.findall(r"```text\n(c0ffee/.*?)```", FORMAT.read_text(), re.DOTALL)
    assert [line.split()[0] for line in listing.splitlines()] == [one.key for one in store.list("")]


def test_the_hint_example_is_what_is_written(store):
    assert store.get(store_manifest_prefix(PREFIX) + "latest.json") == examples()[3]


def test_roots_and_sub_manifests_without_arrival_are_read_as_format_1():
    for example, decode in ((examples()[0], decode_manifest), (examples()[1], decode_sub_manifest)):
        found = orjson.loads(example)
        found.pop("crc32c", None)
        for entry in found["entries"]:
            del entry["arrived_ms"]
        old = {**found, "format": 1}
        entries = decode(with_checksum(old), "old").entries
        assert {entry.arrived_ms for entry in entries} == {None}
