"""The options and the columns of a write to a topic. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from spark_ingest.errors import IngestRefused
from spark_ingest.frames.read_options import given_options, integer, one_of

REQUEST_BYTES = 4 << 20  # half of a node's request_body_bytes_max
_OPTIONS = ("url", "topic", "token", "cacert", "partitions", "writeid", "sortrows", "requestbytes")
_OF_STREAMS = {"checkpointlocation", "queryname", "outputmode"}
_WRITE_ID = re.compile(r"[A-Za-z0-9._-]{1,100}")
RECORD_COLUMNS = {
    "key": ("string", "binary"),
    "value": ("string", "binary"),
    "headers": ("array<struct<name:string,value:binary>>",),
    "timestamp": ("timestamp",),
    "partition": ("int",),
}


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """`partitions` None is the number of the topic when the write is planned; `write_id` None makes a new one."""

    url: str
    topic: str
    token: str | None
    cacert: str | None
    partitions: int | None
    write_id: str | None
    sorts_rows: bool
    request_bytes: int


def parse_write_options(options: Mapping[str, str], columns: Sequence[tuple[str, str]]) -> WriteOptions:
    """Parses the options that Spark passes, and checks names and types of columns. Raises IngestRefused."""
    given = {name: value for name, value in given_options(options).items() if name not in _OF_STREAMS}
    unknown = sorted(set(given) - {*_OPTIONS})
    if unknown:
        raise IngestRefused(f"unknown options {unknown}", hint=f"there are: {', '.join(_OPTIONS)}")
    if "url" not in given or "topic" not in given:
        raise IngestRefused("give the options 'url' (of a node) and 'topic'")
    if "writeid" in given and not _WRITE_ID.fullmatch(given["writeid"]):
        raise IngestRefused(f"writeId={given['writeid']!r} is not 1 to 100 letters, digits, dots, dashes, underscores")
    for name, kind in columns:
        if kind not in RECORD_COLUMNS.get(name, (kind,)):
            raise IngestRefused(
                f"the column {name!r} is {kind}", hint=f"it must be {' or '.join(RECORD_COLUMNS[name])}"
            )
    return WriteOptions(
        url=given["url"],
        topic=given["topic"],
        token=given.get("token"),
        cacert=given.get("cacert"),
        partitions=integer(given["partitions"], "partitions", 1) if "partitions" in given else None,
        write_id=given.get("writeid"),
        sorts_rows=one_of(given.get("sortrows", "false"), "sortRows", ("true", "false")) == "true",
        request_bytes=integer(given.get("requestbytes", str(REQUEST_BYTES)), "requestBytes", 1),
    )
