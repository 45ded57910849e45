"""The object store of the simulation: one bucket that everybody sees, and each node's way to it.

A way takes virtual time, during which everything else goes on, the node's own event loop too: its callers are threads.
So a leader that was replaced between two requests of one commit is met here. A request may fail before it is done
(500), be done and not answered (lost reply), or not be answered and done later, when its caller has long given up.
Creation if absent holds, as `probe` demands of a real one.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from engine.tiering.manifest.encoding import decode_manifest
from engine.tiering.manifest.keys import generation_of
from engine.tiering.manifest.manifest import Manifest
from engine.tiering.store.store import NoSuchObject, ObjectExists, ObjectInfo, StoreUnavailable

if TYPE_CHECKING:
    from tests.simulation.world.node import Life
    from tests.simulation.world.world import World

T = TypeVar("T")
TIMEOUT_S = 0.4


@dataclass
class StoreWeather:
    """Shares of requests that go wrong."""

    failing: float = 0.0
    lost_reply: float = 0.0
    late: float = 0.0
    request_s: float = 0.004


@dataclass
class Bucket:
    """What is stored; nothing here fails or takes time."""

    world: World
    weather: StoreWeather = field(default_factory=StoreWeather)
    objects: dict[str, tuple[bytes, int]] = field(default_factory=dict)
    _keys: list[str] = field(default_factory=list)  # of `objects`, sorted
    roots: list[Manifest] = field(default_factory=list)  # as they were committed
    url: str = "sim://bucket"
    checks_uploads: bool = False

    def probe(self) -> None:
        """It keeps what it promises."""

    def put(self, key: str, data: bytes, *, if_absent: bool = False) -> None:
        if if_absent and key in self.objects:
            raise ObjectExists(key)
        if key not in self.objects:
            insort(self._keys, key)
        self.objects[key] = (bytes(data), int(self.world.now * 1000))
        prefix = key.partition("manifest/")[0]
        if generation_of(prefix, key) is not None:
            self.roots.append(decode_manifest(data, key))
            self.world.count("tier commits")

    def get(self, key: str, start: int | None = None, end: int | None = None) -> bytes:
        if key not in self.objects:
            raise NoSuchObject(key)
        return self.objects[key][0][start:end]

    def head(self, key: str) -> ObjectInfo | None:
        found = self.objects.get(key)
        return None if found is None else ObjectInfo(key, len(found[0]), found[1])

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectInfo]:
        begin = max(bisect_left(self._keys, prefix), bisect_right(self._keys, start_after))
        for key in self._keys[begin:]:
            if not key.startswith(prefix):
                return
            yield ObjectInfo(key, len(self.objects[key][0]), self.objects[key][1])

    def list_prefixes(self, prefix: str) -> Sequence[str]:
        names = (info.key[len(prefix) :].partition("/") for info in self.list(prefix))
        return list(dict.fromkeys(f"{prefix}{name}/" for name, slash, _ in names if slash))

    def delete(self, key: str) -> None:
        if self.objects.pop(key, None) is not None:
            self._keys.remove(key)


class BucketOfNode:
    """The bucket as the threads of one process reach it."""

    url = Bucket.url
    checks_uploads = False

    def __init__(self, bucket: Bucket, life: Life) -> None:
        self._bucket, self._life = bucket, life

    def probe(self) -> None:
        """It keeps what it promises."""

    def put(self, key: str, data: bytes, *, if_absent: bool = False) -> None:
        self._request(lambda: self._bucket.put(key, data, if_absent=if_absent), is_change=True)

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

    def get(self, key: str, start: int | None = None, end: int | None = None) -> bytes:
        return self._request(lambda: self._bucket.get(key, start, end))

    def head(self, key: str) -> ObjectInfo | None:
        return self._request(lambda: self._bucket.head(key))

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectInfo]:
        yield from self._request(lambda: [*self._bucket.list(prefix, start_after)])

    def list_prefixes(self, prefix: str) -> Sequence[str]:
        return self._request(lambda: self._bucket.list_prefixes(prefix))

    def delete(self, key: str) -> None:
        self._request(lambda: self._bucket.delete(key), is_change=True)

    def _request(self, do: Callable[[], T], *, is_change: bool = False) -> T:
        world, weather = self._life.world, self._bucket.weather
        self._life.wait_in_thread(weather.request_s * world.random.random())
        luck = world.random.random()
        if luck < weather.failing:
            world.count("store requests failed")
            raise StoreUnavailable("500")
        if is_change and luck < weather.failing + weather.late:
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
        return  # somebody else was first, and nobody waits for this answer
