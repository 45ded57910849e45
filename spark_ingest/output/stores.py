"""Opens the stores of a job by their URLs, and stores values in them: created once, and never changed."""

from __future__ import annotations

from engine.tiering.store.store import NoSuchObject, ObjectExists, ObjectStore, open_store
from spark_ingest.plan import StructT, decode, encode


def open_source_store(url: str) -> ObjectStore:
    """Opens the store of segments for reading."""
    return open_store(url)


def open_output_store(url: str, *, is_written: bool) -> ObjectStore:
    """Opens the store of tables. Before the first write, probes that it creates an object only once.

    Raises StoreUnusable.
    """
    output = open_store(url)
    if is_written:
        output.probe()
    return output


def put_if_absent(output: ObjectStore, key: str, data: bytes) -> bool:
    """Creates an object; False if it exists."""
    try:
        output.put(key, data, if_absent=True)
    except ObjectExists:
        return False
    return True


def put_once(output: ObjectStore, key: str, value: StructT) -> StructT:
    """Creates the object of a value; returns the stored one, which another driver may have created first."""
    return value if put_if_absent(output, key, encode(value)) else decode(output.get(key), key, type(value))


def load(output: ObjectStore, key: str, kind: type[StructT]) -> StructT | None:
    """Returns a stored value; None if there is no such object. Raises UnreadablePlan."""
    try:
        data = output.get(key)
    except NoSuchObject:
        return None
    return decode(data, key, kind)
