"""`python -m loadtests.peers.slow_flush MS serve ...`: penstock on a disk whose fdatasync takes so much longer.

Disks of virtual machines often answer a flush without flushing, so that what acks=all costs on a real drive cannot be
seen there. The delay lies around the system call, in the thread that makes it; everything else is the real program.
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
