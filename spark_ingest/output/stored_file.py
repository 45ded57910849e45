"""`StoredFile`: a file of a table or of dead letters, as commits and rewrites name it. Values only, without Arrow."""

from __future__ import annotations

import msgspec


class StoredFile(msgspec.Struct, frozen=True):
    """A data file. `first` and `last` are pairs of partition and offset."""

    key: str
    rows: int
    size_bytes: int
    sha256: str
    first: tuple[int, int]
    last: tuple[int, int]

    @property
    def directory(self) -> str:
        return self.key.rpartition("/")[0] + "/"
