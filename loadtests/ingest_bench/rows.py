"""The rows of the benchmark: JSON objects of about 242 bytes with a nested struct, whose event times rise evenly.

The same arguments give the same bytes.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from random import Random

BEGIN = datetime(2026, 3, 1, tzinfo=UTC)
DDL = (
    "id BIGINT, ts STRING, user STRING, carrier STRING, amount DOUBLE, ok BOOLEAN, "
    "device STRUCT<os: STRING, version: STRING, width: BIGINT, ratio: DOUBLE>, note STRING"
)
BODY_ROWS = 5_000
HUGE_BYTES = 60 << 20  # a topic takes records of up to 64 MiB
_CARRIERS = ("AA", "UA", "DL", "WN", "B6")
_SYSTEMS = ("linux", "android", "ios", "macos")
_TEXT_CHARACTERS = 1 << 20  # notes are pieces of a text of this length, and so hardly ever repeat


def bodies(rows: int, hours: int) -> Iterator[bytes]:
    """Yields the rows as NDJSON, BODY_ROWS lines at a time."""
    random = Random(rows + hours)
    text = "".join(random.choices("abcdefghij klmnopqrs", k=_TEXT_CHARACTERS))
    step = timedelta(hours=hours) / rows
    for first in range(0, rows, BODY_ROWS):
        ids = range(first, min(first + BODY_ROWS, rows))
        yield "".join(_line(number, BEGIN + number * step, random, text) for number in ids).encode()


def hostile_names(names: int = 1_000_000) -> Iterator[bytes]:
    """Yields rows with five members each, whose names never repeat."""
    for first in range(0, names, 5 * BODY_ROWS):
        rows = range(first, min(first + 5 * BODY_ROWS, names), 5)
        yield "".join(
            f'{{"n{at}":1,"n{at + 1}":2,"n{at + 2}":3,"n{at + 3}":4,"n{at + 4}":5}}\n' for at in rows
        ).encode()


def flights() -> Iterator[bytes]:
    """Yields the flights of the demo as NDJSON.

    Another process reads them: the memory of a measured process begins with that of its parent.
    """
    with subprocess.Popen([sys.executable, "-m", __name__], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        while body := b"".join(islice(process.stdout, BODY_ROWS)):
            yield body


def huge_record() -> Iterator[bytes]:
    """Yields one row of 60 MiB."""
    yield b'{"id":1,"note":"%s"}\n' % (b"x" * HUGE_BYTES)


def _line(number: int, time: datetime, random: Random, text: str) -> str:
    at = random.randrange(1 << 30)
    begin = at % (_TEXT_CHARACTERS - 72)
    at_ms = f"{time:%Y-%m-%dT%H:%M:%S}.{time.microsecond // 1000:03}Z"
    return (
        f'{{"id":{number},"ts":"{at_ms}","user":"user-{at % 100_003:06}",'
        f'"carrier":"{_CARRIERS[at % 5]}","amount":{at % 99_991 / 100},"ok":{"true" if at & 64 else "false"},'
        f'"device":{{"os":"{_SYSTEMS[at % 4]}","version":"{at % 17}.{at % 23}","width":{640 + at % 7 * 160},'
        f'"ratio":{1 + at % 13 / 8}}},"note":"{text[begin : begin + 42 + at % 31]}"}}\n'
    )


if __name__ == "__main__":
    from loadtests.demo.flights import read_flights

    sys.stdout.buffer.writelines(line + b"\n" for line in read_flights().lines)
