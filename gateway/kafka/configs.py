"""Settings of topics by Kafka's names, to look at and to change, and those of brokers to look at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple

from engine.directory.topics import changed_topic
from engine.errors import EngineError
from engine.topic_settings import TopicSettings
from gateway.http.problems import Problem
from gateway.http.rights import Operation, Resource
from gateway.kafka.audit import audited
from gateway.kafka.cluster import brokers, find_topic, visible_topics
from gateway.kafka.codec.messages import Message, types_of
from gateway.kafka.context import KafkaContext
from gateway.kafka.errors import Error, error_of
from gateway.kafka.requests import KafkaRequest
from gateway.kafka.topic_configs import CONFIGS, STATIC, Kind, parse_configs, source_of

TOPIC, BROKER, BROKER_LOGGER = 2, 4, 8  # types of resources
NAMED_TYPES = (TOPIC, BROKER, BROKER_LOGGER)
SET, DELETE, APPEND, SUBTRACT = range(4)
_DEFAULTS = TopicSettings()
_THROTTLES = frozenset(
    {"leader.replication.throttled.rate", "follower.replication.throttled.rate",
     "replica.alter.log.dirs.io.max.bytes.per.second"}
)  # fmt: skip

Described, DescribedResource, DescribedConfig, Synonym = (
    types_of("DescribeConfigs")[path] for path in ("", "results", "results.configs", "results.configs.synonyms")
)
Altered, AlteredResource = (types_of("IncrementalAlterConfigs")[path] for path in ("", "responses"))
Replaced, ReplacedResource = (types_of("AlterConfigs")[path] for path in ("", "responses"))
Listed, ListedResource = (types_of("ListConfigResources")[path] for path in ("", "config_resources"))


class Entry(NamedTuple):
    """One setting as it is shown."""

    name: str
    value: str
    kind: Kind
    source: int
    is_read_only: bool


def describe_configs(request: KafkaRequest, context: KafkaContext) -> Message:
    """Describes topics and brokers."""
    return Described(results=[_describe(request, context, one) for one in request.message.resources])


def _describe(request: KafkaRequest, context: KafkaContext, one: Message) -> Message:
    kind, name = one.resource_type, one.resource_name
    error, entries = Error.NONE, list[Entry]()
    if kind == TOPIC:
        topic = find_topic(context, name)
        if not request.caller.allows(Operation.DESCRIBE, name):
            error = Error.TOPIC_AUTHORIZATION_FAILED
        elif topic is None:
            error = Error.UNKNOWN_TOPIC_OR_PARTITION
        else:
            entries = list(_of_topic(topic.settings))
    elif not request.caller.allows(Operation.DESCRIBE, "", Resource.CLUSTER):
        error = Error.CLUSTER_AUTHORIZATION_FAILED
    elif kind == BROKER:
        entries = list(_of_broker(context))
    elif kind != BROKER_LOGGER:
        return DescribedResource(
            request.note(Error.INVALID_REQUEST), f"resources of type {kind} have no settings here", kind, name
        )
    requested = None if one.configuration_keys is None else set(one.configuration_keys)
    configs = [
        DescribedConfig(
            entry.name,
            entry.value,
            entry.is_read_only,
            entry.source,
            False,
            [Synonym(entry.name, entry.value, entry.source)] if request.message.include_synonyms else [],
            entry.kind,
            None,
        )
        for entry in entries
        if requested is None or entry.name in requested
    ]
    return DescribedResource(request.note(error), None, kind, name, configs)


def _of_topic(settings: TopicSettings) -> Iterator[Entry]:
    for config in CONFIGS.values():
        yield Entry(config.name, config.shown(settings), config.kind, source_of(config, settings), config.is_read_only)


def _of_broker(context: KafkaContext) -> Iterator[Entry]:
    """Yields what tools and connectors ask of brokers. They are set where the node is started."""
    settings, topics = context.settings, TopicSettings()
    retention = -1 if topics.retention_ms is None else topics.retention_ms
    values: dict[str, tuple[Kind, object]] = {
        "advertised.listeners": (Kind.STRING, f"KAFKA://{context.own_address.text}"),
        "auto.create.topics.enable": (Kind.BOOLEAN, settings.auto_create_topics),
        "default.replication.factor": (Kind.INT, settings.default_replication_factor),
        "delete.topic.enable": (Kind.BOOLEAN, True),
        "log.cleanup.policy": (Kind.LIST, topics.cleanup_policy),
        "log.message.timestamp.type": (Kind.STRING, "CreateTime"),
        "log.retention.bytes": (Kind.LONG, -1 if topics.retention_bytes is None else topics.retention_bytes),
        "log.retention.ms": (Kind.LONG, retention),
        "log.segment.bytes": (Kind.INT, topics.segment_bytes),
        "message.max.bytes": (Kind.INT, topics.batch_bytes_max),
        "min.insync.replicas": (Kind.INT, topics.min_insync_replicas),
        "node.id": (Kind.INT, context.peers.node_id),
        "num.partitions": (Kind.INT, settings.default_partitions),
        "offsets.topic.num.partitions": (Kind.INT, settings.groups_partitions),
    }
    for name, (kind, value) in values.items():
        yield Entry(name, str(value).lower() if isinstance(value, bool) else str(value), kind, STATIC, True)


def list_config_resources(request: KafkaRequest, context: KafkaContext) -> Message:
    """Lists what has settings: topics and brokers. Before version 1 only the kind is listed that is not here."""
    kinds = request.message.resource_types or NAMED_TYPES if request.version else ()
    resources = []
    if TOPIC in kinds:
        resources += [ListedResource(topic.record.name, TOPIC) for topic in visible_topics(request, context)]
    for kind in (BROKER, BROKER_LOGGER):
        if kind in kinds and request.caller.allows(Operation.DESCRIBE, "", Resource.CLUSTER):
            resources += [ListedResource(str(broker.node_id), kind) for broker in brokers(context)]
    return Listed(config_resources=resources)


async def incremental_alter_configs(request: KafkaRequest, context: KafkaContext) -> Message:
    """Changes settings of topics, each resource by itself."""
    rows = await _alter_all(request, context, _changes_of)
    return Altered(responses=[AlteredResource(*row) for row in rows])


async def alter_configs(request: KafkaRequest, context: KafkaContext) -> Message:
    """Replaces the settings of topics: those that are not named get their defaults."""
    rows = await _alter_all(request, context, _all_of)
    return Replaced(responses=[ReplacedResource(*row) for row in rows])


Changes = dict[str, str | None]  # settings by name; None: the default
Read = Callable[[Message, TopicSettings], Changes]


class Refused(Exception):
    """A resource of a request is refused. The text is for people."""

    def __init__(self, error: Error, text: str | None = None) -> None:
        super().__init__(text)
        self.error = error
        self.text = text


async def _alter_all(
    request: KafkaRequest, context: KafkaContext, read: Read
) -> list[tuple[Error, str | None, int, str]]:
    """Alters each resource of a request by the changes that `read` returns. Returns the rows of the answer."""
    named = Counter((one.resource_type, one.resource_name) for one in request.message.resources)
    rows = []
    for one in request.message.resources:
        where, error, text = (one.resource_type, one.resource_name), Error.NONE, None
        try:
            if named[where] > 1:
                raise Refused(Error.INVALID_REQUEST, "the request names the resource more than once")
            await _alter(request, context, one, read)
        except Refused as refused:
            error, text = refused.error, refused.text
        except (EngineError, Problem) as failed:
            error, text = error_of(failed), str(failed)
        rows.append((request.note(error), text, *where))
    return rows


async def _alter(request: KafkaRequest, context: KafkaContext, one: Message, read: Read) -> None:
    name = one.resource_name
    if one.resource_type == BROKER and _ends_throttles(one):
        if not request.caller.allows(Operation.OPERATE, "", Resource.CLUSTER):
            raise Refused(Error.CLUSTER_AUTHORIZATION_FAILED)
        return
    if one.resource_type != TOPIC:
        raise Refused(Error.INVALID_CONFIG, "settings of a broker are read only: they are given when the node starts")
    if not request.caller.allows(Operation.ALTER, name):
        raise Refused(Error.TOPIC_AUTHORIZATION_FAILED)
    topic = find_topic(context, name)
    if topic is None:
        raise Refused(Error.UNKNOWN_TOPIC_OR_PARTITION)
    stored = topic.record.overrides
    present = {own: stored.get(own, getattr(_DEFAULTS, own)) for own in TopicSettings.__slots__}
    given = parse_configs(read(one, topic.settings))
    overrides = {own: value for own, value in given.items() if value != present[own]}
    changed_topic(topic.record, overrides, None)
    if not request.message.validate_only and overrides:
        context.lifecycle.check_accepting()
        before = {"config": {own: present[own] for own in overrides}}
        async with audited(request, context, Operation.ALTER, name, before=before, after={"config": overrides}):
            await context.topics.alter(name, overrides, None)


def _ends_throttles(one: Message) -> bool:
    """Returns whether a request only removes throttles of moves, as kafka-reassign-partitions does. No node has any."""
    return bool(one.configs) and all(
        getattr(config, "config_operation", SET) == DELETE and config.name in _THROTTLES for config in one.configs
    )


def _all_of(one: Message, _: TopicSettings) -> Changes:
    """Returns the settings of a request, and the defaults of all others."""
    given = {config.name: config.value for config in one.configs}
    if len(given) < len(one.configs):
        raise Refused(Error.INVALID_REQUEST, "a setting is named twice")
    return dict.fromkeys(CONFIGS.keys() - given.keys()) | given


def _changes_of(one: Message, present: TopicSettings) -> Changes:
    """Returns the settings that a request changes. Raises Refused."""
    changes: Changes = {}
    for config in one.configs:
        if config.name in changes:
            raise Refused(Error.INVALID_REQUEST, f"{config.name} is changed twice")
        if config.config_operation in (APPEND, SUBTRACT):
            known = CONFIGS.get(config.name)
            if known is None or known.kind is not Kind.LIST:
                raise Refused(Error.INVALID_CONFIG, f"{config.name} is not a list")
            words = [word for word in known.shown(present).split(",") if word]
            given = [word.strip() for word in (config.value or "").split(",") if word.strip()]
            if config.config_operation == APPEND:
                words += [word for word in given if word not in words]
            else:
                words = [word for word in words if word not in given]
            changes[config.name] = ",".join(words)
        elif config.config_operation == SET:
            changes[config.name] = config.value
        elif config.config_operation == DELETE:
            changes[config.name] = None
        else:
            raise Refused(Error.INVALID_REQUEST, f"there is no operation {config.config_operation}")
    return changes
