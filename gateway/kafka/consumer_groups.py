"""ConsumerGroupHeartbeat and ConsumerGroupDescribe (KIP-848): members of this door in the groups that HTTP has."""

from __future__ import annotations

from collections.abc import Iterable

from engine.errors import EngineError
from engine.format.paths import INTERNAL_TOPICS, is_topic_name
from gateway.groups.core.expressions import CHARACTERS_MAX
from gateway.groups.hosting import classic
from gateway.groups.model.consumer_protocol import (
    AWAY,
    JOIN,
    LEAVE,
    ConsumerAnswer,
    ConsumerCall,
    ConsumerMemberView,
    ConsumerView,
)
from gateway.groups.model.errors import UnknownGroup, UnknownMember, WrongGroupKind
from gateway.groups.model.values import Client
from gateway.http.problems import Problem
from gateway.http.rights import Operation
from gateway.kafka.cluster import find_topic_by_id, id_bytes
from gateway.kafka.codec.messages import Message, types_of
from gateway.kafka.context import KafkaContext
from gateway.kafka.errors import Error
from gateway.kafka.groups import ERRORS, NAME_CHARS_MAX, STATES, coordinator_error, host_of, refusal_of_group
from gateway.kafka.requests import KafkaRequest

ASSIGNORS = {"uniform": "sticky", "range": "range"}  # Kafka's names, and ours
TOPICS_MAX = 1000  # of one member, as over HTTP
REBALANCE_MS_MIN, REBALANCE_MS_MAX = 1000, 3_600_000
CONSUMER = 1  # the type of a member
UNKNOWN_TYPE = -1
MEMBER_CHARS_MAX = 200
_TELLING = frozenset({Error.INVALID_REGULAR_EXPRESSION, Error.GROUP_ID_NOT_FOUND, Error.GROUP_MAX_SIZE_REACHED})

Beaten, Assignment, AssignedTopic = (
    types_of("ConsumerGroupHeartbeat")[path] for path in ("", "assignment", "assignment.topic_partitions")
)
Described, DescribedGroup, DescribedMember, MemberAssignment, MemberTopic = (
    types_of("ConsumerGroupDescribe")[path]
    for path in ("", "groups", "groups.members", "groups.members.assignment",
                 "groups.members.assignment.topic_partitions")
)  # fmt: skip
TargetAssignment, TargetTopic = (
    types_of("ConsumerGroupDescribe")[f"groups.members.target_assignment{path}"] for path in ("", ".topic_partitions")
)


async def consumer_group_heartbeat(request: KafkaRequest, context: KafkaContext) -> Message:
    """Joins a group, keeps a member in it, or leaves it; answers what the member is to read."""
    message = request.message
    refused, text = refusal_of_group(request, context, message.group_id), _mistake(request)
    if refused is Error.NONE and text:
        refused = Error.INVALID_REQUEST
    if refused is Error.NONE and message.server_assignor not in (None, "", *ASSIGNORS):
        refused, text = Error.UNSUPPORTED_ASSIGNOR, f"the assignors are {', '.join(ASSIGNORS)}"
    if refused is Error.NONE:
        refused = refusal_of_topics(request, message.subscribed_topic_names or ())
    member_id = message.member_id or context.groups.new_id()
    if refused is not Error.NONE:
        return Beaten(error_code=request.note(refused), error_message=text or None, member_id=member_id)
    call = _call(request, context, member_id)
    try:
        answer = await context.groups.coordinators.call(
            classic.CONSUMER_HEARTBEAT, ConsumerAnswer, call.group, call, creates=call.member_epoch == JOIN
        )
    except (EngineError, Problem) as error:
        if call.member_epoch in (LEAVE, AWAY) and error.code == UnknownGroup.code:
            return Beaten(member_id=member_id, member_epoch=call.member_epoch)
        refused = error_of_member(error)
        text = error.detail if refused in _TELLING else ""
        return Beaten(error_code=request.note(refused), error_message=text or None, member_id=member_id)
    return Beaten(
        error_code=request.note(ERRORS[answer.refusal]),
        member_id=member_id,
        member_epoch=answer.member_epoch,
        heartbeat_interval_ms=answer.heartbeat_ms,
        assignment=None if answer.assignment is None else Assignment(_by_topic(answer.assignment)),
    )


def refusal_of_topics(request: KafkaRequest, names: Iterable[str]) -> Error:
    """Returns why a member may not read these topics."""
    for name in names:
        if name in INTERNAL_TOPICS or not is_topic_name(name):
            return Error.INVALID_TOPIC
        if not request.caller.allows(Operation.READ, name):
            return Error.TOPIC_AUTHORIZATION_FAILED
    return Error.NONE


def error_of_member(error: EngineError | Problem) -> Error:
    """Returns the error of a member's heartbeat; in a group that is gone it is not known, and joins again."""
    if error.code in (UnknownGroup.code, UnknownMember.code):
        return Error.UNKNOWN_MEMBER_ID
    return Error.GROUP_ID_NOT_FOUND if error.code == WrongGroupKind.code else coordinator_error(error)


def is_member_id(text: str) -> bool:
    """Returns whether a text can name a member: clients use base64, some with the characters + and /."""
    return 0 < len(text) <= MEMBER_CHARS_MAX and text.isascii() and text.isprintable()


def _call(request: KafkaRequest, context: KafkaContext, member_id: str) -> ConsumerCall:
    message = request.message
    names, owned, rebalance_ms = message.subscribed_topic_names, message.topic_partitions, message.rebalance_timeout_ms
    is_whole = rebalance_ms >= 0 and names is not None and owned is not None
    return ConsumerCall(
        message.group_id,
        member_id,
        message.member_epoch,
        message.instance_id,
        None if names is None else tuple(names),
        message.subscribed_topic_regex if request.version else None,
        request.caller.prefixes(Operation.READ),
        ASSIGNORS.get(message.server_assignor or ""),
        None if owned is None else tuple(_pairs(context, owned)),
        None if rebalance_ms < 0 else min(max(rebalance_ms, REBALANCE_MS_MIN), REBALANCE_MS_MAX),
        is_whole,
        Client(request.client.client_id, request.client.host, message.rack_id or ""),
    )


def _pairs(context: KafkaContext, owned: Iterable[Message]) -> Iterable[tuple[str, int]]:
    for one in owned:
        topic = find_topic_by_id(context, one.topic_id)
        if topic is not None:  # one that is gone is in no assignment any more
            for number in one.partitions:
                yield topic.record.name, number


def _mistake(request: KafkaRequest) -> str:
    """Returns what is wrong in a heartbeat; nothing if it is well-formed."""
    message = request.message
    epoch, names = message.member_epoch, message.subscribed_topic_names
    if epoch < AWAY:
        return f"there is no member epoch {epoch}"
    if not message.member_id and (request.version or epoch != JOIN):
        return "the member id is empty"
    if message.member_id and not is_member_id(message.member_id):
        return f"a member id is {MEMBER_CHARS_MAX} printable characters of ASCII at most"
    if any(text is not None and not 0 < len(text) <= NAME_CHARS_MAX for text in (message.instance_id, message.rack_id)):
        return f"an instance id or a rack id is empty, or longer than {NAME_CHARS_MAX} characters"
    if request.version and len(message.subscribed_topic_regex or "") > CHARACTERS_MAX:
        return f"an expression has {CHARACTERS_MAX} characters at most"
    if epoch == AWAY and message.instance_id is None:
        return "a member without an instance id leaves with epoch -1"
    if names is not None and len(names) > TOPICS_MAX:
        return f"a member reads {TOPICS_MAX} topics at most; use an expression"
    if epoch != JOIN:
        return ""
    if message.rebalance_timeout_ms < 0:
        return "a member that joins gives its rebalance timeout"
    if message.topic_partitions is None or message.topic_partitions:
        return "a member that joins owns no partitions"
    if names is None and not (request.version and message.subscribed_topic_regex):
        return "a member that joins gives topics or an expression"
    return ""


def _by_topic(pairs: Iterable[tuple[str, int]]) -> list[Message]:
    """Returns partitions by the ids of their topics."""
    numbers: dict[str, list[int]] = {}
    for topic_id, number in pairs:
        numbers.setdefault(topic_id, []).append(number)
    return [AssignedTopic(id_bytes(topic_id), found) for topic_id, found in numbers.items()]


async def consumer_group_describe(request: KafkaRequest, context: KafkaContext) -> Message:
    """Describes groups of kind consumer, whichever door their members use."""
    return Described(groups=[await _describe(request, context, name) for name in request.message.group_ids])


async def _describe(request: KafkaRequest, context: KafkaContext, name: str) -> Message:
    refused = refusal_of_group(request, context, name, Operation.DESCRIBE)
    if refused is not Error.NONE:
        return DescribedGroup(error_code=request.note(refused), group_id=name)
    try:
        view = await context.groups.coordinators.call(classic.CONSUMER_DESCRIBE, ConsumerView, name, name)
    except (EngineError, Problem) as error:
        # Tools then ask for a classic group of the name.
        is_other = error.code in (UnknownGroup.code, WrongGroupKind.code)
        code = Error.GROUP_ID_NOT_FOUND if is_other else coordinator_error(error)
        return DescribedGroup(error_code=request.note(code), error_message=error.detail, group_id=name)
    return DescribedGroup(
        group_id=name,
        group_state=STATES[view.state],
        group_epoch=view.epoch,
        assignment_epoch=view.epoch,
        assignor_name="uniform" if view.assignor == "sticky" else view.assignor,
        members=[_describe_member(request, view, member) for member in view.members],
    )


def _describe_member(request: KafkaRequest, view: ConsumerView, member: ConsumerMemberView) -> Message:
    def visible(names: Iterable[str]) -> list[str]:
        return [name for name in names if request.caller.allows(Operation.DESCRIBE, name)]

    def topics(made: type, pairs: Iterable[tuple[str, int]]) -> list[Message]:
        numbers: dict[str, list[int]] = {}
        for topic, number in pairs:
            numbers.setdefault(topic, []).append(number)
        return [made(id_bytes(view.topic_ids.get(name, "")), name, numbers[name]) for name in visible(numbers)]

    return DescribedMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack or None,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=host_of(member.client_address),
        subscribed_topic_names=visible(member.topics),
        subscribed_topic_regex=member.expression,
        assignment=MemberAssignment(topics(MemberTopic, member.assigned)),
        target_assignment=TargetAssignment(topics(TargetTopic, member.target)),
        member_type=CONSUMER,
    )
