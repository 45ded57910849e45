"""Stores for the tests of tiering. `store` runs a test on every kind of store, `file_store` on the fastest."""

import itertools
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from engine.runtime.clock import SystemClock
from engine.testing.memory_store import MemoryStore
from engine.testing.store_proxy import StoreProxy
from engine.tiering.store.store import ObjectStore, open_store
from tests.engine.tiering import servers
from tests.engine.tiering.shipping_scene import Make, maker


@pytest.fixture(scope="session")
def ministack_endpoint(tmp_path_factory) -> Iterator[str]:
    """Return the endpoint of ministack, or of the server that `make minio-tests` runs."""
    if (other := os.environ.get("MINIO_ENDPOINT")) is not None:
        yield other
        return
    with servers.ministack(tmp_path_factory.mktemp("ministack")) as endpoint:
        yield endpoint


@pytest.fixture(scope="session")
def moto_endpoint(tmp_path_factory) -> Iterator[str]:
    with servers.moto(tmp_path_factory.mktemp("moto")) as endpoint:
        yield endpoint


@pytest.fixture
def new_id() -> Callable[[], str]:
    """Return predictable identifiers."""
    numbers = itertools.count(1)
    return lambda: f"{next(numbers):032x}"


@pytest.fixture
def executor() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as threads:
        yield threads


@pytest.fixture
def make(executor, new_id) -> Make:
    return maker(executor, new_id)


@pytest.fixture(autouse=True)
def aws_environment(monkeypatch):
    for name, value in servers.CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("AWS_PROFILE", raising=False)


@pytest.fixture
def file_store(tmp_path) -> ObjectStore:
    return open_store(f"file://{tmp_path}/store")


_PREFIXES = itertools.count(1)
_BUCKETS: dict[str, ObjectStore] = {}


def s3_store(endpoint: str) -> ObjectStore:
    """Return an empty prefix of the server's one bucket. All share a client, since creating one takes 0.2 s."""
    if endpoint not in _BUCKETS:
        servers.make_bucket(endpoint, "bucket")
        _BUCKETS[endpoint] = open_store(f"s3://bucket?endpoint={endpoint}")
    store = open_store(f"s3://bucket/some/prefix-{next(_PREFIXES)}/?endpoint={endpoint}&region=us-east-1")
    vars(store)["_opened"] = _BUCKETS[endpoint]._client  # type: ignore[attr-defined]
    return store


@pytest.fixture
def ministack_store(ministack_endpoint) -> ObjectStore:
    return s3_store(ministack_endpoint)


SERVED = [pytest.param(kind, marks=pytest.mark.slow) for kind in ("ministack", "moto")]


@pytest.fixture(params=["file", "memory", *SERVED])
def store(request, tmp_path) -> ObjectStore:
    """An empty store of each kind."""
    if request.param == "memory":
        return StoreProxy(MemoryStore(SystemClock().now_ms()))
    if request.param == "file":
        return open_store(f"file://{tmp_path}/store")
    return s3_store(request.getfixturevalue(f"{request.param}_endpoint"))
