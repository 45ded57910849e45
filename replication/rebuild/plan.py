"""Decides what a rebuilt coordination store has, from the inventories of a stopped cluster. Pure.

For each partition the log with the greatest epoch of its last record, and of those the longest, is to be elected; in
sync are the logs that are equal to it. Every log with records of the last epoch is a prefix of the log of its leader,
which had all that was committed before. So nothing committed is missed, as long as fewer replicas are absent than
acknowledged each record (`min_insync_replicas`), and the log does not end below a high watermark that any replica knew.
Everything else is refused, until the operator accepts the loss of that topic or leaves the topic out.

Invariants: leader epochs and producer ids only go up; nothing is taken for deleted without its marker: what is left out
keeps its files.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from engine.errors import StartRefused
from engine.log.epochs import end_offset_for, epoch_before, truncated_from_end
from replication.cluster.producer_ids import BLOCK_IDS, MARGIN_IDS
from replication.cluster.start_counter import StartCounter, StoredStarts
from replication.cluster.values import TopicEntry
from replication.rebuild.inventory import LogInventory, NodeInventory, TopicInventory

EPOCHS_SKIPPED = 1000  # epochs that no log saw: of leaders without a record
# An absent node may have led since an earlier rebuild, in epochs that no log here saw. Each rebuild therefore begins at
# the seconds since this time (2026), which pass faster than elections; an epoch has 31 bits.
EPOCHS_SINCE_S = 1_767_225_600
EPOCH_OF_TIME_MAX = 10**9


@dataclass(frozen=True, slots=True)
class Choices:
    """The decisions of the operator, by the names of topics. `markers` are the ids of topics with a marker of deletion.

    `absent` are nodes that come back with an empty directory. `now_ms` is the time of the rebuild.
    """

    accepted: Collection[str] = ()
    left_out: Collection[str] = ()
    markers: Collection[str] = ()
    absent: Sequence[int] = ()
    now_ms: int = 0


@dataclass(frozen=True, slots=True)
class PlannedPartition:
    """`lost` counts records below a known high watermark that no log has."""

    number: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    leader_epoch: int
    log_end: int
    absent: int = 0
    lost: int = 0
    is_unclean: bool = False


@dataclass(frozen=True, slots=True)
class PlannedTopic:
    entry: TopicEntry
    partitions: tuple[PlannedPartition, ...]


@dataclass(frozen=True, slots=True)
class Question:
    """Why a topic cannot be rebuilt without a decision of the operator. `hint` names the options."""

    topic: str
    reason: str
    hint: str


@dataclass(frozen=True, slots=True)
class Plan:
    """The content of the store. With `questions` it must not be written."""

    cluster_id: str
    topics: tuple[PlannedTopic, ...]
    starts: Mapping[int, StoredStarts]
    producer_ids_end: int
    deleted: Mapping[str, str] = field(default_factory=dict)  # by topic id: names of topics with a marker
    left_out: tuple[str, ...] = ()
    questions: tuple[Question, ...] = ()
    notes: tuple[str, ...] = ()


def plan_rebuild(nodes: Sequence[NodeInventory], choices: Choices) -> Plan:
    """Decide. Raises StartRefused for inventories that are not of one cluster."""
    _check_one_cluster(nodes)
    planning = _Planning(sorted(nodes, key=lambda node: node.node_id), choices)
    topics = tuple(planning.topics())
    unknown = {*choices.accepted, *choices.left_out} - planning.names
    if unknown:
        raise StartRefused(f"no inventory has a topic {min(unknown)!r}", hint="check the name")
    greatest = max((log.producer_id_max for log in planning.logs()), default=-1)
    return Plan(
        nodes[0].cluster_id,
        topics,
        {node.node_id: _starts(node) for node in nodes},
        (greatest // BLOCK_IDS + 1) * BLOCK_IDS + MARGIN_IDS,
        planning.deleted,
        tuple(planning.left_out),
        tuple(planning.questions),
        tuple(planning.notes),
    )


def _check_one_cluster(nodes: Sequence[NodeInventory]) -> None:
    if not nodes:
        raise StartRefused("there is no inventory", hint="give --inventory or --data-dir")
    if len(clusters := sorted({node.cluster_id for node in nodes})) > 1:
        raise StartRefused(
            f"the directories are of clusters {' and '.join(clusters)}", hint="give those of one cluster"
        )
    ids = [node.node_id for node in nodes]
    if twice := sorted({node_id for node_id in ids if ids.count(node_id) > 1}):
        text = f"there are {ids.count(twice[0])} inventories of node {twice[0]}"
        raise StartRefused(text, hint="give the newest; all --data-dir of one node belong into one inventory")


def _starts(node: NodeInventory) -> StoredStarts:
    counters = {directory_id: StartCounter(start.number, (start.nonce,)) for directory_id, start in node.starts.items()}
    return StoredStarts(node.directory_id, counters, is_rebuilt=True)


class _Planning:
    """One decision. Collects what it says about topics on the way."""

    def __init__(self, nodes: Sequence[NodeInventory], choices: Choices) -> None:
        self._nodes = nodes
        self._choices = choices
        self._least_epoch = min(choices.now_ms // 1000 - EPOCHS_SINCE_S, EPOCH_OF_TIME_MAX)
        self._by_id: dict[str, dict[int, TopicInventory]] = {}
        for node in nodes:
            for topic in node.topics:
                self._by_id.setdefault(topic.topic_id, {})[node.node_id] = topic
        self.names = {topic.name for having in self._by_id.values() for topic in having.values()}
        self.deleted: dict[str, str] = {}
        self.left_out: list[str] = []
        self.questions: list[Question] = []
        self.notes = [
            f"node {node.node_id} lacks its data directory {path}: its replicas there count as absent"
            for node in nodes
            for path in node.absent_directories
        ]

    def logs(self) -> Iterator[LogInventory]:
        return (log for having in self._by_id.values() for topic in having.values() for log in topic.logs.values())

    def topics(self) -> Iterator[PlannedTopic]:
        current = self._current_ids()
        for topic_id, having in sorted(self._by_id.items(), key=lambda item: next(iter(item[1].values())).name):
            name = next(iter(having.values())).name
            if topic_id in self._choices.markers:
                self.deleted[topic_id] = name
            elif name in self._choices.left_out:
                self.left_out.append(name)
            elif current[name] != topic_id:
                nodes = _listed(having)
                self.notes.append(f"topic {name} was made again: the earlier one, {topic_id} on {nodes}, is left out")
            else:
                is_known = self._check_known_everywhere(name, topic_id, having)
                yield self._topic(having, is_known)

    def _current_ids(self) -> dict[str, str]:
        """Returns for each name the topic that most nodes know, and then the newest."""
        current: dict[str, tuple[int, int, str]] = {}
        for topic_id, having in self._by_id.items():
            if topic_id not in self._choices.markers:
                name, made = next((topic.name, topic.created_ms) for topic in having.values())
                current[name] = max(current.get(name, (0, 0, "")), (len(having), made, topic_id))
        return {name: topic_id for name, (_, _, topic_id) in current.items()}

    def _check_known_everywhere(self, name: str, topic_id: str, having: Mapping[int, TopicInventory]) -> bool:
        lacking = [n.node_id for n in self._nodes if n.node_id not in having and topic_id not in n.unreadable]
        if not lacking:
            return True
        reason = (
            f"it is on {_listed(having)} and not on {_listed(lacking)}: it was deleted, or a directory is an old copy"
        )
        if name in self._choices.accepted:
            self.notes.append(f"topic {name}: {reason}; accepted")
        else:
            hint = f"give --leave-out {name} if it was deleted (its files stay), else --accept-loss {name}"
            self.questions.append(Question(name, reason, hint))
        return False

    def _topic(self, having: Mapping[int, TopicInventory], is_known: bool) -> PlannedTopic:
        newest = self._newest(having)
        entry = TopicEntry(
            newest.name,
            newest.topic_id,
            newest.partitions,
            newest.replication_factor,
            dict(newest.config),
            newest.created_ms,
        )
        planned = [self._partition(entry, having, number) for number in range(entry.partitions)]
        is_accepted = entry.name in self._choices.accepted
        for reason in _reasons(entry, planned):
            if is_accepted:
                self.notes.append(f"topic {entry.name}: {reason}; accepted")
            elif is_known:
                hint = f"find the other directories, or give --accept-loss {entry.name}"
                self.questions.append(Question(entry.name, reason, hint))
        return PlannedTopic(entry, tuple(planned))

    def _newest(self, having: Mapping[int, TopicInventory]) -> TopicInventory:
        """The copy of `topic.json` with most partitions, then that of most nodes, then the one changed last."""

        def settings(topic: TopicInventory) -> tuple[int, Mapping[str, object]]:
            return topic.replication_factor, topic.config

        copies = list(having.values())
        agreeing = {
            node: [settings(copy_there) for copy_there in copies].count(settings(copy)) for node, copy in having.items()
        }
        chosen = max(having, key=lambda node: (having[node].partitions, agreeing[node], having[node].changed_ms))
        if other := [node for node, copy in having.items() if settings(copy) != settings(having[chosen])]:
            text = (
                f"topic {having[chosen].name} has other settings on {_listed(other)}; those of node {chosen} are taken"
            )
            self.notes.append(text)
        return having[chosen]

    def _partition(self, entry: TopicEntry, having: Mapping[int, TopicInventory], number: int) -> PlannedPartition:
        all_logs = {node: topic.logs[number] for node, topic in having.items() if number in topic.logs}
        logs = {node: log for node, log in all_logs.items() if not log.problem}
        absent = max(0, entry.replication_factor - len(logs))
        newest_epoch = max((log.starts[-1].epoch for log in logs.values() if log.epochs), default=0)
        epoch = max(newest_epoch + EPOCHS_SKIPPED, self._least_epoch)
        hosts = sorted(all_logs) or [node.node_id for node in self._nodes][: entry.replication_factor]
        replicas = [hosts[(number + at) % len(hosts)] for at in range(len(hosts))]
        added = [node for node in self._choices.absent if node not in hosts]
        replicas += added[: max(0, entry.replication_factor - len(hosts))]
        if not logs:
            return PlannedPartition(number, tuple(replicas), tuple(hosts), epoch, 0, absent, _known(all_logs, 0), True)
        best = min(logs, key=lambda node: (-_last_epoch(logs[node]), -logs[node].log_end, node))
        leader = logs[best]
        in_sync = [node for node, log in logs.items() if log.log_end == leader.log_end == common_end(leader, log)]
        replaced = (min(log.high_watermark, log.log_end) - common_end(leader, log) for log in logs.values())
        lost = max(_known(all_logs, leader.log_end), *replaced)
        is_unclean = lost > 0 or absent >= entry.rules.min_in_sync(entry.replication_factor)
        return PlannedPartition(
            number,
            tuple(replicas),
            tuple(in_sync),
            epoch,
            leader.log_end,
            absent,
            lost,
            is_unclean,
        )


def _reasons(entry: TopicEntry, planned: Iterable[PlannedPartition]) -> Iterator[str]:
    """Yields why acknowledged records may be missing: one line for all partitions of a kind."""
    minimum = entry.rules.min_in_sync(entry.replication_factor)
    planned = list(planned)
    if absent := [partition for partition in planned if partition.absent >= minimum]:
        most = max(partition.absent for partition in absent)
        yield (
            f"up to {most} of {entry.replication_factor} replicas of partition {_numbers(absent)} are absent, and "
            f"min_insync_replicas is {minimum}: acknowledged records may be only there"
        )
    if lost := [partition for partition in planned if partition.lost]:
        count = sum(partition.lost for partition in lost)
        yield f"{count} committed records of partition {_numbers(lost)} are not in the newest log"


def common_end(leader: LogInventory, other: LogInventory) -> int:
    """Returns the offset up to which two logs have the same records, as a follower finds it (KIP-101)."""
    mine = truncated_from_end(other.starts, other.log_end)
    theirs = truncated_from_end(leader.starts, leader.log_end)
    if not mine or not theirs:
        return min(leader.log_end, other.log_end)
    for epoch in reversed([start.epoch for start in mine]):
        own_end = end_offset_for(mine, epoch, other.log_end)
        leader_end = end_offset_for(theirs, epoch, leader.log_end)
        if own_end is not None and leader_end is not None and leader_end.epoch == own_end.epoch:
            return min(own_end.end_offset, leader_end.end_offset)
    return min(leader.log_start, other.log_start)


def _last_epoch(log: LogInventory) -> int:
    return epoch_before(log.starts, log.log_end)


def _known(logs: Mapping[int, LogInventory], end: int) -> int:
    """Returns how many committed records, by the high watermarks of these replicas, are above an offset."""
    return max([0, *(log.high_watermark - end for log in logs.values())])


def _numbers(partitions: Sequence[PlannedPartition]) -> str:
    shown = ", ".join(str(partition.number) for partition in partitions[:10])
    return shown + (f" and {len(partitions) - 10} more" if len(partitions) > 10 else "")


def _listed(nodes: Iterable[int]) -> str:
    ids = [str(node) for node in nodes]
    return f"node{'s' if len(ids) > 1 else ''} {', '.join(ids)}"
