"""`penstock topic copy`: copies the records of a topic to another one, each once, however often the command is run.

The copy keeps the partition, order, key, headers, timestamp and bytes of each record. Each partition of the copy
remembers how far it is, in the same batch as the records (Penstock-Source), so there is no other state.
"""

from __future__ import annotations

from typing import Any, NamedTuple
from urllib.parse import quote

import click
import orjson

from penstock.admin import api
from penstock.admin.single_request import SingleRequestClient
from penstock.cli.completing import topics
from penstock.cli.failures import Failure
from penstock.cli.node import Node, node_options
from penstock.cli.output import Column, print_json, print_table
from penstock.errors import ProblemError
from penstock.transport.api import JSON_TYPE, topic_path
from penstock.transport.exchange import Json, Request

FETCH_BYTES = 1 << 20
_SCHEMA = ("value_schema", "value_schema_version")
_OWN_FIELDS = ("offset", "partition")  # of a fetched record; the copy has its own


class Copied(NamedTuple):
    """The outcome for a partition: the records that were copied now, and the offset of the next one to copy."""

    partition: int
    records: int
    next_offset: int


@click.command("copy")
@click.argument("name", metavar="FROM", shell_complete=topics)
@click.argument("to", metavar="TO", shell_complete=topics)
@click.option("--partition", "-p", "only", type=click.IntRange(0), metavar="N", help="Only this partition.")
@node_options
def copy(name: str, to: str, only: int | None, node: Node, as_json: bool) -> None:
    """Copy the records of a topic to another one, up to its present end.

    Creates the other topic with the same settings if it is not there; a schema is set after the records. Run it again
    to continue after an interruption, or to copy what has come since: each record is stored once.

    \f
    Raises Failure, click.UsageError.
    """
    once = node.once()
    described = once.describe_topic(name)
    if name == to:
        raise click.UsageError("a topic is not copied to itself", click.get_current_context())
    ends = {row["partition"]: row["high_watermark"] for row in described["partitions"]}
    numbers = sorted(ends) if only is None else [only]
    if only is not None and only not in ends:
        raise Failure(f"topic {name} has no partition {only}")
    _check_copy(once, described, to)
    copied = [_copy_partition(once, described, to, number, ends[number]) for number in numbers]
    if only is None:
        _copy_schema(once, described, to)
    if as_json:
        print_json({"topic": name, "to": to, "partitions": [row._asdict() for row in copied]})
        return
    columns = [Column("partition"), Column("records copied"), Column("next offset")]
    print_table(columns, copied)


def _check_copy(once: SingleRequestClient, described: Json, to: str) -> None:
    """Creates the copy if it is not there. Raises Failure if it has fewer partitions."""
    count = len(described["partitions"])
    try:
        present = len(once.describe_topic(to)["partitions"])
    except ProblemError as error:
        if error.code != "unknown_topic":
            raise
        config = {key: value for key, value in described["config"].items() if key not in _SCHEMA}
        once.send(api.create_topic(to, count, described["replication_factor"], config)).check()
        return
    if present < count:
        raise Failure(
            f"topic {to} has {present} partitions, {described['topic']} has {count}: add some with topic alter"
        )


def _copy_schema(once: SingleRequestClient, described: Json, to: str) -> None:
    """Sets the schema last, if the copy has never had one: the topic may have records from before its own."""
    text = described["config"].get("value_schema")
    if not text:
        return
    present = once.describe_topic(to)["config"]
    if (present["value_schema"], present["value_schema_version"]) == ("", 1):
        once.alter_topic(to, {"value_schema": text})


def _copy_partition(once: SingleRequestClient, described: Json, to: str, number: int, end: int | None) -> Copied:
    """Copies one partition up to an offset, from where its copy is. Raises Failure."""
    name, topic_id = described["topic"], described["topic_id"]
    if end is None:
        raise Failure(f"partition {number} of {name} has no leader that answers: run the command again later")
    records = 0
    position = _next_position(once, to, number, topic_id)
    fetch = Request("GET", f"{topic_path(name)}/partitions/{number}/records")
    while position is None or position < end:
        at: dict[str, Any] = {"from": "earliest"} if position is None else {"offset": position, "topic_id": topic_id}
        try:
            answer = once.send(fetch._replace(query=at | {"max_bytes": FETCH_BYTES, "value": "base64"})).json()
        except ProblemError as error:
            if error.code != "offset_below_log_start":
                raise
            position = None  # retention has deleted what was to be copied
            continue
        found = [record for record in answer["records"] if record["offset"] < end]
        bad = next((record for record in found if "error" in record), None)
        if bad is not None:
            raise Failure(
                f"{name}/{number}: the batch at offset {bad['offset']} cannot be decoded: the copy ends before it"
            )
        next_offset = min(answer["next_offset"], end)
        if found:
            source = _source_of(topic_id, number)
            stored = _store(once, to, number, source, found, (found[0]["offset"], next_offset - 1))
            records += len(found) if stored is None else 0
            next_offset = next_offset if stored is None else stored + 1
        elif next_offset == position or answer["next_offset"] == answer["high_watermark"]:
            break
        position = next_offset
    return Copied(number, records, end if position is None else max(position, 0))


def _store(
    once: SingleRequestClient, to: str, number: int, source: str, records: list[Any], positions: tuple[int, int]
) -> int | None:
    """Stores records with their positions. Returns the position that another run has stored meanwhile, if one has."""
    body = {"records": [{key: one for key, one in record.items() if key not in _OWN_FIELDS} for record in records]}
    first, last = positions
    headers = {
        "Content-Type": JSON_TYPE,
        "Penstock-Source": source,
        "Penstock-Source-Positions": f"{first}-{last}",
    }
    path = f"{topic_path(to)}/partitions/{number}/records"
    try:
        once.send(Request("POST", path, {}, orjson.dumps(body), headers)).check()
    except ProblemError as error:
        if error.code != "source_position_stored":
            raise
        return int(error.members["source_position"])
    return None


def _next_position(once: SingleRequestClient, to: str, number: int, topic_id: str) -> int | None:
    """Returns where the copy goes on; None: it has nothing yet."""
    path = f"{topic_path(to)}/partitions/{number}/source"
    try:
        found = once.send(Request("GET", path, {"name": _source_of(topic_id, number)})).json()
    except ProblemError as error:
        if error.code != "unknown_source":
            raise
        return None
    return int(found["source_position"]) + 1


def _source_of(topic_id: str, number: int) -> str:
    """Returns the name of the input in the copy: a topic that is created again is another one."""
    return f"topic/{quote(topic_id, safe='')}/{number}"
