"""Decoders, transformers and partitioners that other distributions install, as entry points."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Any

from spark_ingest.errors import IngestRefused

DECODERS = "penstock.ingest.decoders"
TRANSFORMERS = "penstock.ingest.transformers"
PARTITIONERS = "penstock.ingest.partitioners"


def entry_point_names(group: str) -> list[str]:
    return sorted({entry_point.name for entry_point in entry_points(group=group)})


def load_entry_point(group: str, name: str) -> Any:
    """Returns the object of an entry point. Raises IngestRefused if it is not installed or cannot be imported."""
    for entry_point in entry_points(group=group, name=name):
        try:
            return entry_point.load()
        except (ImportError, AttributeError) as error:
            raise IngestRefused(f"{group}: {name} cannot be imported: {error}") from error
    there = ", ".join(entry_point_names(group)) or "none"
    raise IngestRefused(f"no entry point {name!r} in {group}", hint=f"install its distribution; there are: {there}")
