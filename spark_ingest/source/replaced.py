"""Finds the object that has the records of one that is gone: a merge of the store puts one object in the place of many.

A plan names objects, and a run may resume it long after it was made. The records have the same offsets and the same
batches in the other object, so a task reads the same rows.
"""

from __future__ import annotations

import msgspec

from engine.tiering.manifest.chain import load_newest, load_sub_manifest
from engine.tiering.manifest.manifest import Manifest, ManifestEntry, SubManifest, SubManifestRef, find_run
from engine.tiering.store.store import NoSuchObject, ObjectStore
from spark_ingest.source.slices import Slice


class Replacements:
    """Reads the newest manifest of each partition once, when it is first needed."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._manifests: dict[str, Manifest | None] = {}
        self._subs: dict[str, SubManifest] = {}

    def slice_of(self, piece: Slice, start: int) -> Slice:
        """Returns what is left of a slice from `start` on, in the object that has it now.

        Raises NoSuchObject if no other object has all offsets of the one that is gone.
        """
        prefix = piece.key.rpartition("/")[0] + "/"
        if prefix not in self._manifests:
            self._manifests[prefix] = load_newest(self._store, prefix)
        entry = self._entry_at(self._manifests[prefix], piece.base_offset)
        if entry is None or entry.key == piece.key or entry.end_offset < piece.end_offset:
            raise NoSuchObject(
                f"segment {piece.key} is gone from {self._store.url}",
                hint="penstock tier repair finds a copy in the store, if there is one; penstock ingest abandon drops a "
                "plan that cannot be finished",
            )
        return msgspec.structs.replace(
            piece,
            key=entry.key,
            size_bytes=entry.size_bytes,
            base_offset=entry.base_offset,
            end_offset=entry.end_offset,
            start=start,
        )

    def _entry_at(self, manifest: Manifest | None, offset: int) -> ManifestEntry | None:
        run = None if manifest is None else manifest.find(offset)
        if not isinstance(run, SubManifestRef):
            return run
        if run.key not in self._subs:
            self._subs[run.key] = load_sub_manifest(self._store, run)
        return find_run(self._subs[run.key].entries, offset)
