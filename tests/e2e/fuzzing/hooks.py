"""Rules for schemathesis that OpenAPI cannot express; its command loads this file.

Only requests that are meant to be valid are corrected; requests that are meant to be invalid are sent as generated. The
end of the file lists reports that are not failures.
"""

from __future__ import annotations

import json
from typing import Any

import schemathesis
from hypothesis import strategies
from schemathesis import GenerationMode
from schemathesis.core.failures import MalformedJson
from schemathesis.openapi.checks import JsonSchemaError, MissingContentType, UseAfterFree

from engine.topic_settings import OF_COMPACTION, OF_RETENTION
from gateway.groups.model.settings import KINDS, KINDS_OF
from openapi import load_examples

# Bodies that are not JSON documents: their schemas can only say "string".
BATCH = next(one.body for one in load_examples() if one.name == "15-produce-batch")
lines = strategies.lists(strategies.integers() | strategies.text(), min_size=1, max_size=5)
schemathesis.openapi.media_type("application/vnd.penstock.recordbatch", strategies.just(BATCH))
schemathesis.openapi.media_type(
    "application/x-ndjson", lines.map(lambda values: "".join(json.dumps(value) + "\n" for value in values).encode())
)
# The schema leaves the formats of CloudEvents attributes (URIs, times since 1970, names) to their specification.
events = strategies.fixed_dictionaries(
    {"specversion": strategies.just("1.0"), "id": strategies.text("ab1", min_size=1), "source": strategies.just("/f")}
    | {"type": strategies.just("fuzz"), "data": strategies.integers() | strategies.text()}
)
schemathesis.openapi.media_type("application/cloudevents+json", events.map(lambda event: json.dumps(event).encode()))
schemathesis.openapi.media_type(
    "application/cloudevents-batch+json",
    strategies.lists(events, min_size=1, max_size=3).map(lambda batch: json.dumps(batch).encode()),
)

STARTS = ("offset", "from", "timestamp")
JSON, RECORD_BATCH, NDJSON = "application/json", "application/vnd.penstock.recordbatch", "application/x-ndjson"
FORMS = ("application/x-www-form-urlencoded", "multipart/form-data")
TOPIC, TOPIC_PARTITIONS = "fuzzed", 8  # created before the run, for requests that name topics in their body
PRODUCER_ID = 0  # assigned before the run
SOURCE = ("Penstock-Source", "Penstock-Source-Positions")
SEQUENCE = ("Producer-Id", "Producer-Epoch", "Producer-Seq")


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: Any) -> None:
    if case.meta is not None and case.meta.generation.mode is not GenerationMode.POSITIVE:
        return
    mend = _MENDS.get(case.operation.definition.raw.get("operationId"))
    if mend is not None:
        mend(case)
    # a greater one belongs to a leader that the node does not know yet: 503
    if "Penstock-Leader-Epoch" in case.headers:
        case.headers["Penstock-Leader-Epoch"] = "0"
    case.headers.pop(
        "Content-Encoding", None
    )  # tests/scenarios/http/test_compressed_bodies.py sends bodies that match their encoding
    if isinstance(case.body, (dict, list)):
        case.body = _whole_numbers(case.body)


def _mend_fetch(case: Any) -> None:
    """Keep exactly one of the start parameters."""
    given = [name for name in STARTS if name in case.query]
    for name in given[1:]:
        del case.query[name]
    if not given:
        case.query["from"] = "earliest"
    if "cloudevents" in case.query:  # one event
        case.query = {**case.query, "max_records": 1}
        case.query.pop("ndjson", None)
        case.query.pop("value", None)


def _mend_topic(case: Any) -> None:
    """A batch holds at least one record, a segment at least one batch, and a standalone node has one replica of each.

    A setting that has no effect is refused, and so is a text that is not a JSON Schema.
    """
    if not isinstance(case.body, dict):
        return
    if "replication_factor" in case.body:
        case.body["replication_factor"] = 1
    config = case.body.get("config", {})
    if {"record_bytes_max", "batch_bytes_max", "segment_bytes"} & config.keys():
        config["segment_bytes"] = max(config.get("segment_bytes", 0), 2**27)
        config["batch_bytes_max"] = 2**26
        config["record_bytes_max"] = min(config.get("record_bytes_max", 2**20), 2**26)
    policy = config.get("cleanup_policy", "delete")
    unused = () if "," in policy else OF_COMPACTION if policy == "delete" else OF_RETENTION
    unused = (*unused, "value_schema", "value_schema_version", "value_schema_type", "value_schema_subject")
    for name in (*unused, *(() if config.get("retention_waits_for_jobs") else ("retention_wait_max_ms",))):
        config.pop(name, None)


def _mend_alter(case: Any) -> None:
    """A topic may only gain partitions, and their current number is unknown here."""
    _mend_topic(case)
    if isinstance(case.body, dict) and case.body.pop("partitions", None) is not None:
        case.body.setdefault("config", {})


def _mend_produce(case: Any) -> None:
    """Some media types only allow keys and line forms."""
    _mend_terms(case)
    case.query.pop("key_pointer", None)
    case.query.pop("ndjson", None)
    if case.media_type == RECORD_BATCH:
        case.query.pop("key", None)
        case.headers.pop("Penstock-Key", None)
    is_empty = isinstance(case.body, (str, bytes)) and not case.body
    if is_empty or case.media_type in FORMS or (case.media_type == JSON and not isinstance(case.body, dict)):
        case.media_type = "application/octet-stream"  # generated for */*; such a value has no bytes form
        case.body = b"raw"
    for record in _records(case):
        record.pop("timestamp", None)  # JSON Schema's date-time allows leap seconds and years before 1970
        record.pop("partition", None)  # a partition other than that of the path or the query is rejected


def _mend_terms(case: Any) -> None:
    """Some conditions apply to one partition, which the request must name. A sequence is complete or absent, and
    excludes a key.
    """
    names_partition = "partition" in case.query or "partition" in (case.path_parameters or {})
    sourced = [case.headers.pop(name, None) for name in SOURCE]
    if all(sourced) and names_partition and case.media_type != RECORD_BATCH and case.query.get("acks") in (None, "all"):
        case.headers |= {SOURCE[0]: sourced[0], SOURCE[1]: "3-9"}
        for name in ("Idempotency-Key", *SEQUENCE):
            case.headers.pop(name, None)
    has_sequence = all(name in case.headers for name in SEQUENCE) and names_partition
    for name in SEQUENCE if not has_sequence else ("Idempotency-Key",):
        case.headers.pop(name, None)
    if has_sequence:
        case.headers["Producer-Id"] = str(PRODUCER_ID)
    if not names_partition:
        for name in ("Penstock-Expected-End", "Penstock-Fencing-Token"):
            case.headers.pop(name, None)
    if case.media_type == RECORD_BATCH:
        case.headers.pop("Idempotency-Key", None)


def _mend_produce_many(case: Any) -> None:
    _mend_produce(case)
    if case.media_type == NDJSON:  # its lines are values, as in a produce to one topic
        case.media_type, case.body = JSON, {"records": [{"value": 1}]}
    for record in _records(case):
        record["topic"] = TOPIC


def _mend_fetch_many(case: Any) -> None:
    """Name each partition once."""
    wanted = case.body["partitions"][:TOPIC_PARTITIONS]
    case.body["partitions"] = [{**one, "topic": TOPIC, "partition": n} for n, one in enumerate(wanted)]
    case.body.pop("wait_ms", None)


def _mend_table_key(case: Any) -> None:
    """The key of the path is text. That of another form has rules that a schema of the path cannot give."""
    case.query.pop("key", None)


def _mend_group(case: Any) -> None:
    """A start at a time needs the time. A setting that has no effect is refused; the kind of the group may be any."""
    config = case.body.get("config", {}) if isinstance(case.body, dict) else {}
    kinds = {config["kind"]} if "kind" in config else set(KINDS)
    for name in [name for name in config if not kinds <= set(KINDS_OF.get(name, KINDS))]:
        del config[name]
    if kinds != {"consumer"}:
        config.pop("start", None)
    if config.get("dead_letter_topic") is None:
        config.pop("deliveries_max", None)
    if config.get("start") == "time":
        config["start_time_ms"] = config.get("start_time_ms") or 0
    else:
        config.pop("start_time_ms", None)


def _mend_acknowledge(case: Any) -> None:
    """A range ends at its first record or after it."""
    for record in _records(case):
        record.pop("last_offset", None)


def _mend_heartbeat(case: Any) -> None:
    """A member that joins names its topics, one that stays names itself. Their topic exists."""
    case.body = {**case.body, "topics": [TOPIC]}
    if case.body.get("member_epoch"):
        case.body.setdefault("member_id", "m")


def _mend_poll(case: Any) -> None:
    """A member reads a topic that exists, waits for nothing, and has no token of its own making."""
    case.body = {name: value for name, value in case.body.items() if name not in ("token", "wait_ms")}
    case.body["topics"] = [TOPIC]


def _mend_offsets(case: Any) -> None:
    """Name each partition once, and a member with its epoch."""
    given = case.body["offsets"][:TOPIC_PARTITIONS]
    case.body["offsets"] = [{**one, "topic": TOPIC, "partition": number} for number, one in enumerate(given)]
    if ("member_id" in case.body) != ("member_epoch" in case.body):
        case.body |= {"member_id": "m", "member_epoch": 1}


def _mend_reset(case: Any) -> None:
    """Keep exactly one of the ways to move a group."""
    given = [name for name in ("to", "ago_ms", "shift", "offsets") if name in case.body]
    case.body = {name: value for name, value in case.body.items() if name not in given[1:]}
    if not given:
        case.body["to"] = "earliest"
    if "offsets" in case.body:
        _mend_offsets(case)
        case.body.pop("member_id", None)
        case.body.pop("member_epoch", None)


def _records(case: Any) -> list[dict[str, Any]]:
    return case.body.get("records", []) if isinstance(case.body, dict) else []


def _whole_numbers(value: Any) -> Any:
    """JSON Schema takes 1.0 for an integer; the contract, in its first words, does not."""
    if isinstance(value, dict):
        return {name: _whole_numbers(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_whole_numbers(part) for part in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _mend_rule(case: Any) -> None:
    """A rule names networks, and a resource of its kind in the way of its pattern, for operations of that kind."""
    rule = case.body
    rule |= {"resource": "topic", "operations": ["read"], "sources": []}
    rule["name"] = "" if rule.get("pattern", "literal") == "all" else TOPIC


def _mend_check(case: Any) -> None:
    """The groups are principals, and the address is one."""
    case.body |= {"resource": "topic", "operation": "read", "name": TOPIC, "groups": [], "address": ""}


def _mend_quota(case: Any) -> None:
    """A quota limits something, and the names of owners depend on their kind. A large one holds nothing back."""
    case.path_parameters["name"] = "*+*" if case.path_parameters.get("owner") == "client" else "*"
    if isinstance(case.body, dict):
        case.body = {"requests": 10**9, **{name: case.body[name] for name in ("per", "note") if name in case.body}}


def _mend_tenant(case: Any) -> None:
    case.path_parameters["tenant"] = "fuzzed"


def _mend_usage(case: Any) -> None:
    """The first hour is before the end, and at most a month before it. Neither need be named."""
    for name in ("from", "to"):
        case.query.pop(name, None)


def _mend_node(case: Any) -> None:
    case.path_parameters["node_id"] = 1  # no other node is there


def _mend_moves(case: Any) -> None:
    """A move names a directory of the node, so only the other form of the request is sent."""
    _mend_node(case)
    if isinstance(case.body, dict):
        case.body = {"balance": True, "dry_run": True}


def _mend_history(case: Any) -> None:
    if case.query:
        case.query.pop("names", None)  # those of series, which the schema does not list


_MENDS = {
    "read_history": _mend_history,
    "describe_disks": _mend_node,
    "move_partitions": _mend_moves,
    "cancel_move": _mend_node,
    "describe_usage": _mend_usage,
    "set_quota": _mend_quota,
    "create_tenant": _mend_tenant,
    "add_rule": _mend_rule,
    "check_access": _mend_check,
    "fetch": _mend_fetch,
    "fetch_many": _mend_fetch_many,
    "create_topic": _mend_topic,
    "alter_topic": _mend_alter,
    "produce": _mend_produce,
    "produce_to_partition": _mend_produce,
    "produce_many": _mend_produce_many,
    "read_table_key": _mend_table_key,
    "configure_group": _mend_group,
    "alter_group": _mend_group,
    "acknowledge_records": _mend_acknowledge,
    "group_heartbeat": _mend_heartbeat,
    "group_poll": _mend_poll,
    "commit_group_offsets": _mend_offsets,
    "reset_group": _mend_reset,
}


@schemathesis.hook
def filter_failure(context: Any, failure: Any, case: Any, response: Any) -> bool:
    """Ignore three reports. Deleting records does not delete their partition. An event in binary mode without data has
    no media type, by its specification. An event whose data is JSON is not a fetch document.
    """
    if isinstance(failure, UseAfterFree):
        return not failure.free.endswith("/records")
    if "ce-id" not in response.headers:
        return True
    if isinstance(failure, JsonSchemaError):
        return False
    return bool(response.content) or not isinstance(failure, (MissingContentType, MalformedJson))
