"""Which sockets of this process listen on a port, as the kernel has it: the one proof that a new listener is open.

To connect proves nothing: other listeners, of this process and of other shards, share the port.
"""

from __future__ import annotations

import contextlib
import os

PROC_TCP = ("/proc/self/net/tcp", "/proc/self/net/tcp6")
PROC_HANDLES = "/proc/self/fd"
LISTEN = "0A"  # the state, in the fourth column


def own_listeners(port: int) -> set[str]:
    """The sockets of this process that listen on a port, by inode. Blocks."""
    listening = set()
    for table in PROC_TCP:
        with contextlib.suppress(OSError), open(table) as rows:
            for row in rows:
                fields = row.split(maxsplit=10)
                if fields[3] == LISTEN and fields[1].endswith(f":{port:04X}"):
                    listening.add(f"socket:[{fields[9]}]")
    mine = set()
    for handle in os.listdir(PROC_HANDLES):
        with contextlib.suppress(OSError):  # gone since it was listed
            mine.add(os.readlink(f"{PROC_HANDLES}/{handle}"))
    return listening & mine
