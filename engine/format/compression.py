"""Compresses response texts: gzip and zstd, at a level that is fast rather than small.

The twin of engine/format/decompression.py; only these two files know cramjam, which releases the interpreter's lock.
The caller decides whether to run this on the loop (a megabyte of JSON takes 3 to 7 ms).
"""

from __future__ import annotations

import cramjam

_LEVEL = 1


def pack(kind: str, text: bytes | bytearray) -> bytes:
    """Compress the text to one gzip member or one zstd frame."""
    return bytes(
        cramjam.zstd.compress(text, level=_LEVEL) if kind == "zstd" else cramjam.gzip.compress(text, level=_LEVEL)
    )
