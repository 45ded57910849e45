"""Keeps PyArrow from importing pandas, which takes 0.4 s of processor time. Nothing in ingestion uses it.

PyArrow looks once for pandas, at its first array, and imports it if it is installed (as PySpark asks for). It has no
switch for that. A later `to_pandas` imports pandas all the same. For processes of our own only: not for Spark's.
"""

from __future__ import annotations

import sys
from importlib.abc import MetaPathFinder
from typing import Any

import pyarrow as pa


class _Hidden(MetaPathFinder):
    def find_spec(self, name: str, path: Any, target: Any = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(name=name)


def skip_pandas() -> None:
    """Makes PyArrow look for pandas while it cannot be found. No-op if it is imported."""
    hidden = _Hidden()
    sys.meta_path.insert(0, hidden)
    try:
        pa.array([])
    finally:
        sys.meta_path.remove(hidden)
