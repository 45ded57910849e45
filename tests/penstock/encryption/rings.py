"""Key rings in files, and an Encryption whose time and randomness a test decides."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path

from penstock import FileKeyRing

OLD, NEW = bytes(range(32)), bytes(range(32, 64))


def ring_file(path: Path, current: str, keys: Mapping[str, bytes]) -> Path:
    lines = [
        f'current = "{current}"',
        "[keys]",
        *(f'"{name}" = "{b64encode(key).decode()}"' for name, key in keys.items()),
    ]
    path.write_text("\n".join(lines))
    path.chmod(0o600)
    return path


def ring(path: Path, current: str = "old", keys: Mapping[str, bytes] = {"old": OLD}) -> FileKeyRing:
    return FileKeyRing(ring_file(path, current, keys))
