"""The rules that judge a process and the view of a cluster: findings with a cause and a remedy. Values in, values out.

`penstock doctor`, the console and `GET /v1/overview` print these texts. The code of a finding is the name of an alert,
so that docs/operate/runbook.md has a section for it. fail: records, acknowledgements or requests
are at risk now; warn: it will be, or a part is slower than it has to be.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from operator import itemgetter
from typing import TypeVar

from msgspec import Struct, structs

from gateway.groups.model.settings import PUSH_PREFIX
from replication.cluster.view import ClusterView
from replication.cores.partition_state import VersionedState

WARN, FAIL = "warn", "fail"
RUNBOOK = "docs/operate/runbook.md#penstock"
ONE_CODE_MAX = 1000  # findings with one code: of 10,000 topics without a leader the rest is a number

TIER_LAG_S = 600
FILES_SHARE = 0.8
FREE_BYTES = 1 << 30
FREE_SHARE = 0.1
CERTIFICATE_S = 14 * 86_400
LAG_S = 300
NAMED_MAX = 10  # partitions in a text
R = TypeVar("R")


class Finding(Struct, frozen=True, array_like=True):
    """`topic`, `group`: those with the right to it see the finding, of a push subscription the group behind it; without
    both, those that may see the cluster.

    `age_ms`: how long it has been so, as far as the process knows.
    """

    code: str
    level: str
    subject: str
    found: str
    remedy: str
    topic: str = ""
    group: str = ""
    age_ms: int = 0

    @property
    def runbook(self) -> str:
        return RUNBOOK + ("disk_full_soon" if self.code in OF_MOVES else self.code).replace("_", "")


OF_MOVES = ("disk_move_running", "disk_move_failed")


class Directory(Struct, frozen=True, array_like=True):
    """A data directory. The bytes are None if the disk does not answer."""

    path: str
    free_bytes: int | None
    size_bytes: int | None
    fault: str | None


class GroupFacts(Struct, frozen=True, array_like=True):
    """A group that a process coordinates. `is_growing`: its lag in seconds is greater than five minutes ago."""

    name: str
    members: int
    lag_records: int
    lag_s: float
    is_growing: bool = False


class Facts(Struct, frozen=True):
    """The facts that a process knows about itself. The partitions are (topic, number, text).

    `failed_reads` and `dead_letters` are of the last minutes.
    """

    node_id: int
    offline: tuple[tuple[str, int, str], ...] = ()
    damaged: tuple[tuple[str, int, str], ...] = ()
    diverged: tuple[tuple[str, int, str], ...] = ()
    not_uploaded: tuple[tuple[str, int, str], ...] = ()
    without_room: tuple[tuple[str, int, str], ...] = ()
    moving: tuple[tuple[str, int, str], ...] = ()
    move_failed: tuple[tuple[str, int, str], ...] = ()
    directories: tuple[Directory, ...] = ()
    groups: tuple[GroupFacts, ...] = ()
    failing_pushes: tuple[tuple[str, str], ...] = ()
    failed_reads: tuple[tuple[str, int, str], ...] = ()
    dead_letters: tuple[tuple[str, int], ...] = ()
    topics_set_aside: int = 0
    mid_log_truncations: int = 0
    tier_lag_s: float = 0.0
    files_share: float = 0.0
    is_codec_compiled: bool = True
    certificate_s: float | None = None
    store_silent_s: float | None = None


def judge_process(facts: Facts) -> list[Finding]:
    """Returns the findings of a process of a node."""
    return [*_judge_partitions(facts), *_judge_node(facts), *_judge_consumers(facts)]


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    """Returns each finding once, failures first, then those that have been so for the longest time.

    The shards of a node have one subject, but name different partitions of a topic: each of these findings stays.
    """
    by_name: dict[tuple[str, str, str], Finding] = {}
    for finding in findings:
        key = finding.code, finding.subject, finding.found if finding.topic else ""
        before = by_name.get(key)
        if before is None or before.age_ms < finding.age_ms:
            by_name[key] = finding
    return sorted(by_name.values(), key=lambda one: (one.level != FAIL, -one.age_ms, one.code, one.subject))


def _judge_partitions(facts: Facts) -> Iterator[Finding]:
    for code, rows, level, text, remedy in (
        ("replica_offline", facts.offline, FAIL, "{0} offline on node {1}: {2}",
         "see the log of the node; replace the disk and restart the node"),
        ("records_damaged", facts.damaged, FAIL, "{0} with damaged records on node {1}: {2}",
         "restore them from the store or a copy: penstock topic describe TOPIC names them"),
        ("diverged_replicas", facts.diverged, FAIL, "{0} of node {1} does not follow its leader: {2}",
         "choose which records stay: docs/operate/backup.md says how"),
        ("tier_behind", facts.not_uploaded, FAIL, "{0} is not uploaded by node {1}: {2}",
         "make the object store answer; penstock tier status TOPIC has the error of each partition"),
        ("disk_full", facts.without_room, FAIL, "{0} takes no records on node {1}: {2}",
         "free space there, shorten retention, or move partitions to another disk: penstock disk balance"),
        ("reads_fail", facts.failed_reads, FAIL, "reads of {0} fail on node {1}: {2}",
         "see the kernel's log of the node; replace the disk: replicas and the store have the records"),
        ("disk_move_failed", facts.move_failed, WARN, "{0} could not move to another disk of node {1}: {2}",
         "penstock disk list has the reasons; move it again, or penstock disk cancel TOPIC/PARTITION"),
        ("disk_move_running", facts.moving, WARN, "{0} moves to another disk of node {1}: {2}",
         "wait; if the bytes left do not fall, raise disk_move_bytes_per_second"),
    ):  # fmt: skip
        for topic, numbers, reason in _by_topic(rows):
            found = text.format(f"{topic}/{numbers}", facts.node_id, reason)
            yield Finding(code, level, f"{topic} on node {facts.node_id}", found, remedy, topic)
        yield from _rest(code, level, len({topic for topic, _, _ in rows}), f"topics on node {facts.node_id}")


def _judge_node(facts: Facts) -> Iterator[Finding]:
    node = f"node {facts.node_id}"
    for directory in facts.directories:
        yield from _judge_directory(directory, node)
    if facts.topics_set_aside:
        text = f"{facts.topics_set_aside} topics are quarantined: their topic.json is missing or cannot be read"
        yield Finding("topics_set_aside", FAIL, node, text, "restore topic.json, which its log names, and restart it")
    if facts.store_silent_s is not None:
        text = f"the coordination store has not answered {node} for {facts.store_silent_s:.0f} s"
        yield Finding(
            "coordination_silent", FAIL, node, text, "start it, or let the node reach it: no leader is elected"
        )
    if facts.mid_log_truncations:
        text = f"{facts.mid_log_truncations} logs were truncated in the middle at the last start: power was lost"
        yield Finding("mid_log_truncation", WARN, node, text, "the log of that start says which records are gone")
    if facts.tier_lag_s > TIER_LAG_S:
        text = f"the oldest sealed segment has waited for {_text_of(facts.tier_lag_s)} for its upload"
        yield Finding("tier_behind", WARN, node, text, "penstock tier status TOPIC says which partition and why")
    if facts.files_share > FILES_SHARE:
        text = f"{facts.files_share:.0%} of the files that a process may open are open"
        yield Finding("files_near_limit", WARN, node, text, "raise the limit: LimitNOFILE=65536, or ulimit -Hn 65536")
    if not facts.is_codec_compiled:
        text = "the record codec is plain Python: records take about 25 times the processor time"
        yield Finding("plain_codec", WARN, node, text, "penstock doctor on its machine says what is missing")
    if facts.certificate_s is not None and facts.certificate_s < CERTIFICATE_S:
        left = "has expired" if facts.certificate_s <= 0 else f"expires in {facts.certificate_s / 86_400:.1f} days"
        level = FAIL if facts.certificate_s <= 0 else WARN
        yield Finding("certificate_expires", level, node, f"its certificate {left}", "put a new one into its files")


def _judge_directory(directory: Directory, node: str) -> Iterator[Finding]:
    subject = f"{directory.path} on {node}"
    if directory.fault is not None:
        remedy = "replace the disk and restart the node: its replicas copy their records from their leaders"
        yield Finding("replica_offline", FAIL, subject, f"the directory is offline: {directory.fault}", remedy)
    elif directory.free_bytes is not None and directory.size_bytes:
        share = directory.free_bytes / directory.size_bytes
        if directory.free_bytes >= FREE_BYTES and share >= FREE_SHARE:
            return
        is_full = directory.free_bytes < FREE_BYTES
        text = f"{directory.free_bytes / (1 << 30):.1f} GiB are free, {share:.0%} of the disk"
        remedy = "make room, or shorten retention_ms or local_retention_ms: a full disk rejects produce requests"
        yield Finding("disk_full" if is_full else "disk_full_soon", FAIL if is_full else WARN, subject, text, remedy)


def _judge_consumers(facts: Facts) -> Iterator[Finding]:
    stuck = 0
    for group in facts.groups:
        remedy = f"penstock group explain {group.name} names the cause"
        lag = f"{group.lag_records} records, the oldest of them {_text_of(group.lag_s)} old"
        if group.lag_records and not group.members:
            stuck += 1
            if stuck > ONE_CODE_MAX:
                continue
            text = f"no member reads, and the group is behind by {lag}"
            yield Finding("group_stuck", WARN, group.name, text, f"start its workers; {remedy}", group=group.name)
        elif group.is_growing and group.lag_s > LAG_S:
            text = f"it falls behind: by {lag}"
            yield Finding("group_falls_behind", WARN, group.name, text, remedy, group=group.name)
    yield from _rest("group_stuck", WARN, stuck, "groups")
    for name, error in facts.failing_pushes:
        remedy = f"make the receiver answer 2xx; penstock subscription describe {name} has its last answers"
        yield Finding("push_fails", WARN, name, f"its requests fail: {error}", remedy, group=PUSH_PREFIX + name)
    for reader, count in facts.dead_letters[:ONE_CODE_MAX]:
        is_push = reader.startswith(PUSH_PREFIX)
        name, kind = (reader.removeprefix(PUSH_PREFIX), "subscription") if is_push else (reader, "group")
        text = "1 record became a dead letter" if count == 1 else f"{count} records became dead letters"
        remedy = f"read its dead-letter topic, mend the cause, then: penstock {kind} replay-dead-letters {name}"
        yield Finding("dead_letters", WARN, name, text, remedy, group=reader)
    yield from _rest("dead_letters", WARN, len(facts.dead_letters), "groups")


def _text_of(seconds: float) -> str:
    """Returns a duration for people."""
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def judge_cluster(view: ClusterView, *, is_silent: bool) -> list[Finding]:
    """Returns the findings of the cluster, from the view of one process. A silent store leaves the view as it was."""
    found: list[Finding] = []
    lost = sorted({node for state in view.states.values() for node in state.state.replicas} - view.nodes.keys())
    if lost and not is_silent:
        names = ", ".join(map(str, lost))
        text = f"node {names} is not there, and has replicas" if len(lost) == 1 else f"nodes {names} are not there"
        remedy = "start it, or move its replicas away: penstock cluster decommission NODE"
        found.append(Finding("nodes_missing", FAIL, f"nodes {names}", text, remedy))
    if view.controller is None and not is_silent:
        remedy = "let a node reach the coordination store: no leader is elected until then"
        found.append(Finding("no_controller", FAIL, "cluster", "no node is the controller", remedy))
    versions = sorted({node.version for node in view.nodes.values()})
    if len(versions) > 1:
        text = f"nodes have the versions {', '.join(versions)}"
        found.append(
            Finding("versions_differ", WARN, "cluster", text, "go on with the upgrade: docs/operate/upgrade.md")
        )
    return found + _judge_states(view)


def _judge_states(view: ClusterView) -> list[Finding]:
    """Returns a finding for each topic with partitions in need, by the worst need, and for unclean leaders."""
    needs: dict[str, list[tuple[str, int, VersionedState]]] = {
        "leaderless_partitions": [],
        "under_min_isr": [],
        "under_replicated": [],
        "unclean_election": [],
    }
    for (topic_id, number), versioned in view.states.items():
        if (topic := view.topic_by_id(topic_id)) is None:
            continue
        state = versioned.state
        if state.unclean_elections and state.unclean_epoch == state.leader_epoch:
            needs["unclean_election"].append((topic.name, number, versioned))
        if view.leader(topic_id, number) is None:
            needs["leaderless_partitions"].append((topic.name, number, versioned))
        elif len(state.in_sync) < len(state.replicas) - len(state.adding):
            is_under = len(state.in_sync) < topic.rules.min_in_sync(state.counted_replicas)
            code = "under_min_isr" if is_under else "under_replicated"
            needs[code].append((topic.name, number, versioned))
    found = []
    for code, rows in needs.items():
        level, text, remedy = _NEEDS[code]
        for topic_name, numbers, versioned in _by_topic(rows):
            cause = (
                f"in epoch {versioned.state.unclean_epoch}" if code == "unclean_election" else _lacking(view, versioned)
            )
            sentence = f"{topic_name}/{numbers} {text}: {cause}"
            found.append(Finding(code, level, topic_name, sentence, remedy, topic_name))
        found.extend(_rest(code, level, len({name for name, _, _ in rows}), "topics"))
    return found


_NEEDS = {
    "unclean_election": (
        WARN,
        "has a leader that was not in sync, so committed records may be lost",
        "let its producers send again what they sent before; the next election of a replica in sync ends this finding",
    ),
    "leaderless_partitions": (FAIL, "has no leader", "start the nodes of its replicas; nothing is read or written"),
    "under_min_isr": (FAIL, "rejects acks=all", "start the nodes of its replicas, or find out why they lag"),
    "under_replicated": (WARN, "lacks replicas in sync", "start the nodes of its replicas, or find out why they lag"),
}


def _lacking(view: ClusterView, versioned: VersionedState) -> str:
    """Returns which replicas are not in sync, and why as far as the view knows."""
    in_sync = {member.node_id for member in versioned.state.in_sync}
    lacking = [node for node in versioned.state.replicas if node not in in_sync]
    gone = [node for node in versioned.state.replicas if node not in view.nodes]
    late = [node for node in lacking if node not in gone]
    parts = [f"node {', '.join(map(str, gone))} is not there"] if gone else []
    return " and ".join(parts + ([f"node {', '.join(map(str, late))} lags"] if late else [])) or "it is being elected"


def _by_topic(rows: Iterable[tuple[str, int, R]]) -> Iterator[tuple[str, str, R]]:
    """Yields each topic with its partitions as text, and the reason of the first of them."""
    topics: dict[str, list[tuple[int, R]]] = {}
    for topic, number, reason in rows:
        topics.setdefault(topic, []).append((number, reason))
    for topic, partitions in sorted(topics.items())[:ONE_CODE_MAX]:
        partitions.sort(key=itemgetter(0))
        numbers = ",".join(str(number) for number, _ in partitions[:NAMED_MAX])
        more = f" and {len(partitions) - NAMED_MAX} more" if len(partitions) > NAMED_MAX else ""
        yield topic, numbers + more, partitions[0][1]


def _rest(code: str, level: str, count: int, what: str) -> Iterator[Finding]:
    """Yields a finding with the number of those beyond ONE_CODE_MAX, for a caller that sees the cluster."""
    if count > ONE_CODE_MAX:
        text = f"it is so for {count - ONE_CODE_MAX} more that are not listed"
        yield Finding(code, level, f"further {what}", text, "mend those that are listed first")


class FirstSeen:
    """Since when each finding of a process has been so, by a clock that never steps."""

    def __init__(self) -> None:
        self._since: dict[tuple[str, str], int] = {}

    def date(self, findings: Iterable[Finding], steady_ms: int) -> list[Finding]:
        """Returns the findings with their ages. A finding that is not among them begins at age 0 when it comes back."""
        present = {(finding.code, finding.subject): finding for finding in findings}
        self._since = {key: self._since.get(key, steady_ms) for key in present}
        return [structs.replace(one, age_ms=steady_ms - self._since[key]) for key, one in present.items()]
