"""Sets up PyArrow for processes that are all ours: the command with `--engine local`, and its workers. Not for Spark's.

Memory: Arrow's own allocator gives the system's pages back and takes them again, which costs a task a third of its
processor time. The system's allocator keeps them.

Pandas: PyArrow looks once for it, at its first array, and imports it if it is installed (as PySpark asks for), which
takes 0.4 s of processor time. It has no switch for that. Nothing in ingestion uses pandas. A later `to_pandas` imports
it all the same.
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


def set_up_arrow() -> None:
    """Makes Arrow use the system's allocator, and look for pandas while that cannot be found."""
    pa.set_memory_pool(pa.system_memory_pool())
    hidden = _Hidden()
    sys.meta_path.insert(0, hidden)
    try:
        pa.array([])
    finally:
        sys.meta_path.remove(hidden)
