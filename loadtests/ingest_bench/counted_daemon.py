"""The daemon of PySpark's workers (`spark.python.daemon.module`), whose workers are counted by who measures.

PySpark's own daemon ignores SIGCHLD: Linux then drops the processor time of a worker that ends before its daemon. Here
such workers stay until the daemon ends, and become children of the process that measures.
"""

from __future__ import annotations

import signal
from typing import Any

from pyspark import daemon

_set_handler = signal.signal


def _without_ignored_children(number: int, handler: Any) -> Any:
    if number == signal.SIGCHLD and handler == signal.SIG_IGN:
        return signal.getsignal(number)
    return _set_handler(number, handler)


if __name__ == "__main__":
    signal.signal = _without_ignored_children  # type: ignore[assignment]
    daemon.manager()
