"""Opens the stores of a job by their URLs."""

from __future__ import annotations

from engine.tiering.store.store import ObjectStore, open_store


def open_source(url: str) -> ObjectStore:
    """Where segments are: only read, so nothing is asked of it beforehand."""
    return open_store(url)


def open_output(url: str, *, is_written: bool) -> ObjectStore:
    """Where tables are. Before anything is written it must show the promise that all of this rests on.

    Raises StoreUnusable.
    """
    output = open_store(url)
    if is_written:
        output.probe()
    return output
