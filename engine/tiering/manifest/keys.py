"""The object keys that tiering adds to those of engine/format/paths.py: the hint and the sub-manifests. Pure.

Neither may look like a manifest root: only `generation_of` identifies roots, and a LIST that starts after a root of
twenty digits sees the hint last, since letters sort after digits.
"""

from __future__ import annotations

import re

from engine.format.paths import AUX, LOG, digits, store_manifest_key, store_manifest_prefix

_SEGMENT = re.compile(r"(\d{20})-\d+-[^/]+(\.log|\.aux)")
_SUB_MANIFEST = re.compile(r"folded/(\d{20})-[^/]+\.json")
_OWN = re.compile(
    r"(\d+/)?(manifest/(\d{20}|latest)\.json|folded/\d{20}-[^/]+\.json|\d{20}-\d+-[^/]+(\.log|\.aux))|topic\.json"
)
_ROOT = re.compile(r"(\d{20})\.json")


def latest_key(prefix: str) -> str:
    """Returns the key of the hint: the newest generation that some writer knew, never evidence."""
    return f"{store_manifest_prefix(prefix)}latest.json"


def sub_manifest_key(prefix: str, base_offset: int, unique: str) -> str:
    return f"{prefix}folded/{digits(base_offset)}-{unique}.json"


def generation_of(prefix: str, key: str) -> int | None:
    """Returns the generation of a root's key; None for any other key."""
    name = key.removeprefix(store_manifest_prefix(prefix))
    match = _ROOT.fullmatch(name) if name != key else None
    return int(match.group(1)) if match else None


def base_offset_of(prefix: str, key: str) -> int | None:
    """Returns the first offset of a segment's, an auxiliary object's or a sub-manifest's key; None for other keys."""
    name = key.removeprefix(prefix)
    match = _SEGMENT.fullmatch(name) or _SUB_MANIFEST.fullmatch(name)
    return int(match.group(1)) if match else None


def is_own(prefix: str, key: str) -> bool:
    """True if tiering makes such keys below a topic's or a partition's prefix."""
    return bool(_OWN.fullmatch(key.removeprefix(prefix)))


def before_generation(prefix: str, generation: int) -> str:
    """Returns the key after which a LIST sees this root and all newer ones."""
    return store_manifest_key(prefix, generation - 1) if generation > 0 else store_manifest_prefix(prefix)


def aux_key_of(segment_key: str) -> str:
    assert segment_key.endswith(LOG)
    return segment_key.removesuffix(LOG) + AUX
