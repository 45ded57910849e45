"""A file for browsers in the encodings in which it is sent, and the headers that all of them have.

Not the choice among the encodings, which a request makes.
"""

import gzip
import hashlib
from collections.abc import Mapping
from typing import NamedTuple

from engine.format.compression import pack

# No page of another origin may embed or read a file.
ISOLATION = {
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
ASK_EACH_TIME = {"Cache-Control": "no-cache", "Vary": "Accept, Accept-Encoding"}


class Packed(NamedTuple):
    """A file as it is sent, by the Content-Encoding that a client takes."""

    bodies: Mapping[str | None, bytes]
    headers: Mapping[str, str]


def pack_file(body: bytes, headers: Mapping[str, str]) -> Packed:
    bodies = {None: body, "gzip": gzip.compress(body, 9, mtime=0), "zstd": bytes(pack("zstd", body))}
    return Packed(bodies, {**headers, **ISOLATION})


def pack_tagged(body: bytes, headers: Mapping[str, str]) -> Packed:
    """Returns a file that a browser keeps, and asks about each time by the tag of its content."""
    tag = hashlib.blake2b(body, digest_size=12).hexdigest()
    return pack_file(body, {**headers, "ETag": f'"{tag}"', **ASK_EACH_TIME})
