"""Creates, changes and deletes the topics of a node, durably, one change at a time.

Knows records, not logs: shards open and close the partitions. In a node of several processes only the supervisor has
the catalog. Invariant: a topic is in `records` if and only if its `topic.json` is durable.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import ParamSpec, TypeVar

from engine.directory.ceilings import Ceiling, Count, count_of
from engine.directory.data_directory import FIRST, DataDirectory
from engine.directory.interrupted_moves import end_interrupted_moves
from engine.directory.log_directories import LogDirectories
from engine.directory.safe_delete import RemovalSteps
from engine.directory.topic_deleter import TopicDeleter
from engine.directory.topic_directories import (
    PartitionCreationFailed,
    check_all_known,
    clear_added,
    create_partitions,
    find_unmarked,
    mark_moved_away,
    moved,
    place_partitions,
    remove_leftovers,
    remove_moved_away,
    remove_partitions,
    remove_topic,
    topic_removal,
)
from engine.directory.topic_scan import HINT, TopicScan, scan_topics
from engine.directory.topics import (
    NAME_RULE,
    TopicRecord,
    changed_topic,
    check_new_topic,
    is_deletion_begun,
    save_settings,
    save_topic,
    unlist_topic,
)
from engine.errors import Corrupt, EngineError, TopicExists, UnknownTopic, Unreachable, storage_error
from engine.format import paths
from engine.runtime.clock import Clock
from engine.runtime.disk import Disk
from engine.topic_settings import check_deletable, topic_settings

log = logging.getLogger("penstock.engine")

P = ParamSpec("P")
T = TypeVar("T")


class Catalog:
    """All topics of a node."""

    def __init__(
        self, disk: Disk, directories: LogDirectories, clock: Clock, executor: Executor, new_id: Callable[[], str]
    ) -> None:
        self.records: dict[str, TopicRecord] = {}
        self.set_aside: dict[str, TopicRecord] = {}  # by id: durable and not served
        # subset of `records`: vanished, perhaps not durably; `delete` continues
        self.partially_deleted: dict[str, TopicRecord] = {}
        self.without_metadata: dict[str, str] = {}  # topics whose `topic.json` is missing, by id: their names
        self.changing = asyncio.Lock()  # held during a change of a topic, until every shard has followed
        self._disk = disk
        self._directories = directories
        self._data_dir = directories.first.path
        self._clock = clock
        self._executor = executor
        self._deleter = TopicDeleter(executor)
        self._new_id = new_id

    def __repr__(self) -> str:
        return f"Catalog({self._data_dir}, topics={len(self.records)})"

    async def load(self) -> None:
        """Read all topics; remove the leftovers of interrupted creations and deletions. Raises Corrupt."""
        try:
            topics = await self._in_thread(self._load)
        except OSError as error:
            raise Corrupt(
                f"the topics cannot be read: {error}", hint="check the data directory and its owner"
            ) from error
        for deleted in topics.deleted:
            self._deleter.remove_in_background(self._removal(*deleted))
        self.without_metadata = {topic_id: name for name, topic_id in topics.without_metadata}
        oldest_first = sorted(topics.records, key=lambda record: record.created_ms)
        self.records = {record.name: record for record in oldest_first}
        self.set_aside = {record.topic_id: record for record in oldest_first if self.records[record.name] is not record}
        for record in self.set_aside.values():
            words = {"topic": record.name, "topic_id": record.topic_id}
            log.warning("a topic on this disk has the name of a newer topic and was quarantined", extra=words)

    def _load(self) -> TopicScan:
        self._check_topics_directory()
        scan = scan_topics(self._disk, self._data_dir, self._removal)
        if self._directories.is_several:
            known_topics = {(record.name, record.topic_id) for record in scan.records}
            known_topics.update(scan.without_metadata, ((name, topic_id) for name, topic_id, _ in scan.deleted))
            remove_leftovers(self._disk, self._directories, known_topics)
            for record in scan.records:
                self._end_interrupted_moves(record)
            scan.records = [self._record_moves(record) for record in scan.records]
        for record in scan.records:
            if record.hosted is not None:
                self._remove_moved_away(record)
            else:
                check_all_known(self._disk, self._directories, record)
        self._retain_recovery_points(scan)
        return scan

    def _check_topics_directory(self) -> None:
        """Raises Corrupt if the directory of all topics is missing: no operation removes it after the first topic."""
        if self._disk.stat(paths.topics_dir(self._data_dir)) is None and self._directories.load_checkpoints():
            text = f"{paths.topics_dir(self._data_dir)} is missing, and it held topics of this node"
            raise Corrupt(text, hint="mount its disk or restore it; nothing was changed")

    def _retain_recovery_points(self, scan: TopicScan) -> None:
        having = {f"{record.topic_id}/{number}" for record in scan.records for number in record.local_partitions}
        aside = tuple(f"{topic_id}/" for _, topic_id in scan.without_metadata)
        for directory in self._directories.usable:
            try:
                directory.retain_recovery_points(lambda name: name in having or name.startswith(aside))
            except OSError as error:  # they belong to no opened partition
                log.warning(
                    "removing recovery points failed", extra={"directory": directory.path, "reason": str(error)}
                )

    def _remove_moved_away(self, record: TopicRecord) -> None:
        """Finishes interrupted removals of moved partitions; logs a failure of the disk."""
        try:
            remove_moved_away(self._disk, self._directories, record)
        except OSError as error:
            log.warning("removal failed", extra={"topic": record.name, "reason": str(error)})

    def _end_interrupted_moves(self, record: TopicRecord) -> None:
        try:
            end_interrupted_moves(self._disk, self._directories, record)
        except OSError as error:  # the partition is then missing, or has leftovers
            log.warning("an interrupted move was not ended", extra={"topic": record.name, "reason": str(error)})

    def _record_moves(self, record: TopicRecord) -> TopicRecord:
        """Writes the moves down, or an old copy could pass for the partition once its new directory is unusable."""
        directory_ids = moved(self._directories, record)
        if directory_ids != record.directory_ids:
            record = dataclasses.replace(record, directory_ids=directory_ids)
            try:
                save_settings(self._disk, self._data_dir, record)
            except OSError as error:  # the next start finds them
                log.warning(
                    "the record of a moved partition failed", extra={"topic": record.name, "reason": str(error)}
                )
        return record

    async def create(
        self,
        name: str,
        partitions: int,
        replication_factor: int,
        overrides: Mapping[str, object],
        ceiling: Ceiling | None = None,
    ) -> tuple[TopicRecord, bool]:
        """Create a topic, or find an equal one. Returns it and whether it is new. Raises TopicExists, Invalid,
        QuotaExhausted.
        """
        check_new_topic(name, partitions, replication_factor, overrides)
        existing = self.records.get(name)
        if existing is not None:
            _check_same(existing, partitions, replication_factor, overrides)
            return existing, False
        if name in self.without_metadata.values():
            raise self.unknown_topic_error(name)
        self._check_room(ceiling, Count(1, partitions))
        now_ms = self._clock.now_ms()
        record = TopicRecord(name, self._new_id(), partitions, replication_factor, dict(overrides), now_ms)
        if self._directories.is_several:
            record = await self._assign_directories(record)
        await self._change_files("creating", save_topic, record)
        self.records[name] = record
        return record, True

    async def _assign_directories(self, record: TopicRecord) -> TopicRecord:
        """Choose directories and make the partitions in the other ones; skips directories that fail.

        Raises Unreachable if all fail.
        """
        failed: list[DataDirectory] = []
        while True:
            try:
                return await self._assign_excluding(record, record.local_partitions, failed)
            except PartitionCreationFailed as failure:
                self._directories.record_failure(failure.directory, failure.error, f"creating topic {record.name!r}")
                failed.append(failure.directory)
                await self._in_thread(remove_topic, self._disk, self._directories, record.name, record.topic_id)
                # a new id: the next try must not find files of the first
                record = dataclasses.replace(record, topic_id=self._new_id())

    async def _assign_excluding(
        self, record: TopicRecord, added: Sequence[int], failed: list[DataDirectory]
    ) -> TopicRecord:
        """Returns the record with places of new partitions, after making them in the other directories."""
        candidates = [directory for directory in self._directories.usable if directory not in failed]
        if not candidates:
            raise self._directories.first.fault or _no_room(record, failed)
        having = list(self.records.values())
        directory_ids = await self._in_thread(place_partitions, candidates, having, added)
        others = {key: value for key, value in record.directory_ids.items() if int(key) not in added}  # one may return
        record = dataclasses.replace(record, directory_ids=others | directory_ids)
        await self._in_thread(create_partitions, self._disk, self._directories, record, added)
        return record

    def _check_room(self, ceiling: Ceiling | None, added: Count) -> None:
        if ceiling is not None:
            sizes = ((record.name, record.partitions) for record in self.records.values())
            ceiling.check(count_of(ceiling.owner, sizes), added)

    async def alter(
        self, name: str, overrides: Mapping[str, object], partitions: int | None, ceiling: Ceiling | None = None
    ) -> TopicRecord:
        """Changes the given settings and grows to `partitions`. Raises UnknownTopic, InvalidConfig, QuotaExhausted."""
        if name in self.partially_deleted:
            raise self.unknown_topic_error(name)
        old = self.record(name)
        record = changed_topic(old, overrides, partitions)
        if record.partitions > old.partitions:
            self._check_room(ceiling, Count(0, record.partitions - old.partitions))
            record = await self._grow(record, range(old.partitions, record.partitions))
        else:
            await self._change_files("changing", save_settings, record)
        self.records[name] = record
        return record

    async def apply(self, record: TopicRecord) -> TopicRecord:
        """Applies the cluster's record of a topic durably: a new topic, or new settings or partitions.

        Does not remove partitions that left this node: `remove_partitions` does, once they are closed. Returns the
        record with its places.
        """
        old = self.find_record(record.name, record.topic_id)
        old_partitions = set() if old is None else set(old.local_partitions)
        added = [number for number in record.local_partitions if number not in old_partitions]
        if old is not None:
            record = dataclasses.replace(record, directory_ids=old.directory_ids)  # a partition may just have moved
            await self._in_thread(self._clear_earlier, old, added)
            moved_away = [number for number in old.local_partitions if number not in record.local_partitions]
            await self._in_thread(mark_moved_away, self._disk, self._directories, old, moved_away)
        if added or not old_partitions:
            record = await self._grow(record, added)
        else:
            await self._change_files("changing", save_settings, record)
        self.records[record.name] = record
        self.set_aside.pop(record.topic_id, None)
        self.without_metadata.pop(record.topic_id, None)
        return record

    def unknown_topic_error(self, name: str) -> EngineError:
        """Returns the error for a topic that is not in `records`; one without `topic.json` must not be recreated."""
        if name in self.without_metadata.values():
            return Corrupt(
                f"topic {name!r} is quarantined: its {paths.TOPIC_FILE} is missing or cannot be read", hint=HINT
            )
        hint = f"create it with PUT /v1/topics/{name}"
        if not paths.is_stored_topic_name(name):
            hint = f"it cannot be created: {NAME_RULE}"
        return UnknownTopic(f"there is no topic {name!r}", hint=hint)

    def find_record(self, name: str, topic_id: str) -> TopicRecord | None:
        """Return the record of a topic on this node, served or set aside; None without one."""
        record = self.records.get(name)
        return record if record is not None and record.topic_id == topic_id else self.set_aside.get(topic_id)

    def move_aside(self, record: TopicRecord) -> None:
        """Stop serving a topic and keep its files. A later `apply` finds it in the same directories."""
        del self.records[record.name]
        self.set_aside[record.topic_id] = record

    def _clear_earlier(self, record: TopicRecord, numbers: Sequence[int]) -> None:
        """Removes the earlier files of partitions that return to this node.

        `record` is from before their return. Raises Corrupt for records without the mark of a move (`topic.json` is
        outdated), StorageFull, StorageFailed.
        """
        keys = {f"{record.topic_id}/{number}" for number in numbers}
        try:
            unlisted = find_unmarked(self._disk, self._directories, record) if numbers else {}
            for number in unlisted.keys() & set(numbers):
                text = f"{unlisted[number]} has records, and {paths.TOPIC_FILE} does not list it: the file is outdated"
                raise Corrupt(text, hint=f"restore the newest {paths.TOPIC_FILE}, or move the directory elsewhere")
            remove_partitions(self._disk, self._directories, record, numbers)
            for directory in self._directories.usable:
                directory.drop_recovery_points(keys)
        except OSError as error:
            raise storage_error(f"clearing partitions of topic {record.name!r}", error) from error

    async def record_move(self, topic_id: str, name: str, number: int, directory_id: str) -> None:
        """Records that a partition is in another data directory now. No-op if the topic or partition is gone.

        The next start finds the partition without this record too. Raises StorageFull, StorageFailed.
        """
        async with self.changing:
            record = self.records.get(name)
            if record is None or record.topic_id != topic_id or number not in record.local_partitions:
                return
            directory_ids = {key: value for key, value in record.directory_ids.items() if key != str(number)}
            if directory_id != FIRST:
                directory_ids[str(number)] = directory_id
            record = dataclasses.replace(record, directory_ids=directory_ids)
            await self._change_files("recording a move of", save_settings, record)
            self.records[name] = record

    async def remove_partitions(self, record: TopicRecord, numbers: Sequence[int]) -> None:
        """Removes the files of partitions that left this node. The record must already exclude them."""
        try:
            await self._in_thread(remove_partitions, self._disk, self._directories, record, numbers)
        except OSError as error:  # never opened again: the next start removes the remaining files
            log.warning("removal failed", extra={"topic": record.name, "reason": str(error)})

    async def _grow(self, record: TopicRecord, added: Sequence[int]) -> TopicRecord:
        """Does not try another directory after a failure: a start would find the partition in both."""
        if self._directories.is_several:
            try:
                await self._in_thread(clear_added, self._disk, self._directories, record, added)
                record = await self._assign_excluding(record, added, [])
            except PartitionCreationFailed as failure:
                self._directories.record_failure(failure.directory, failure.error, f"growing topic {record.name!r}")
                raise storage_error(f"growing topic {record.name!r}", failure.error) from failure
            except OSError as error:
                raise storage_error(f"growing topic {record.name!r}", error) from error
        await self._change_files("growing", partial(save_topic, added=added), record)
        return record

    async def delete(self, record: TopicRecord) -> None:
        """Makes a topic vanish durably. Its files are removed at once if they are few, else in the background.

        The topic must be closed. Raises StorageFull, StorageFailed: it is then unchanged, or `partially_deleted`.
        """
        try:
            left = await self._change_files("deleting", unlist_topic, record)
        except EngineError:
            if self.records.get(record.name) is record and await self._is_deletion_begun(record):
                self.partially_deleted[record.name] = record
            raise
        if self.partially_deleted.get(record.name) is record:
            del self.partially_deleted[record.name]
        if self.set_aside.pop(record.topic_id, None) is None:
            self.records.pop(record.name, None)
        await self._deleter.remove(self._removal(record.name, record.topic_id, left))

    async def _is_deletion_begun(self, record: TopicRecord) -> bool:
        try:
            return await self._in_thread(is_deletion_begun, self._disk, self._data_dir, record)
        except OSError:  # a failing disk proves nothing
            return False

    async def stop(self) -> None:
        """Stops removing files; the next start continues."""
        await self._deleter.stop()

    def _removal(self, name: str, topic_id: str, directory: str) -> RemovalSteps[None]:
        return topic_removal(self._disk, self._directories, name, topic_id, directory)

    def record(self, name: str) -> TopicRecord:
        """Returns the record of a topic. Raises UnknownTopic or Corrupt (`unknown`)."""
        try:
            return self.records[name]
        except KeyError:
            raise self.unknown_topic_error(name) from None

    def deletable(self, name: str) -> TopicRecord:
        """Returns the record of a topic that may be deleted. Raises UnknownTopic, Corrupt, TopicProtected."""
        record = self.record(name)
        check_deletable(name, record.overrides)
        return record

    async def _change_files(self, doing: str, change: Callable[[Disk, str, TopicRecord], T], record: TopicRecord) -> T:
        """Changes files. Raises StorageFull, StorageFailed."""
        try:
            return await self._in_thread(change, self._disk, self._data_dir, record)
        except OSError as error:
            raise storage_error(f"{doing} topic {record.name!r}", error) from error

    async def _in_thread(self, function: Callable[P, T], *args: P.args, **_: P.kwargs) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, function, *args)


def _no_room(record: TopicRecord, failed: list[DataDirectory]) -> Unreachable:
    tried = ", ".join(directory.path for directory in failed)
    return Unreachable(f"no data directory has room for the partitions of topic {record.name!r}: {tried}")


def _check_same(record: TopicRecord, partitions: int, replication_factor: int, overrides: Mapping[str, object]) -> None:
    request = (partitions, replication_factor, topic_settings(overrides))
    if request != (record.partitions, record.replication_factor, record.settings):
        raise TopicExists(
            f"topic {record.name!r} exists with other partitions or settings",
            hint="describe it, alter it with PATCH, or choose another name",
        )
