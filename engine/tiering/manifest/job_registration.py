"""The registration of an ingestion job: what it reads, and how far it has committed. One small object for each job.

The job writes it at the start of a run and after each commit, so the object's own time shows when the job last ran. A
node reads it for topics with `retention_waits_for_jobs`. It is outside of every topic's prefix.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

import orjson

from engine.tiering.manifest.json_reading import Text, convert, read_object

FORMAT = 1
COMMITS_MAX = 30  # some 4 kB
SMALL_FILE_BYTES = 64 << 20  # what a run gathers, and `ingest compact` joins


@dataclass(frozen=True, slots=True)
class RegisteredTopic:
    """A topic that a job reads. A partition that is not in `ends` has no committed offset."""

    topic_id: str
    ends: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class CommitFigures:
    """The counts of one commit. `small_files` are below SMALL_FILE_BYTES."""

    number: int
    committed_ms: int
    rows: int
    dead_letters: int
    files: int
    small_files: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class JobFigures:
    """The counts of a job for people: its last COMMITS_MAX commits, the newest last, and sums over all of them.

    `held` are topics whose last plan has failed.
    """

    lost_records: int = 0
    misfits: int = 0
    held: tuple[str, ...] = ()
    commits: tuple[CommitFigures, ...] = ()


@dataclass(frozen=True, slots=True)
class Registration:
    """`job_id` distinguishes jobs of one name with different outputs. Releases without figures wrote none."""

    job: Text
    job_id: Text
    output: Text
    topics: Mapping[str, RegisteredTopic]
    figures: JobFigures = JobFigures()


def encode_registration(registration: Registration) -> bytes:
    topics = {
        name: {"topic_id": topic.topic_id, "ends": {str(number): end for number, end in sorted(topic.ends.items())}}
        for name, topic in sorted(registration.topics.items())
    }
    document = {
        "format": FORMAT,
        "job": registration.job,
        "job_id": registration.job_id,
        "output": registration.output,
        "topics": topics,
        "figures": asdict(registration.figures),
    }
    return orjson.dumps(document)


def decode_registration(data: bytes, key: str) -> Registration:
    """Decodes a registration. Raises Corrupt, UnsupportedFormat."""
    return convert(read_object(data, key, FORMAT), Registration, key)
