"""Makes gateway/kafka/codec/tables.py: `python -m tests.gateway.kafka.make_tables kafka-clients-4.3.1.jar`.

The jar of Kafka's client has the schema of each message as JSON, in common/message/. A table has what the versions in
`VERSIONS` need of it, in the words that gateway/kafka/codec/schema.py reads.
"""

from __future__ import annotations

import json
import re
import sys
import textwrap
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import ZipFile

TABLES = Path("gateway/kafka/codec/tables.py")
VERSIONS = {  # of each message that this listener reads: the versions that it understands
    "Produce": (3, 13),
    "Fetch": (4, 18),
    "ListOffsets": (1, 11),
    "Metadata": (0, 13),
    "OffsetCommit": (2, 10),
    "OffsetFetch": (1, 10),
    "FindCoordinator": (0, 6),
    "JoinGroup": (0, 9),
    "Heartbeat": (0, 4),
    "LeaveGroup": (0, 5),
    "SyncGroup": (0, 5),
    "DescribeGroups": (0, 6),
    "ListGroups": (0, 5),
    "SaslHandshake": (0, 1),
    "ApiVersions": (0, 4),
    "CreateTopics": (2, 7),
    "DeleteTopics": (1, 6),
    "DeleteRecords": (0, 2),
    "InitProducerId": (0, 5),
    "OffsetForLeaderEpoch": (2, 4),
    "DescribeConfigs": (1, 4),
    "SaslAuthenticate": (0, 2),
    "CreatePartitions": (0, 3),
    "DeleteGroups": (0, 2),
    "IncrementalAlterConfigs": (0, 1),
    "AlterConfigs": (0, 2),
    "DescribeLogDirs": (1, 4),
    "AlterReplicaLogDirs": (1, 2),
    "DescribeAcls": (1, 3),
    "CreateAcls": (1, 3),
    "DeleteAcls": (1, 3),
    "DescribeClientQuotas": (0, 1),
    "AlterClientQuotas": (0, 1),
    "ElectLeaders": (0, 2),
    "AlterPartitionReassignments": (0, 1),
    "ListPartitionReassignments": (0, 0),
    "ListConfigResources": (0, 1),
    "DescribeTopicPartitions": (0, 0),
    "DescribeProducers": (0, 0),
    "ListTransactions": (0, 2),
    "DescribeTransactions": (0, 0),
    "DescribeUserScramCredentials": (0, 0),
    "OffsetDelete": (0, 0),
    "DescribeCluster": (0, 2),
    "ConsumerGroupHeartbeat": (0, 1),
    "ConsumerGroupDescribe": (0, 1),
    "ShareGroupHeartbeat": (1, 1),
    "ShareGroupDescribe": (1, 1),
    "ShareFetch": (1, 2),
    "ShareAcknowledge": (1, 2),
    "DescribeShareGroupOffsets": (0, 1),
    "AlterShareGroupOffsets": (0, 0),
    "DeleteShareGroupOffsets": (0, 0),
}
ENTITIES = {"topicName": "topic", "groupId": "group"}  # texts that name something; others are texts
TYPES = {"int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64", "uint16": "u16", "float64": "f64"}
HEAD = '''"""The messages of Kafka's protocol that this listener reads and writes: made, not written.

`python -m tests.gateway.kafka.make_tables kafka-clients-4.3.1.jar` makes it of the schemas in Kafka's own client, for
the versions that are named here. gateway/kafka/codec/schema.py has the words of a table.
"""

from __future__ import annotations

from typing import NamedTuple


class Table(NamedTuple):
    """An API: its key, its first and last version, the first one with tagged fields, and the fields of its messages."""

    key: int
    first: int
    last: int
    flexible: int
    request: str
    response: str


NEVER = 99  # no version has tagged fields

TABLES = {
'''


class Range(NamedTuple):
    """Versions from the first to the last; empty if the last is lower."""

    first: int
    last: int

    def within(self, other: Range) -> Range:
        return Range(max(self.first, other.first), min(self.last, other.last))

    @property
    def is_empty(self) -> bool:
        return self.last < self.first


def parse_range(text: str) -> Range:
    if text == "none":
        return Range(0, -1)
    if text.endswith("+"):
        return Range(int(text[:-1]), 99)
    first, _, last = text.partition("-")
    return Range(int(first), int(last or first))


def snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def shown(of: Range, within: Range, mark: str) -> str:
    """Returns a range with its mark; nothing if it is the whole of the other."""
    if of == within:
        return ""
    return f"{mark}{of.first}+" if of.last == within.last else f"{mark}{of.first}-{of.last}"


def default(given: Any, kind: str) -> str:
    text = str(given).lower() if given is not None else ""
    if text in ("", "0", "false") and not kind.endswith("]"):
        return ""
    if text.startswith("0x"):
        text = str(int(text, 16))
    return f"={text}" if text else ""


def field(schema: dict[str, Any], structs: dict[str, Any], within: Range) -> str | None:
    """Returns one field in the words of a table; None if no version has it."""
    versions = parse_range(schema["versions"]).within(within)
    if versions.is_empty:
        return None
    kind = schema["type"]
    is_array = kind.startswith("[]")
    inner = kind.removeprefix("[]")
    nullable = parse_range(schema.get("nullableVersions", "none")).within(versions)
    marks = "" if nullable.is_empty else f"?{shown(nullable, versions, '')}"
    marks += shown(versions, within, "@")
    if (tag := schema.get("tag")) is not None:
        marks += f"#{tag}{shown(parse_range(schema['taggedVersions']).within(versions), versions, '/')}"
    marks += default(schema.get("default"), kind)
    name = snake(schema["name"])
    if inner[0].islower():
        word = ENTITIES.get(schema.get("entityType", ""), TYPES.get(inner, inner))
        return f"{name}:{'[]' if is_array else ''}{word}{marks}"
    fields = schema.get("fields") or structs[inner]
    inside = " ".join(one for each in fields if (one := field(each, structs, versions)))
    opening, closing = "[]" if is_array else "{}"
    return f"{name}{marks}{opening}{inside}{closing}"


def message(schema: dict[str, Any], within: Range) -> str:
    structs = {one["name"]: one["fields"] for one in schema.get("commonStructs", ())}
    return " ".join(one for each in schema["fields"] if (one := field(each, structs, within)))


def read_schema(jar: ZipFile, name: str) -> dict[str, Any]:
    text = jar.read(f"common/message/{name}.json").decode()
    found: dict[str, Any] = json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE))
    return found


def quoted(text: str) -> str:
    """Returns a text as literals within the width of a line."""
    lines = textwrap.wrap(text, 104, break_long_words=False, break_on_hyphens=False)
    return "\n".join(f'        "{line}{" " if number < len(lines) else ""}"' for number, line in enumerate(lines, 1))


def render(jar: ZipFile) -> str:
    """Returns the module."""
    out = HEAD
    for name, (first, last) in sorted(VERSIONS.items()):
        request, response = (read_schema(jar, f"{name}{part}") for part in ("Request", "Response"))
        valid = parse_range(request["validVersions"])
        assert valid.first <= first, (name, valid)
        assert last <= valid.last, (name, valid)
        flexible = parse_range(request["flexibleVersions"])
        within = Range(first, last)
        out += f'    "{name}": Table(\n        {request["apiKey"]},\n        {first},\n        {last},\n'
        out += f"        {'NEVER' if flexible.is_empty else flexible.first},\n"
        for one in (request, response):
            out += (quoted(message(one, within)) or '        ""') + ",\n"
        out += "    ),\n"
    return out + "}\n"


if __name__ == "__main__":
    with ZipFile(sys.argv[1]) as opened:
        TABLES.write_text(render(opened))
