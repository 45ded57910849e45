"""Opens the stores of a job by their URLs."""

from __future__ import annotations

from engine.tiering.store.store import ObjectStore, open_store


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
