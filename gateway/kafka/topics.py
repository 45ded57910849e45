"""CreateTopics, DeleteTopics and CreatePartitions: each topic of a request by itself. Any node takes them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from engine.directory.topics import NAME_RULE, check_new_topic, grown_partitions
from engine.errors import EngineError, InvalidConfig, UnknownTopic
from engine.format.paths import is_topic_name
from engine.topic_settings import TopicSettings
from gateway.access.names import WITHOUT_COUNTS
from gateway.http.problems import Problem
from gateway.http.rights import Operation
from gateway.kafka.audit import audited
from gateway.kafka.cluster import NO_ID, find_topic, find_topic_by_id, id_bytes
from gateway.kafka.codec.messages import Message, types_of
from gateway.kafka.context import KafkaContext
from gateway.kafka.errors import Error, error_of
from gateway.kafka.requests import KafkaRequest
from gateway.kafka.topic_configs import CONFIGS, parse_configs, source_of

DEFAULT = -1  # in place of a number
CONFIGS_VERSION = 5  # of CreateTopics: from it on the answer has the settings

Created, CreatedTopic, CreatedConfig = (types_of("CreateTopics")[path] for path in ("", "topics", "topics.configs"))
Deleted, DeletedTopic = (types_of("DeleteTopics")[path] for path in ("", "responses"))
Grown, GrownTopic = (types_of("CreatePartitions")[path] for path in ("", "results"))


class Refused(Exception):
    """A topic of a request is refused. The text is for people."""

    def __init__(self, error: Error, text: str) -> None:
        super().__init__(text)
        self.error = error
        self.text = text


async def create_topics(request: KafkaRequest, context: KafkaContext) -> Message:
    """Creates topics, or says what would be wrong with them."""
    names = Counter(one.name for one in request.message.topics)
    topics = []
    for one in request.message.topics:
        try:
            topics.append(await _create(request, context, one, names[one.name]))
        except Refused as refused:
            topics.append(CreatedTopic(one.name, NO_ID, request.note(refused.error), refused.text))
        except (EngineError, Problem) as error:
            topics.append(CreatedTopic(one.name, NO_ID, request.note(error_of(error)), _text_of(request, error)))
    return Created(topics=topics)


def _text_of(request: KafkaRequest, failed: EngineError | Problem) -> str:
    """Returns the text of a refusal, for a tenant without the count of what all tenants have."""
    text = str(failed)
    return text if request.space is None else WITHOUT_COUNTS.get(failed.code, text)


async def _create(request: KafkaRequest, context: KafkaContext, one: Message, count: int) -> Message:
    """Creates a topic that the request names `count` times. Raises Refused."""
    name = one.name
    if count > 1:
        raise Refused(Error.INVALID_REQUEST, "the request names the topic more than once")
    if not is_topic_name(name):
        raise Refused(Error.INVALID_TOPIC, NAME_RULE)
    if not request.caller.allows(Operation.CREATE, name):
        raise Refused(Error.TOPIC_AUTHORIZATION_FAILED, f"{request.caller.principal} may not create the topic")
    await context.topics.refresh(name)
    if find_topic(context, name) is not None:
        raise Refused(Error.TOPIC_ALREADY_EXISTS, f"the topic {name!r} exists")
    partitions, replicas = _counts(context, one)
    overrides = parse_configs({config.name: config.value for config in one.configs})
    if request.message.validate_only:
        check_new_topic(name, partitions, replicas, overrides, replication_factor_max=context.peers.count_live_nodes())
        settings, topic_id = TopicSettings(**overrides), NO_ID  # type: ignore[arg-type]
    else:
        context.lifecycle.check_accepting()
        after = {"partitions": partitions, "replication_factor": replicas, "config": overrides}
        async with audited(request, context, Operation.CREATE, name, after=after):
            topic, is_new = await context.topics.create(name, partitions, replicas, overrides)
        if not is_new:
            raise Refused(Error.TOPIC_ALREADY_EXISTS, f"the topic {name!r} exists")
        settings, topic_id = topic.settings, id_bytes(topic.record.topic_id)
    configs = [
        CreatedConfig(config.name, config.shown(settings), config.is_read_only, source_of(config, settings))
        for config in CONFIGS.values()
    ]
    return CreatedTopic(name, topic_id, 0, None, 0, partitions, replicas, configs)


def _counts(context: KafkaContext, one: Message) -> tuple[int, int]:
    """Returns the numbers of partitions and of replicas. Raises Refused."""
    partitions, replicas = one.num_partitions, one.replication_factor
    if one.assignments:
        if (partitions, replicas) != (DEFAULT, DEFAULT):
            raise Refused(Error.INVALID_REQUEST, "give partitions and replicas, or assignments, and not both")
        return _check_assignments(context, {row.partition_index: row.broker_ids for row in one.assignments})
    if partitions == DEFAULT:
        partitions = context.settings.default_partitions
    elif partitions < 1:
        raise Refused(Error.INVALID_PARTITIONS, f"a topic cannot have {partitions} partitions")
    live = context.peers.count_live_nodes()
    if replicas == DEFAULT:
        replicas = context.settings.default_replication_factor
    elif not 1 <= replicas <= live:
        raise Refused(Error.INVALID_REPLICATION_FACTOR, f"{replicas} replicas are asked for, {live} nodes are alive")
    return partitions, replicas


def _check_assignments(context: KafkaContext, given: Mapping[int, Sequence[int]]) -> tuple[int, int]:
    """Takes replicas by node as far as they are what the node would choose: on a standalone node. Raises Refused."""
    own = [context.peers.node_id]
    is_own = all(list(nodes) == own for nodes in given.values()) and context.peers.count_live_nodes() == 1
    if is_own and sorted(given) == list(range(len(given))):
        return len(given), 1
    text = "replicas are placed by the cluster: give a number, and move partitions with penstock cluster reassign"
    raise Refused(Error.INVALID_REPLICA_ASSIGNMENT, text)


async def delete_topics(request: KafkaRequest, context: KafkaContext) -> Message:
    """Deletes topics, by name or by id."""
    message = request.message
    requested: list[tuple[str | None, bytes]] = [(name, NO_ID) for name in message.topic_names]
    if request.version >= 6:
        requested = [(one.name, one.topic_id) for one in message.topics]
    return Deleted(responses=[await _delete(request, context, name, topic_id) for name, topic_id in requested])


async def _delete(request: KafkaRequest, context: KafkaContext, name: str | None, topic_id: bytes) -> Message:
    error, text = Error.NONE, None
    if name is None:
        topic = find_topic_by_id(context, topic_id)
        if topic is None or not request.caller.allows(Operation.DESCRIBE, topic.record.name):
            return DeletedTopic(None, topic_id, request.note(Error.UNKNOWN_TOPIC_ID))
        name = topic.record.name
    if not request.caller.allows(Operation.DELETE, name):
        error = Error.TOPIC_AUTHORIZATION_FAILED
    elif find_topic(context, name) is None:
        error = Error.UNKNOWN_TOPIC_OR_PARTITION
    else:
        try:
            context.lifecycle.check_accepting()
            before = {"topic_id": context.topics.topic(name).record.topic_id}
            async with audited(request, context, Operation.DELETE, name, before=before):
                await context.topics.delete(name)
        except (EngineError, Problem) as failed:
            error, text = error_of(failed), str(failed)
    return DeletedTopic(name, topic_id, request.note(error), text)


async def create_partitions(request: KafkaRequest, context: KafkaContext) -> Message:
    """Adds partitions to topics."""
    results = []
    for one in request.message.topics:
        error, text = Error.NONE, None
        try:
            await _grow(request, context, one)
        except Refused as refused:
            error, text = refused.error, refused.text
        except (EngineError, Problem) as failed:
            error, text = error_of(failed), _text_of(request, failed)
            if isinstance(failed, InvalidConfig):
                error = Error.INVALID_PARTITIONS
        results.append(GrownTopic(one.name, request.note(error), text))
    return Grown(results=results)


async def _grow(request: KafkaRequest, context: KafkaContext, one: Message) -> None:
    if not request.caller.allows(Operation.ALTER, one.name):
        raise Refused(Error.TOPIC_AUTHORIZATION_FAILED, f"{request.caller.principal} may not alter the topic")
    topic = find_topic(context, one.name)
    if topic is None:
        raise UnknownTopic(f"there is no topic {one.name!r}")
    present = topic.record.partitions
    if one.count <= present:
        raise Refused(Error.INVALID_PARTITIONS, f"the topic has {present} partitions: the number can only grow")
    if one.assignments is not None:
        added = {index: row.broker_ids for index, row in enumerate(one.assignments)}
        _check_assignments(context, added)
    grown_partitions(one.name, present, one.count)
    if not request.message.validate_only:
        context.lifecycle.check_accepting()
        before, after = {"partitions": present}, {"partitions": one.count}
        async with audited(request, context, Operation.ALTER, one.name, before=before, after=after):
            await context.topics.alter(one.name, {}, one.count)
