"""A partition in a store in memory, as shippers leave it, and its examination."""

from collections.abc import Callable
from concurrent.futures import Executor, Future
from itertools import count
from pathlib import Path
from typing import Any

from crc32c import crc32c

from engine.runtime.disk import RealDisk
from engine.testing.memory_store import MemoryStore
from engine.tiering.audit.examination import Depth, Examiner
from engine.tiering.audit.findings import PartitionReport
from engine.tiering.audit.inventory import StoredPartition
from engine.tiering.audit.repair import Mend, Repairer
from engine.tiering.manifest.chain import commit, take_over
from engine.tiering.manifest.encoding import encode_sub_manifest
from engine.tiering.manifest.keys import sub_manifest_key
from engine.tiering.manifest.manifest import Manifest, ManifestEntry, SubManifest, append, reference_to, successor
from engine.tiering.shipping.garbage_collection import GRACE_MS
from engine.tiering.shipping.plan import Upload
from engine.tiering.shipping.upload import upload_segment
from engine.tiering.store.store import ObjectStore
from tests.engine.tiering.making import segment_bytes, write_segment

PARTITION = StoredPartition("cluster", "topic", "0123456789abcdef0123456789abcdef", 0)
PREFIX = PARTITION.prefix
WIDTH = 12  # offsets per segment
LATER_MS = 3 * GRACE_MS


class Inline(Executor):
    """Runs each call at once."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


_NUMBERS = count()


def upload(store: ObjectStore, directory: Path, number: int, epoch: int = 1, name: str = "a") -> ManifestEntry:
    """Upload a segment that no manifest names."""
    segment = write_segment(directory, segment_bytes(number * WIDTH, epoch=epoch))
    return upload_segment(store, RealDisk(), PREFIX, Upload(segment, segment.base_offset), epoch, lambda: name)


def stored(directory: Path, segments: int = 4, folded: int = 0) -> MemoryStore:
    """Return a store with that many segments; the first `folded` are in a sub-manifest."""
    store = MemoryStore()
    manifest = take_over(store, PREFIX, 1, "writer", 0)
    for number in range(segments):
        manifest = append(successor(manifest, 1, "writer"), upload(store, directory, number))
        if number + 1 == folded:
            manifest = _with_sub_manifest(store, manifest)
        commit(store, manifest)
    return store


def _with_sub_manifest(store: ObjectStore, manifest: Manifest) -> Manifest:
    sub = SubManifest(PREFIX, manifest.entries)
    key, data = sub_manifest_key(PREFIX, 0, "a"), encode_sub_manifest(sub)
    store.put(key, data)
    return Manifest(
        PREFIX, manifest.generation, 1, "writer", 0, folded=(reference_to(sub, key, crc32c(data)),), entries=()
    )


def examiner(store: ObjectStore, depth: Depth = Depth.BYTES, now_ms: int = 0) -> Examiner:
    return Examiner(store, Inline(), now_ms, depth)


def examine(store: ObjectStore, depth: Depth = Depth.BYTES, now_ms: int = 0) -> PartitionReport:
    return examiner(store, depth, now_ms).examine(PARTITION)


def found(store: ObjectStore, depth: Depth = Depth.BYTES, now_ms: int = 0) -> list[str]:
    """Return the kinds of all findings."""
    return [one.kind.value for one in examine(store, depth, now_ms).findings]


def repair(store: ObjectStore, *, is_dry: bool = False, names_orphans: bool = False, now_ms: int = 0) -> list[Mend]:
    using = Repairer(examiner(store, now_ms=now_ms), lambda: f"repair{next(_NUMBERS)}", "repair", is_dry, names_orphans)
    return using.repair(using.examiner.examine(PARTITION))


def actions(mends: list[Mend]) -> list[str]:
    return [one.action.value for one in mends]
