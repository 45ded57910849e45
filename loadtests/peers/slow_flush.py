"""`python -m loadtests.peers.slow_flush MS serve ...`: penstock with a delay of each fdatasync.

Disks of virtual machines often answer a flush without flushing, so they do not show the cost of acks=all on a real
drive. The delay is in the thread that makes the system call; everything else is unchanged.
"""

from __future__ import annotations

import os
import runpy
import sys
import time


def main() -> None:
    delay_s = float(sys.argv.pop(1)) / 1000
    flush = os.fdatasync

    def slow_fdatasync(handle: int) -> None:
        time.sleep(delay_s)
        flush(handle)

    os.fdatasync = slow_fdatasync  # type: ignore[assignment] # the disk door hands over numbers only
    runpy.run_module("penstock.cli.main", run_name="__main__")


if __name__ == "__main__":
    main()
