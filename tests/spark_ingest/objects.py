"""The objects of an output, to compare two outputs byte by byte."""

from __future__ import annotations

import re

from engine.tiering.store.store import ObjectStore

_SECONDS = re.compile(rb'"seconds":[0-9.e-]+')
_NONCE = re.compile(rb"nonce-[0-9]+")  # of a run: tests/spark_ingest/jobs.py gives each another one


def objects_of(output: ObjectStore) -> dict[str, bytes]:
    """Returns every object. The seconds that a task took are 0, and all runs have one nonce."""
    return {one.key: _NONCE.sub(b"nonce", _SECONDS.sub(b'"seconds":0', output.get(one.key))) for one in output.list("")}
