"""Registers a job in the source store: topics with `retention_waits_for_jobs` keep what it has not committed.

A run writes the registration when it starts, when it has planned, and after each commit. It is the only thing that
ingestion writes into that store. A failure is reported and does not end the run: the store then keeps less or more than
it needs to, and what is lost is counted as without registrations.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from engine.errors import EngineError
from engine.format.paths import is_store_registration, store_registration_key, store_registrations_prefix
from engine.tiering.manifest.job_registration import (
    COMMITS_MAX,
    SMALL_FILE_BYTES,
    CommitFigures,
    JobFigures,
    RegisteredTopic,
    Registration,
    decode_registration,
    encode_registration,
)
from engine.tiering.store.store import NoSuchObject, ObjectStore
from spark_ingest.errors import IngestRefused
from spark_ingest.plan import Positions
from spark_ingest.protocol.commit import Commit

_ID_DIGITS = 16
HELD_MAX = 100  # names of topics in the figures


class Registrar:
    """Writes one job's registration. `failed` is called once with the reason if that does not work."""

    def __init__(self, source: ObjectStore, job: str, output_url: str, failed: Callable[[str], None]) -> None:
        self._source = source
        self._job = job
        self._output_url = output_url
        self._failed = failed
        self._written: Registration | None = None
        self._has_failed = False

    def update(self, cluster: str, first_nonce: str, positions: Positions, commit: Commit | None = None) -> None:
        """Registers the next offsets that the job reads, beside known ones. Writes at the first call, and changes.

        `first_nonce` is that of the job's first plan, which distinguishes the job from others of its name. The figures
        are those of `commit`, beside those of commits before it.
        """
        if self._has_failed or not first_nonce:
            return
        job_id = hashlib.sha256(first_nonce.encode()).hexdigest()[:_ID_DIGITS]
        key = store_registration_key(cluster, self._job, job_id)
        try:
            before = self._written or self._load_stored(key)
            topics = _with_positions(before.topics if before else {}, positions)
            figures = before.figures if before else JobFigures()
            if commit is not None and not any(row.number == commit.number for row in figures.commits):
                figures = _with_commit(figures, commit)
            registration = Registration(self._job, job_id, self._output_url, topics, figures)
            if registration != self._written:
                self._source.put(key, encode_registration(registration))
                self._written = registration
        except (EngineError, OSError) as error:
            self._has_failed = True
            self._failed(f"{error.detail if isinstance(error, EngineError) else error}")

    def check_output(self, cluster: str) -> None:
        """Checks, before the first plan of an output, that no registration has commits there. Raises IngestRefused.

        An output that has to be mounted is empty without its mount, and the job would begin again below it.
        """
        try:
            listed = [one.registration for one in registrations(self._source, cluster)]
        except (EngineError, OSError):
            return  # `update` reports it
        for stored in listed:
            if stored and (stored.job, stored.output) == (self._job, self._output_url) and stored.figures.commits:
                given_up = (
                    f"penstock ingest unregister --store {self._source.url} --job {self._job} --id {stored.job_id}"
                )
                raise IngestRefused(
                    f"{self._output_url} has no commit of job {self._job!r}, which has committed there",
                    hint=f"mount the output; if its tables are given up: {given_up}; for another output of this name: "
                    "another --job",
                )

    def _load_stored(self, key: str) -> Registration | None:
        try:
            return decode_registration(self._source.get(key), key)
        except NoSuchObject:
            return None


def _with_positions(before: Mapping[str, RegisteredTopic], positions: Positions) -> dict[str, RegisteredTopic]:
    topics = dict(before)
    for topic, position in positions.items():
        registered = topics.get(topic)
        ends = registered.ends if registered and registered.topic_id == position.topic_id else {}
        topics[topic] = RegisteredTopic(position.topic_id, {**ends, **position.ends})
    return topics


def _with_commit(before: JobFigures, commit: Commit) -> JobFigures:
    sizes = [file.size_bytes for result in commit.results for file in result.files]
    row = CommitFigures(
        commit.number,
        commit.committed_ms,
        commit.rows,
        sum(result.bad for result in commit.results),
        len(sizes),
        sum(size < SMALL_FILE_BYTES for size in sizes),
        sum(sizes),
    )
    return JobFigures(
        commit.lost_records,
        sum(count for columns in commit.misfits.values() for count in columns.values()),
        tuple(sorted(commit.held))[:HELD_MAX],
        (*before.commits, row)[-COMMITS_MAX:],
    )


class Listed(NamedTuple):
    """A registration and when it was written, by the store's clock; or why it cannot be read."""

    key: str
    renewed_ms: int
    registration: Registration | None
    problem: str = ""


def registrations(source: ObjectStore, cluster: str) -> Iterator[Listed]:
    """Yields the objects where registrations are."""
    prefix = store_registrations_prefix(cluster)
    for info in source.list(prefix):
        if not is_store_registration(info.key.removeprefix(prefix)):
            yield Listed(info.key, info.modified_ms, None, "not a registration; it holds nothing")
            continue
        try:
            data = source.get(info.key)
        except NoSuchObject:
            continue
        try:
            yield Listed(info.key, info.modified_ms, decode_registration(data, info.key))
        except EngineError as error:
            yield Listed(info.key, info.modified_ms, None, f"cannot be read and holds all records: {error.detail}")


def unregister(source: ObjectStore, cluster: str, job: str, job_id: str | None) -> list[Registration]:
    """Removes the registrations of a job, of all outputs without `job_id`; returns them. Leaves unreadable ones."""
    removed = []
    for listed in registrations(source, cluster):
        registration = listed.registration
        if registration is not None and registration.job == job and job_id in (None, registration.job_id):
            source.delete(listed.key)
            removed.append(registration)
    return removed
