"""Manifests and sub-manifests as JSON, strictly: decoded ones obey every rule of engine/tiering/manifest/manifest.py.

A higher format number is rejected, a lower one read. Readers ignore unknown members, and the next root loses them; so a
member that writers must preserve needs a new number.
Worked example: engine/tiering/FORMAT.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields

import orjson
from crc32c import crc32c
from msgspec import Struct

from engine.errors import Corrupt
from engine.tiering.manifest.json_reading import Members, T, Text, convert, read_object
from engine.tiering.manifest.manifest import (
    Manifest,
    ManifestEntry,
    SubManifest,
    SubManifestRef,
    problem_of,
    problem_of_runs,
)

FORMAT = 3  # format 1 lacks arrived_ms, format 2 stored_ms; a writer must preserve both
_FORMAT_WITHOUT_MERGES = 2  # written where no object was merged: older versions read it
_CHECKSUM = b',"crc32c":'
_MEMBERS = {kind: [field.name for field in fields(kind)] for kind in (ManifestEntry, SubManifestRef)}
_KEYS = {"key": "object", "aux_key": "aux"}  # stored without their common prefix


class _Keys(Struct):
    object: Text
    aux: Text | None = None


class _Runs(Struct):
    prefix: Text
    entries: list[Members]


class _Root(_Runs):
    generation: int
    leader_epoch: int
    writer: Text
    log_start: int
    end_offset: int
    folded: list[Members]


def encode_manifest(manifest: Manifest) -> bytes:
    """Encodes a root. Equal manifests give equal bytes, which identifies the own commit after a lost answer."""
    assert (problem := problem_of(manifest)) is None, problem
    return with_checksum(
        {
            "format": _format_of(manifest.entries),
            "prefix": manifest.prefix,
            "generation": manifest.generation,
            "leader_epoch": manifest.leader_epoch,
            "writer": manifest.writer,
            "log_start": manifest.log_start,
            "end_offset": manifest.end_offset,
            "folded": [_to_json(ref, manifest.prefix) for ref in manifest.folded],
            "entries": [_to_json(entry, manifest.prefix) for entry in manifest.entries],
        }
    )


def decode_manifest(data: bytes, key: str) -> Manifest:
    """Decodes a manifest. Raises Corrupt, which names the object, or UnsupportedFormat."""
    members = read_object(data, key, FORMAT)
    _check_checksum(data, key)
    root = convert(members, _Root, key)
    manifest = Manifest(
        prefix=root.prefix,
        generation=root.generation,
        leader_epoch=root.leader_epoch,
        writer=root.writer,
        log_start=root.log_start,
        folded=tuple(_from_json(SubManifestRef, run, root.prefix, key) for run in root.folded),
        entries=tuple(_from_json(ManifestEntry, run, root.prefix, key) for run in root.entries),
    )
    if problem := problem_of(manifest):
        raise Corrupt(f"manifest {key}: {problem}")
    if root.end_offset != manifest.end_offset:
        raise Corrupt(f"manifest {key}: its end_offset is not where its last run ends, {manifest.end_offset}")
    return manifest


def encode_sub_manifest(sub: SubManifest) -> bytes:
    entries = [_to_json(entry, sub.prefix) for entry in sub.entries]
    return orjson.dumps({"format": _format_of(sub.entries), "prefix": sub.prefix, "entries": entries})


def decode_sub_manifest(data: bytes, key: str) -> SubManifest:
    """Decodes the entries of an object. Raises Corrupt or UnsupportedFormat."""
    runs = convert(read_object(data, key, FORMAT), _Runs, key)
    entries = tuple(_from_json(ManifestEntry, run, runs.prefix, key) for run in runs.entries)
    if problem := problem_of_runs(runs.prefix, entries):
        raise Corrupt(f"sub-manifest {key}: {problem}")
    return SubManifest(runs.prefix, entries)


def _format_of(entries: Iterable[ManifestEntry]) -> int:
    return FORMAT if any(entry.stored_ms is not None for entry in entries) else _FORMAT_WITHOUT_MERGES


def with_checksum(members: Members) -> bytes:
    """Encodes JSON without white space whose last member is the CRC-32C of all bytes before its comma.

    A flipped digit in a root could otherwise raise log_start, and the next commit would make that permanent.
    """
    body = orjson.dumps(members)[:-1]
    return body + _CHECKSUM + b"%d}" % crc32c(body)


def _check_checksum(data: bytes, key: str) -> None:
    body, separator, stored = data.rpartition(_CHECKSUM)
    if not separator or stored != b"%d}" % crc32c(body):
        raise Corrupt(f"manifest {key} fails its checksum", hint="restore it from a copy of the store")


def _to_json(run: ManifestEntry | SubManifestRef, prefix: str) -> dict[str, object]:
    members = {name: getattr(run, name) for name in _MEMBERS[type(run)]}
    for ours, theirs in _KEYS.items():
        if ours in members:
            members[theirs] = members.pop(ours).removeprefix(prefix)
    return {name: value for name, value in members.items() if value is not None}


def _from_json(kind: type[T], members: Members, prefix: str, key: str) -> T:
    keys = convert(members, _Keys, key)
    full = {"key": prefix + keys.object, "aux_key": prefix + keys.aux if keys.aux else None}
    return convert({**members, **full}, kind, key)
