"""The object store of the simulation: one shared bucket, and each node's access to it.

An access takes virtual time, during which everything else continues, including the node's own event loop, since the
callers are threads. So a leader can be replaced between two requests of one commit. A request may fail before it is
executed (500), may be executed without an answer (lost reply), or may be executed after its caller has given up.
Creation if absent is atomic, as `probe` demands of a real store.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from engine.testing.memory_store import MemoryStore
from engine.testing.store_proxy import StoreProxy
from engine.tiering.manifest.encoding import decode_manifest
from engine.tiering.manifest.keys import generation_of
from engine.tiering.manifest.manifest import Manifest
from engine.tiering.store.store import NoSuchObject, ObjectExists, StoreUnavailable, UnfinishedUpload

if TYPE_CHECKING:
    from tests.simulation.world.node import Life
    from tests.simulation.world.world import World

T = TypeVar("T")
TIMEOUT_S = 0.4
CHANGES = ("put", "delete")


@dataclass
class StoreWeather:
    """Shares of requests that fail."""

    failing: float = 0.0
    lost_reply: float = 0.0
    late: float = 0.0
    request_s: float = 0.004


class Bucket(MemoryStore):
    """The stored objects; nothing here fails or takes time."""

    url = "sim://bucket"

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world
        self.weather = StoreWeather()
        self.roots: list[Manifest] = []  # in commit order

    def put(self, key: str, data: bytes, *, if_absent: bool = False) -> None:
        self.now_ms = int(self.world.now * 1000)
        super().put(key, data, if_absent=if_absent)
        prefix = key.partition("manifest/")[0]
        if generation_of(prefix, key) is not None:
            self.roots.append(decode_manifest(data, key))
            self.world.count("tier commits")


class BucketOfNode(StoreProxy):
    """The bucket as the threads of one process see it."""

    def __init__(self, bucket: Bucket, life: Life) -> None:
        super().__init__(bucket)
        self._bucket, self._life = bucket, life

    def unfinished(self, prefix: str) -> Sequence[UnfinishedUpload]:
        """Return nothing: a put is whole or absent here."""
        return ()

    def abort(self, upload: UnfinishedUpload) -> None:
        """No-op: there is no unfinished upload."""

    def probe(self) -> str:
        """No-op: this store supports conditional creation."""
        return ""

    def put_file(
        self,
        key: str,
        path: str,
        *,
        size_bytes: int,
        start: int = 0,
        crc32: int | None = None,
        if_absent: bool = False,
    ) -> None:
        disk = self._life.node.disk
        handle = disk.open(path)
        data = disk.pread(handle, size_bytes, start)
        disk.close(handle)
        self.put(key, data, if_absent=if_absent)

    def relay(self, method: str, key: str, do: Callable[[], T]) -> T:
        world, weather = self._life.world, self._bucket.weather
        self._life.wait_in_thread(weather.request_s * world.random.random())
        luck = world.random.random()
        if luck < weather.failing:
            world.count("store requests failed")
            raise StoreUnavailable("500")
        if method in CHANGES and luck < weather.failing + weather.late:
            world.count("store requests done late")
            world.after(TIMEOUT_S * 3 * world.random.random(), _whatever_becomes_of_it, do)
            self._life.wait_in_thread(TIMEOUT_S)
            raise StoreUnavailable("no answer in time")
        done = do()
        if luck > 1 - weather.lost_reply:
            world.count("store replies lost")
            raise StoreUnavailable("the connection was reset")
        self._life.wait_in_thread(weather.request_s * world.random.random())
        return done


def _whatever_becomes_of_it(do: Callable[[], object]) -> None:
    try:
        do()
    except (ObjectExists, NoSuchObject):
        return  # another writer was first, and the caller has given up
