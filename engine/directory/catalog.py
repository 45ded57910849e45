"""The topics of a node: who makes, changes and deletes them, durably, one change at a time.

Knows records, not logs: shards open and close what stands here. In a node of several processes the supervisor alone has
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

from engine.directory.data_directory import DataDirectory
from engine.directory.found_topics import HINT, FoundTopics, find_topics
from engine.directory.log_directories import LogDirectories
from engine.directory.removal import Removing
from engine.directory.removing import Remover
from engine.directory.topic_directories import (
    FurtherRefused,
    clear_added,
    demand_all_known,
    make_partitions,
    moved,
    partitions_beside,
    places,
    remove_leftovers,
    remove_partitions,
    remove_topic,
    removing_topic,
)
from engine.directory.topics import (
    TopicRecord,
    changed_topic,
    check_topic_wish,
    has_vanished,
    save_settings,
    save_topic,
    unlist_topic,
)
from engine.errors import Corrupt, EngineError, TopicExists, UnknownTopic, Unreachable, storage_error
from engine.format import paths
from engine.runtime.clock import Clock
from engine.runtime.disk import Disk
from engine.settings import topic_settings

log = logging.getLogger("penstock.engine")

P = ParamSpec("P")
T = TypeVar("T")


class Catalog:
    """All topics of a node."""

    def __init__(
        self, disk: Disk, directories: LogDirectories, clock: Clock, executor: Executor, new_id: Callable[[], str]
    ) -> None:
        self.records: dict[str, TopicRecord] = {}
        self.set_aside: dict[str, TopicRecord] = {}  # by id: durable too, and served by nobody
        self.half_deleted: dict[str, TopicRecord] = {}  # of `records`: vanished, perhaps not durably; `delete` goes on
        self.unidentified: dict[str, str] = {}  # topics whose `topic.json` is missing, by id: their names
        self.changing = asyncio.Lock()  # held by whoever changes a topic, until every shard has followed
        self._disk = disk
        self._directories = directories
        self._data_dir = directories.first.path
        self._clock = clock
        self._executor = executor
        self._remover = Remover(executor)
        self._new_id = new_id

    def __repr__(self) -> str:
        return f"Catalog({self._data_dir}, topics={len(self.records)})"

    async def load(self) -> None:
        """Read all topics; removes what interrupted creations and deletions left. Raises Corrupt."""
        try:
            topics = await self._in_thread(self._load)
        except OSError as error:
            raise Corrupt(
                f"the topics cannot be read: {error}", hint="check the data directory and its owner"
            ) from error
        for deleted in topics.deleted:
            self._remover.go_on(self._removing(*deleted))
        self.unidentified = {topic_id: name for name, topic_id in topics.unidentified}
        found = sorted(topics.records, key=lambda record: record.created_ms)
        self.records = {record.name: record for record in found}
        self.set_aside = {one.topic_id: one for one in found if self.records[one.name] is not one}
        for record in self.set_aside.values():
            words = {"topic": record.name, "topic_id": record.topic_id}
            log.warning("a topic on this disk has the name of a newer one: it is set aside", extra=words)

    def _load(self) -> FoundTopics:
        self._check_there()
        found = find_topics(self._disk, self._data_dir, self._removing)
        if self._directories.is_several:
            known = {(record.name, record.topic_id) for record in found.records}
            known.update(found.unidentified, ((name, topic_id) for name, topic_id, _ in found.deleted))
            remove_leftovers(self._disk, self._directories, known)
            found.records = [self._with_moves_noted(record) for record in found.records]
        for record in found.records:
            if record.hosted is not None:
                self._remove_moved_away(record)
            else:
                demand_all_known(self._disk, self._directories, record)
        self._keep_points(found)
        return found

    def _check_there(self) -> None:
        """Raises Corrupt if the directory of all topics is gone: once there was a topic, nothing removes it."""
        if self._disk.stat(paths.topics_dir(self._data_dir)) is None and self._directories.load_checkpoints():
            text = f"{paths.topics_dir(self._data_dir)} is missing, and this node has kept topics there"
            raise Corrupt(text, hint="mount its disk or restore it; nothing was changed")

    def _keep_points(self, found: FoundTopics) -> None:
        having = {f"{record.topic_id}/{number}" for record in found.records for number in record.here}
        aside = tuple(f"{topic_id}/" for _, topic_id in found.unidentified)
        for directory in self._directories.usable:
            try:
                directory.keep_points(lambda name: name in having or name.startswith(aside))
            except OSError as error:  # they are of no partition that is opened
                log.warning("forgetting points failed", extra={"directory": directory.path, "reason": str(error)})

    def _remove_moved_away(self, record: TopicRecord) -> None:
        """What was moved to other nodes, in a removal that was interrupted."""
        try:
            left = partitions_beside(self._disk, self._directories, record)
            remove_partitions(self._disk, self._directories, record, left)
        except OSError as error:
            log.warning("removal failed", extra={"topic": record.name, "reason": str(error)})

    def _is_gone_elsewhere(self, name: str, topic_id: str) -> bool:
        return remove_topic(self._disk, self._directories, name, topic_id)

    def _with_moves_noted(self, record: TopicRecord) -> TopicRecord:
        """Written down, or an old copy might pass for the partition once its new directory cannot be used."""
        elsewhere = moved(self._directories, record)
        if elsewhere != record.elsewhere:
            record = dataclasses.replace(record, elsewhere=elsewhere)
            try:
                save_settings(self._disk, self._data_dir, record)
            except OSError as error:  # the next start finds them again
                log.warning("a moved partition was not noted", extra={"topic": record.name, "reason": str(error)})
        return record

    async def create(
        self, name: str, partitions: int, replication_factor: int, overrides: Mapping[str, object]
    ) -> tuple[TopicRecord, bool]:
        """Make a topic, or find the same one there. Returns it and whether it is new. Raises TopicExists, Invalid."""
        check_topic_wish(name, partitions, replication_factor, overrides)
        existing = self.records.get(name)
        if existing is not None:
            _check_same(existing, partitions, replication_factor, overrides)
            return existing, False
        if name in self.unidentified.values():
            raise self.unknown(name)
        now_ms = self._clock.now_ms()
        record = TopicRecord(name, self._new_id(), partitions, replication_factor, dict(overrides), now_ms)
        if self._directories.is_several:
            record = await self._placed(record)
        await self._stored("creating", save_topic, record)
        self.records[name] = record
        return record, True

    async def _placed(self, record: TopicRecord) -> TopicRecord:
        """Choose directories and make the partitions in the further ones; what refuses them is passed over.

        Raises Unreachable when there is none left.
        """
        refused: list[DataDirectory] = []
        while True:
            try:
                return await self._placed_from(record, record.here, refused)
            except FurtherRefused as refusal:
                self._directories.note(refusal.directory, refusal.error, f"creating topic {record.name!r}")
                refused.append(refusal.directory)
                await self._in_thread(self._is_gone_elsewhere, record.name, record.topic_id)
                record = dataclasses.replace(record, topic_id=self._new_id())  # nothing of the first try may be found

    async def _placed_from(
        self, record: TopicRecord, added: Sequence[int], refused: list[DataDirectory]
    ) -> TopicRecord:
        """The record with places of new partitions, which are made in the further directories."""
        candidates = [one for one in self._directories.usable if one not in refused]
        if not candidates:
            raise self._directories.first.fault or _no_room(record, refused)
        having = list(self.records.values())
        elsewhere = await self._in_thread(places, candidates, having, added)
        record = dataclasses.replace(record, elsewhere={**record.elsewhere, **elsewhere})
        await self._in_thread(make_partitions, self._disk, self._directories, record, added)
        return record

    async def alter(self, name: str, overrides: Mapping[str, object], partitions: int | None) -> TopicRecord:
        """Change settings that are named, grow to so many partitions. Raises UnknownTopic, InvalidConfig."""
        if name in self.half_deleted:
            raise self.unknown(name)
        old = self.record(name)
        record = changed_topic(old, overrides, partitions)
        if record.partitions > old.partitions:
            record = await self._grown(record, range(old.partitions, record.partitions))
        else:
            await self._stored("changing", save_settings, record)
        self.records[name] = record
        return record

    async def adopt(self, record: TopicRecord) -> TopicRecord:
        """What the cluster says of a topic, durable as it is told: a new one, or one with other settings or partitions.

        What lies here no longer is not removed: `let_go` does, once nobody has it open. Returns it with its places.
        """
        old = self.having(record.name, record.topic_id)
        known = set() if old is None else set(old.here)
        added = [number for number in record.here if number not in known]
        if old is not None:
            await self._in_thread(self._clear_earlier, record, added)
        if added or not known:
            record = await self._grown(record, added)
        else:
            await self._stored("changing", save_settings, record)
        self.records[record.name] = record
        self.set_aside.pop(record.topic_id, None)
        self.unidentified.pop(record.topic_id, None)
        return record

    def unknown(self, name: str) -> EngineError:
        """The error for a topic that is not in `records`. One that lost its `topic.json` must not be begun again."""
        if name in self.unidentified.values():
            return Corrupt(f"topic {name!r} is set aside: its {paths.TOPIC_FILE} is missing", hint=HINT)
        return UnknownTopic(f"there is no topic {name!r}", hint=f"create it with PUT /v1/topics/{name}")

    def having(self, name: str, topic_id: str) -> TopicRecord | None:
        """What lies here of a topic, served or set aside."""
        known = self.records.get(name)
        return known if known is not None and known.topic_id == topic_id else self.set_aside.get(topic_id)

    def put_aside(self, record: TopicRecord) -> None:
        """It is not served any more, and its files stay. When it is adopted again it lies where it lay."""
        del self.records[record.name]
        self.set_aside[record.topic_id] = record

    def _clear_earlier(self, record: TopicRecord, numbers: Sequence[int]) -> None:
        """They were here before, went to other nodes and come again: what is left of that time is not to be found."""
        keys = {f"{record.topic_id}/{number}" for number in numbers}
        try:
            remove_partitions(self._disk, self._directories, record, numbers)
            for directory in self._directories.usable:
                directory.forget_points(keys)
        except OSError as error:
            raise storage_error(f"clearing partitions of topic {record.name!r}", error) from error

    async def let_go(self, record: TopicRecord, numbers: Sequence[int]) -> None:
        """Remove the files of partitions that do not lie here any more; the record says so already."""
        try:
            await self._in_thread(remove_partitions, self._disk, self._directories, record, numbers)
        except OSError as error:  # never opened again: the next start removes what is left
            log.warning("removal failed", extra={"topic": record.name, "reason": str(error)})

    async def _grown(self, record: TopicRecord, added: Sequence[int]) -> TopicRecord:
        """Another directory is not tried after a failure: what the first has kept would be found beside it."""
        if self._directories.is_several:
            try:
                await self._in_thread(clear_added, self._disk, self._directories, record, added)
                record = await self._placed_from(record, added, [])
            except FurtherRefused as refusal:
                self._directories.note(refusal.directory, refusal.error, f"growing topic {record.name!r}")
                raise storage_error(f"growing topic {record.name!r}", refusal.error) from refusal
            except OSError as error:
                raise storage_error(f"growing topic {record.name!r}", error) from error
        await self._stored("growing", partial(save_topic, added=added), record)
        return record

    async def delete(self, record: TopicRecord) -> None:
        """Make a topic vanish durably. Its files go at once if they are few, else in the background.

        Nobody has it open any more. Raises StorageFull, StorageFailed: then it is there as before, or `half_deleted`.
        """
        try:
            left = await self._stored("deleting", unlist_topic, record)
        except EngineError:
            if self.records.get(record.name) is record and await self._has_vanished(record):
                self.half_deleted[record.name] = record
            raise
        if self.half_deleted.get(record.name) is record:
            del self.half_deleted[record.name]
        if self.set_aside.pop(record.topic_id, None) is None:
            self.records.pop(record.name, None)
        await self._remover.remove(self._removing(record.name, record.topic_id, left))

    async def _has_vanished(self, record: TopicRecord) -> bool:
        try:
            return await self._in_thread(has_vanished, self._disk, self._data_dir, record)
        except OSError:  # a disk that does not answer is no evidence
            return False

    async def stop(self) -> None:
        """Leave the removal of files where it is: the next start goes on with it."""
        await self._remover.stop()

    def _removing(self, name: str, topic_id: str, directory: str) -> Removing[None]:
        return removing_topic(self._disk, self._directories, name, topic_id, directory)

    def record(self, name: str) -> TopicRecord:
        try:
            return self.records[name]
        except KeyError:
            raise self.unknown(name) from None

    async def _stored(self, doing: str, change: Callable[[Disk, str, TopicRecord], T], record: TopicRecord) -> T:
        """Change files. Raises StorageFull, StorageFailed."""
        try:
            return await self._in_thread(change, self._disk, self._data_dir, record)
        except OSError as error:
            raise storage_error(f"{doing} topic {record.name!r}", error) from error

    async def _in_thread(self, function: Callable[P, T], *args: P.args, **_: P.kwargs) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, function, *args)


def _no_room(record: TopicRecord, refused: list[DataDirectory]) -> Unreachable:
    tried = ", ".join(directory.path for directory in refused)
    return Unreachable(f"no data directory takes the partitions of topic {record.name!r}: {tried}")


def _check_same(record: TopicRecord, partitions: int, replication_factor: int, overrides: Mapping[str, object]) -> None:
    wanted = (partitions, replication_factor, topic_settings(overrides))
    if wanted != (record.partitions, record.replication_factor, record.settings):
        raise TopicExists(
            f"topic {record.name!r} exists with other partitions or settings",
            hint="describe it, alter it with PATCH, or choose another name",
        )
