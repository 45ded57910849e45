"""What the bodies of produce requests become before they have a partition: values alone, or rows with their fields.

Two forms, because most requests carry nothing but values and need no object per record.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

Headers = list[tuple[str, bytes | None]]


class IncomingRow(NamedTuple):
    """A record as a client gave it; None stands for what it did not give, and a null value is a tombstone."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp: int | None
    partition: int | None


class IncomingValues(NamedTuple):
    """Records that are nothing but a value: views of the request body."""

    values: Sequence[bytes]


Incoming = IncomingValues | list[IncomingRow]
