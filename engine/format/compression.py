"""Compresses a text whole, for those who asked for it: gzip and zstd, at the level that is fast rather than small.

The twin of engine/format/decompression.py, and with it the only file that knows cramjam. It lets go of the
interpreter's lock meanwhile; whether this is work for the loop is the caller's to decide (a megabyte of JSON takes 3 to
7 ms).
"""

from __future__ import annotations

import cramjam

_LEVEL = 1


def pack(kind: str, text: bytes | bytearray) -> bytes:
    """The text as one gzip member or one zstd frame."""
    return bytes(
        cramjam.zstd.compress(text, level=_LEVEL) if kind == "zstd" else cramjam.gzip.compress(text, level=_LEVEL)
    )
