"""The form of small text files: a line with the format's name, the number of rows, the rows, a checksum.

Does not know the meaning of a file. A file that is incomplete or fails its checksum is ignored.
"""

from __future__ import annotations

from crc32c import crc32c

_CHECKSUM = "crc32c"


def rows_as_text(header: str, rows: list[str]) -> bytes:
    """Returns the whole file as bytes; the checksum covers every byte before its own line."""
    text = "".join(f"{line}\n" for line in (header, len(rows), *rows)).encode()
    return text + f"{_CHECKSUM} {crc32c(text):08x}\n".encode()


def read_rows(header: str, data: bytes | None, *, has_checksum: bool = True) -> list[list[str]] | None:
    """Returns the rows, each split at its spaces; None if the file is absent, of another format, or in doubt."""
    if data is None:
        return None
    if has_checksum:
        data, _, checksum = data.rstrip(b"\n").rpartition(b"\n")
        data += b"\n"
        if checksum != f"{_CHECKSUM} {crc32c(data):08x}".encode():
            return None
    lines = data.decode("utf-8", "replace").splitlines()
    if len(lines) < 2 or lines[0] != header or lines[1] != str(len(lines) - 2):
        return None
    return [line.split(" ") for line in lines[2:]]
