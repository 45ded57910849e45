"""The options of `readStream`: those of a read, and its own. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from spark_ingest.errors import IngestRefused
from spark_ingest.frames.read_options import FAIL, SKIP, ReadOptions, given_options, integer, one_of, parse_options

POLL_MS = 1000  # Spark asks for new records every 10 ms; a look at the store takes a request a partition and more
LATEST = "latest"
_OWN = ("maxrecordsperbatch", "maxbytesperbatch", "pollms", "onlost")


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """`read` has the options of a read; its start offsets are those of a new query."""

    read: ReadOptions
    starts_at_end: bool
    records_max: int | None
    bytes_max: int | None
    poll_ms: int
    on_lost: str

    @property
    def skips_lost(self) -> bool:
        return self.on_lost == SKIP


def parse_stream_options(options: Mapping[str, str]) -> StreamOptions:
    """Parses the options that Spark passes. Raises IngestRefused."""
    given = given_options(options)
    for name in ("endoffset", "endtime"):
        if name in given:
            raise IngestRefused(f"{name}: a stream has no end", hint="use spark.read, or Trigger.AvailableNow")
    stream_options = {name: given.pop(name) for name in _OWN if name in given}
    starts_at_end = given.get("startoffset") == LATEST
    if starts_at_end:
        given.pop("startoffset")
    return StreamOptions(
        read=parse_options(given),
        starts_at_end=starts_at_end,
        records_max=_limit(stream_options, "maxrecordsperbatch"),
        bytes_max=_limit(stream_options, "maxbytesperbatch"),
        poll_ms=integer(stream_options.get("pollms", str(POLL_MS)), "pollMs", 0),
        on_lost=one_of(stream_options.get("onlost", FAIL), "onLost", (FAIL, SKIP)),
    )


def without_stream_options(options: Mapping[str, str]) -> dict[str, str]:
    """Returns the options of a read: Spark asks for the columns of a read and of a stream in the same way."""
    given = {name: value for name, value in given_options(options).items() if name not in _OWN}
    if given.get("startoffset") == LATEST:
        del given["startoffset"]
    return given


def _limit(stream_options: Mapping[str, str], name: str) -> int | None:
    return integer(stream_options[name], name, 1) if name in stream_options else None
