"""`penstock tier restore` into a cluster: killed at any step it continues, and nothing that is used changes."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from engine.directory.topics import TopicRecord
from engine.errors import StartRefused
from engine.runtime.disk import RealDisk
from engine.testing.memory_store import MemoryStore
from engine.tiering.audit.restored_directory import RestoredTopic, RestoreTarget, restore_directory
from engine.tiering.manifest.stored_topic import TopicDescription
from node.commands.tier.restored_cluster import RestoredCluster
from replication.cluster.keys import CLUSTER, STATES, TOPICS
from replication.cluster.registration_state import read_registration_state
from replication.cluster.values import TopicEntry, block_from_bytes, identity_from_bytes, topic_from_bytes
from replication.coordination.embedded import EmbeddedStore
from replication.coordination.interface import Create, Put, Session
from replication.cores.partition_state import PartitionState
from tests.engine.tiering.audit.stored import PARTITION, WIDTH, stored

RECORD = TopicRecord("topic", PARTITION.topic_id, 3, 3, {"retention_ms": 7_200_000}, 5)


class Killed(BaseException):
    """The command has been killed."""


class Place:
    """The place of a cluster: a journal, which each session opens by itself. Dies at commit number `kill_at`."""

    def __init__(self, directory: Path) -> None:
        self._path = str(directory)
        self.kill_at = -1
        self.is_after = False
        self.commits = 0

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Session]:
        with ThreadPoolExecutor(1) as executor:
            store = await EmbeddedStore.open(RealDisk(), self._path, executor)
            session = store.session()
            commit = session.commit

            async def killed_commit(*operations: Any) -> Any:
                self.commits += 1
                is_now = self.commits == self.kill_at
                if is_now and not self.is_after:
                    raise Killed
                answer = await commit(*operations)
                if is_now:
                    raise Killed
                return answer

            session.commit = killed_commit  # type: ignore[method-assign]
            try:
                yield session
            finally:
                await session.close()
                await store.close()

    def run(self, use: Callable[[Session], Any]) -> Any:
        async def run() -> Any:
            async with self.opened() as session:
                return await use(session)

        return asyncio.run(run())


@pytest.fixture
def store(tmp_path) -> MemoryStore:
    store = stored(tmp_path)
    TopicDescription(store, "cluster", lambda: RECORD).write()
    return store


@pytest.fixture
def place(tmp_path) -> Place:
    return Place(tmp_path / "place")


def restore(
    store: MemoryStore, place: Place, path: Path, until_ms: int | None = None, nodes: tuple[int, ...] = (1, 2, 3)
) -> tuple[str, list[RestoredTopic]]:
    ids = iter(range(10**6))
    target = RestoreTarget(RealDisk(), str(path), 1, "boot", lambda: f"{next(ids):032x}")
    opened: Callable[[], AbstractAsyncContextManager[Session]] = place.opened
    cluster = RestoredCluster(opened, RealDisk(), 1, nodes, lambda: f"{next(ids):032x}")
    return restore_directory(store, target, "cluster", ["topic"], until_ms=until_ms, publication=cluster)


def topic_of(place: Place) -> tuple[TopicEntry, dict[int, PartitionState]]:
    async def read(session: Session) -> tuple[TopicEntry, dict[int, PartitionState]]:
        found = await session.get(f"{TOPICS}/topic")
        assert found is not None
        states: dict[int, PartitionState] = {}
        for name in await session.children(STATES):
            block = await session.get(f"{STATES}/{name}")
            states |= {number: one.state for number, one in block_from_bytes(name, block.value).items()}
        return topic_from_bytes("topic", found.value), states

    return place.run(read)  # type: ignore[no-any-return]


def check(place: Place, path: Path, cluster_id: str) -> None:
    found = place.run(lambda session: session.get(CLUSTER))
    identity = identity_from_bytes(CLUSTER, found.value)
    assert (identity.cluster_id, identity.is_claimed) == (cluster_id, False)
    topic, states = topic_of(place)
    assert (topic.topic_id, topic.replication_factor, topic.config) == (RECORD.topic_id, 3, RECORD.overrides)
    assert [states[number].replicas for number in range(3)] == [(1, 2, 3), (2, 3, 1), (3, 1, 2)]
    for number, state in states.items():
        assert {*state.adding} == {2, 3}
        assert [(one.node_id, one.broker_epoch) for one in state.in_sync] == [(1, found.created)]
        assert state.leader is None
        assert state.leader_epoch == (2 if number == 0 else 1)
    registered = read_registration_state(RealDisk(), str(path))
    assert (registered.disk_from, registered.survives_from) == (found.created, found.created)


def test_the_directory_is_a_node_and_the_others_are_replicas_to_add(store, place, tmp_path):
    cluster_id, [topic] = restore(store, place, tmp_path / "node")
    assert (cluster_id, topic.partitions[0].end_offset) == ("cluster", 4 * WIDTH)
    check(place, tmp_path / "node", "cluster")


def test_to_a_point_in_time_the_cluster_has_a_new_id(store, place, tmp_path):
    cluster_id, [topic] = restore(store, place, tmp_path / "node", until_ms=123)
    assert topic.partitions[0].end_offset == 15
    assert cluster_id != "cluster"
    check(place, tmp_path / "node", cluster_id)


def test_with_fewer_nodes_a_topic_has_a_replica_on_each(store, place, tmp_path):
    restore(store, place, tmp_path / "node", nodes=(1, 7))
    topic, states = topic_of(place)
    assert topic.replication_factor == 2
    assert [{*states[number].replicas} for number in range(3)] == [{1, 7}] * 3


@pytest.mark.parametrize("is_after", [False, True])
@pytest.mark.parametrize("until_ms", [None, 123])
def test_a_kill_at_any_commit_or_before_the_rename_is_continued(is_after, until_ms, store, tmp_path, monkeypatch):
    counted = Place(tmp_path / "counted")
    restore(store, counted, tmp_path / "node-0", until_ms)
    assert counted.commits >= 3
    for kill_at in range(1, counted.commits + 2):
        place, path = Place(tmp_path / f"place-{kill_at}"), tmp_path / f"node-{kill_at}"
        place.kill_at, place.is_after = kill_at, is_after
        with killed_at_rename(monkeypatch, path), pytest.raises(Killed):
            restore(store, place, path, until_ms)
        assert not path.exists()
        place.kill_at = -1
        cluster_id, _ = restore(store, place, path, until_ms)
        check(place, path, cluster_id)


@contextmanager
def killed_at_rename(monkeypatch: pytest.MonkeyPatch, path: Path) -> Iterator[None]:
    """The command is killed before the directory gets its name."""
    rename = RealDisk.rename

    def renamed(disk: RealDisk, source: str, to: str) -> None:
        if to == str(path):
            raise Killed
        rename(disk, source, to)

    with monkeypatch.context() as patch:
        patch.setattr(RealDisk, "rename", renamed)
        yield


def test_what_nodes_have_changed_since_is_left_by_a_repeated_command(store, place, tmp_path, monkeypatch):
    """The cluster was opened, and the command killed before the rename: another node may have started meanwhile."""
    path = tmp_path / "node"
    with killed_at_rename(monkeypatch, path), pytest.raises(Killed):
        restore(store, place, path)

    async def change(session: Session) -> None:
        found = await session.get(f"{TOPICS}/topic")
        await session.commit(Put(f"{TOPICS}/topic", found.value + b" ", found.version))

    place.run(change)
    restore(store, place, path)
    assert place.run(lambda session: session.get(f"{TOPICS}/topic")).value.endswith(b" ")


def test_a_used_directory_or_place_is_refused_and_left(store, place, tmp_path):
    restore(store, place, tmp_path / "node")
    with pytest.raises(StartRefused, match="is not empty"):
        restore(store, place, tmp_path / "node")
    with pytest.raises(StartRefused, match="has cluster cluster"):
        restore(store, place, tmp_path / "another")
    check(place, tmp_path / "node", "cluster")
    wiped = Place(tmp_path / "wiped")
    wiped.run(lambda session: session.commit(Create(f"{TOPICS}/t", b"{}")))
    with pytest.raises(StartRefused, match="topics and no cluster"):
        restore(store, wiped, tmp_path / "third")
