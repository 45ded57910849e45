"""Every file name and every object key, and nothing else. Pure: it touches no disk and no store.

Layout of a data directory:

    <data>/lock                        held while a node runs
    <data>/meta                        cluster id, node id, format version
    <data>/running                     present from start to clean stop; holds the boot id
    <data>/recovery-points[.<shard>]   per partition: everything below is fsynced
    <data>/high-watermarks[.<shard>]   per partition of a cluster: its last known high watermark, a hint
    <data>/coordination                the coordination state of a standalone node
    <data>/spare/<number>              room for small files on a full disk
    <data>/usage/<hour>-<shard>-<id>.counters   what tenants have used in an hour, until it is in the store
    <data>/usage/marks.<shard>         until when stored bytes are counted
    <data>/topics/<topic>/<topic id>/topic.json
    <data>/topics/<topic>/<topic id>/<partition>/<20 digits>.log .index .timeindex .checksum .quarantine
    <data>/topics/<topic>/<topic id>/<partition>/<20 digits>.foreign-<8 digits>
    <data>/topics/<topic>/<topic id>/<partition>/<20 digits>.snapshot .swap .compacted.tmp .repaired.tmp
    <data>/topics/<topic>/<topic id>/<partition>/leader-epochs fenced cleaned
    <data>/topics/<topic>/<topic id>/<partition>.<move id>.future   a copy that another data directory's replica becomes
    <data>/topics/<topic>/<topic id>/<partition>.<move id>.moved    the replica before its move, to be removed
    <data>/tier-cache/blocks           blocks of tiered segments, safe to delete

The topic id is part of the path, so a topic recreated under an old name never meets the old one's files (KIP-516).
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import NamedTuple

LOG = ".log"
OFFSET_INDEX = ".index"
TIME_INDEX = ".timeindex"
CHECKSUM = ".checksum"
QUARANTINE = ".quarantine"
SNAPSHOT = ".snapshot"
FOREIGN = ".foreign"
AUX = ".aux"
SWAP = ".swap"  # beside a segment that a compacted or repaired file replaces
COMPACTED = ".compacted"  # the compacted file before it takes the segment's name; always with TEMPORARY
REPAIRED = ".repaired"  # the same for the leader's copy of a damaged segment
DERIVED_SUFFIXES = (OFFSET_INDEX, TIME_INDEX, CHECKSUM, QUARANTINE)  # of a sealed segment; an active one has none
SEGMENT_SUFFIXES = (*DERIVED_SUFFIXES, LOG)  # in the order of removal: no derived file outlives its segment

LOCK = "lock"
META = "meta"
RUNNING = "running"
RECOVERY_POINTS = "recovery-points"
HIGH_WATERMARKS = "high-watermarks"
COORDINATION = "coordination"
TOPICS = "topics"
SPARE = "spare"
AUDIT = "audit"
USAGE = "usage"
REGISTRATION_STATE = "vouching"
START_COUNTER = "start-counter"
LEADER_EPOCHS = "leader-epochs"
FENCED = "fenced"
CLEANED = "cleaned"  # in a partition's directory: how far its log is compacted
MOVED_AWAY = "moved-away"  # in a partition's directory: other nodes host it, and its files may be removed
FUTURE = ".future"  # of a partition's directory that is being copied from another data directory
MOVED = ".moved"  # of a partition's directory that another data directory has taken over
TOPIC_FILE = "topic.json"
DELETED_SUFFIX = ".deleted"
TEMPORARY = ".tmp"  # of a file that is written beside the one that it replaces
TIER_CACHE = "tier-cache"
TIER_CACHE_BLOCKS = "blocks"
EMBEDDED_STORE = "store"
STORE_IDENTITIES = "store-identities"

GROUPS_TOPIC = "__groups"  # the state of consumer groups
INTERNAL_TOPICS = frozenset({GROUPS_TOPIC})  # made and written by nodes only
TOPIC_CHARS_MAX = 249  # as in Kafka: file systems end a name at 255 bytes
# A topic has its objects below its name, beside the markers and the registrations of the cluster.
RESERVED_TOPICS = INTERNAL_TOPICS | {"__accepted", "__deleted", "__jobs"}
RESERVED_PREFIX = "__penstock"  # of names that nodes may need later
_ACCEPTED = re.compile(r"(\d{10})-[0-9a-f]+\.json")
_TOPIC_NAME = re.compile(rf"[A-Za-z0-9._-]{{1,{TOPIC_CHARS_MAX}}}")
_TOPIC_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_RECOVERY_PART = re.compile(rf"{RECOVERY_POINTS}\.\d+")
_HIGH_WATERMARKS_PART = re.compile(rf"{HIGH_WATERMARKS}\.\d+")
_SPARE = re.compile(r"\d{1,2}")
_UNFINISHED_SPARE = re.compile(rf"\d{{1,2}}\.[a-z0-9-]+{re.escape(TEMPORARY)}")
_AUDIT = re.compile(r"audit-(\d{8})\.jsonl")
_USAGE = re.compile(r"(\d{10})-(\d{1,4})-([0-9a-f]{32})\.counters")
_STORE_USAGE = re.compile(r"(\d{10})/(\d{1,10})-(\d{1,4})-([0-9a-f]{32})\.json")
_SEGMENT_LOG = re.compile(r"(\d{20})\.log")
_SWAP = re.compile(r"(\d{20})\.swap")
_COMPACTED = re.compile(rf"\d{{20}}{re.escape(COMPACTED + TEMPORARY)}")
_SNAPSHOT = re.compile(r"(\d{20})\.snapshot")
_PARTITION = re.compile(r"0|[1-9]\d*")
_MOVE = re.compile(rf"(0|[1-9]\d*)\.([0-9a-zA-Z_-]+)({re.escape(FUTURE)}|{re.escape(MOVED)})")
_STORE_SEGMENT = re.compile(r"\d{20}-\d+-[0-9a-zA-Z-]+(\.log|\.aux)")
_DELETED = re.compile(r"([^/]+)/([A-Za-z0-9_-]{1,64})\.json")
_REGISTRATION = re.compile(r"[A-Za-z0-9._-]+-[0-9a-f]+\.json")
_UNFINISHED_FOREIGN = re.compile(rf"\d{{20}}{re.escape(FOREIGN + TEMPORARY)}")
_OWN_SUFFIXES = (*SEGMENT_SUFFIXES, SNAPSHOT, SWAP, COMPACTED, REPAIRED)
_OF_SEGMENT = re.compile(rf"\d{{20}}({'|'.join(map(re.escape, _OWN_SUFFIXES))})")


def recovery_points_file(part: int | None) -> str:
    """Returns the checkpoint file of a whole data directory, or of one shard's part of it."""
    return RECOVERY_POINTS if part is None else f"{RECOVERY_POINTS}.{part}"


def is_part_of_recovery_points(name: str) -> bool:
    return bool(_RECOVERY_PART.fullmatch(name))


def high_watermarks_file(part: int | None) -> str:
    """Returns the high watermark file of a whole data directory, or of one shard's part of it."""
    return HIGH_WATERMARKS if part is None else f"{HIGH_WATERMARKS}.{part}"


def is_part_of_high_watermarks(name: str) -> bool:
    return bool(_HIGH_WATERMARKS_PART.fullmatch(name))


def is_spare(name: str) -> bool:
    return bool(_SPARE.fullmatch(name))


def is_unfinished_spare(name: str) -> bool:
    """Returns whether this is a spare file that is or was being written."""
    return bool(_UNFINISHED_SPARE.fullmatch(name))


def audit_file(number: int) -> str:
    """Returns the name of a node's audit file; names sort as numbers do."""
    return f"audit-{number:08d}.jsonl"


def audit_number(name: str) -> int | None:
    """Returns the number of an audit file; None for the name of anything else."""
    match = _AUDIT.fullmatch(name)
    return None if match is None else int(match[1])


def is_checkpoint(name: str) -> bool:
    """Returns whether a file of the data directory itself grows with its partitions and is replaced on a full disk."""
    return name in (RECOVERY_POINTS, COORDINATION) or is_part_of_recovery_points(name)


def is_topic_name(name: str) -> bool:
    """True if a name is safe in a path, a key and a URL, and none that nodes use themselves."""
    is_own = name in RESERVED_TOPICS or name.startswith(RESERVED_PREFIX)
    return bool(_TOPIC_NAME.fullmatch(name)) and name not in (".", "..") and not is_own


def is_stored_topic_name(name: str) -> bool:
    """Returns whether a topic of this name may exist: a client's or an internal one."""
    return is_topic_name(name) or name in INTERNAL_TOPICS


def digits(offset: int) -> str:
    """Format an offset as twenty digits, so that names sort as numbers do."""
    assert 0 <= offset < 10**20
    return f"{offset:020d}"


def segment_file(base_offset: int, suffix: str) -> str:
    return digits(base_offset) + suffix


def beside_log(log_path: str, suffix: str) -> str:
    """Returns the path of another file of a segment, given the path of its `.log`."""
    return log_path.removesuffix(LOG) + suffix


def unfinished_foreign(log_path: str) -> str:
    """Returns the path at which the copy of a replaced `.log` file is written before its rename."""
    return beside_log(log_path, FOREIGN + TEMPORARY)


def foreign_file(log_path: str, crc32c: int) -> str:
    """Return the path of the copy of a replaced `.log` file with batches of another log, named by the CRC of its bytes.

    The engine never removes it; an operator may.
    """
    return beside_log(log_path, f"{FOREIGN}-{crc32c:08x}")


def base_offset_of(name: str) -> int | None:
    """Returns the base offset of a `.log` file name; None for any other file."""
    match = _SEGMENT_LOG.fullmatch(name)
    return int(match.group(1)) if match else None


def snapshot_offset_of(name: str) -> int | None:
    """Returns the offset of a `.snapshot` file name; None for any other file."""
    match = _SNAPSHOT.fullmatch(name)
    return int(match.group(1)) if match else None


def swap_base_of(name: str) -> int | None:
    """Returns the base offset of a `.swap` file name; None for any other file."""
    match = _SWAP.fullmatch(name)
    return int(match.group(1)) if match else None


def is_compacted_file(name: str) -> bool:
    """True if it is a compacted file that has not taken its segment's name."""
    return bool(_COMPACTED.fullmatch(name))


def is_topic_id(name: str) -> bool:
    """True if a directory of this name can be a topic's, judged by the form of the name."""
    return bool(_TOPIC_ID.fullmatch(name))


def is_partition_number(name: str) -> bool:
    """True if a directory of this name can be a partition's: the number without leading zeros."""
    return bool(_PARTITION.fullmatch(name))


class MoveDirectory(NamedTuple):
    """A directory of a move between data directories: the partition, the id of the move, and FUTURE or MOVED."""

    partition: int
    move_id: str
    suffix: str


def move_directory(partition_path: str, move_id: str, suffix: str) -> str:
    """Returns the path beside a partition's directory that a move uses."""
    return f"{partition_path}.{move_id}{suffix}"


def move_directory_of(name: str) -> MoveDirectory | None:
    """Returns the parts of the name of a move's directory; None for any other name."""
    match = _MOVE.fullmatch(name)
    return None if match is None else MoveDirectory(int(match[1]), match[2], match[3])


def is_partition_file(name: str) -> bool:
    """True if the engine makes files of this name in a partition's directory."""
    file_name = name.removesuffix(TEMPORARY)
    is_unfinished = bool(_UNFINISHED_FOREIGN.fullmatch(name))
    return (
        bool(_OF_SEGMENT.fullmatch(file_name))
        or file_name in (LEADER_EPOCHS, FENCED, CLEANED, MOVED_AWAY)
        or is_unfinished
    )


def is_leftover(name: str, logs: Collection[str]) -> bool:
    """True if a file of a partition is left by interrupted work, or derived from a segment without `.log`.

    `logs` are the base offsets of the existing segments, as digits. False for a name that the engine does not give.
    """
    stem, dot, suffix = name.partition(".")
    return is_partition_file(name) and (
        name.endswith(TEMPORARY) or (dot + suffix in DERIVED_SUFFIXES and stem not in logs)
    )


def topics_dir(data_dir: str) -> str:
    return f"{data_dir}/{TOPICS}"


def topic_dir(data_dir: str, topic: str, topic_id: str) -> str:
    return f"{data_dir}/{TOPICS}/{topic}/{topic_id}"


def partition_dir(data_dir: str, topic: str, topic_id: str, partition: int) -> str:
    return f"{topic_dir(data_dir, topic, topic_id)}/{partition}"


def store_topic_prefix(cluster_id: str, topic: str, topic_id: str) -> str:
    return f"{cluster_id}/{topic}/{topic_id}/"


def store_partition_prefix(cluster_id: str, topic: str, topic_id: str, partition: int) -> str:
    return f"{store_topic_prefix(cluster_id, topic, topic_id)}{partition}/"


def store_deleted_prefix(cluster_id: str) -> str:
    """Returns the prefix of the markers of deleted topics. No topic has this name."""
    return f"{cluster_id}/__deleted/"


def store_deleted_topic_key(cluster_id: str, topic: str, topic_id: str) -> str:
    """Returns the key of a deleted topic's marker."""
    return f"{store_deleted_prefix(cluster_id)}{topic}/{topic_id}.json"


def deleted_topic_of(name: str) -> tuple[str, str] | None:
    """Returns the topic and the id of a marker, from its name without the prefix; None for another object."""
    match = _DELETED.fullmatch(name)
    return (match[1], match[2]) if match else None


def store_registrations_prefix(cluster_id: str) -> str:
    """Returns the prefix of the registrations of ingestion jobs. No topic has this name."""
    return f"{cluster_id}/__jobs/"


def store_registration_key(cluster_id: str, job: str, job_id: str) -> str:
    return f"{store_registrations_prefix(cluster_id)}{job}-{job_id}.json"


def is_store_registration(name: str) -> bool:
    """True if an object of this name, without its prefix, can be a registration."""
    return bool(_REGISTRATION.fullmatch(name))


def store_accepted_prefix(cluster_id: str) -> str:
    """Returns the prefix of the counts of accepted records. No topic has this name."""
    return f"{cluster_id}/__accepted/"


def store_accepted_key(cluster_id: str, hour: int, process: str) -> str:
    """Returns the key of what a process has counted within an hour since 1970. `process` is hexadecimal."""
    return f"{store_accepted_prefix(cluster_id)}{hour:010d}-{process}.json"


def accepted_hour_of(name: str) -> int | None:
    """Returns the hour of an object of counts, from its name without the prefix; None for another object."""
    match = _ACCEPTED.fullmatch(name)
    return int(match[1]) if match else None


class UsageFile(NamedTuple):
    """The name of a file of counters: its hour since 1970, the shard that counts, and an id that no other file has."""

    hour: int
    shard: int
    id: str


def usage_file(file: UsageFile) -> str:
    return f"{file.hour:010d}-{file.shard}-{file.id}.counters"


def usage_file_of(name: str) -> UsageFile | None:
    """Returns the parts of the name of a file of counters; None for the name of anything else."""
    match = _USAGE.fullmatch(name)
    return None if match is None else UsageFile(int(match[1]), int(match[2]), match[3])


def usage_marks_file(shard: int) -> str:
    return f"marks.{shard}"


def store_usage_prefix(cluster_id: str) -> str:
    """Returns the prefix of the usage of sealed hours. No topic's name begins with `__`."""
    return f"{cluster_id}/__usage/"


def store_usage_hour(cluster_id: str, hour: int) -> str:
    """Returns a text that sorts before the keys of an hour, and behind those of the hours before."""
    return f"{store_usage_prefix(cluster_id)}{hour:010d}/"


def store_usage_key(cluster_id: str, node_id: int, file: UsageFile) -> str:
    """Returns the key of what a file of counters had when its hour was sealed."""
    return f"{store_usage_hour(cluster_id, file.hour)}{node_id}-{file.shard}-{file.id}.json"


def store_usage_file_of(name: str) -> UsageFile | None:
    """Returns the file that an object was made of, from its name without the prefix; None for another object."""
    match = _STORE_USAGE.fullmatch(name)
    return None if match is None else UsageFile(int(match[1]), int(match[3]), match[4])


def store_segment_key(prefix: str, base_offset: int, leader_epoch: int, uuid_hex: str, suffix: str = LOG) -> str:
    """Returns a key that is never used twice, so that readers and caches need no invalidation."""
    return f"{prefix}{digits(base_offset)}-{leader_epoch}-{uuid_hex}{suffix}"


def is_store_segment(name: str) -> bool:
    """True if an object of this name, without its prefix, can be a segment or one of its auxiliary objects."""
    return bool(_STORE_SEGMENT.fullmatch(name))


def store_manifest_prefix(prefix: str) -> str:
    return f"{prefix}manifest/"


def store_manifest_key(prefix: str, generation: int) -> str:
    return f"{store_manifest_prefix(prefix)}{digits(generation)}.json"
