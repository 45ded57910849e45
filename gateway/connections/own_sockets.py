"""Which sockets of this process listen on a port, as the kernel has it: the one proof that a new listener is open.

To connect proves nothing: other listeners, of this process and of other shards, share the port. The sockets are
Granian's, which opens and closes them; nothing is done to them here but to keep strangers off before the end.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import struct

PROC_TCP = ("/proc/self/net/tcp", "/proc/self/net/tcp6")
PROC_HANDLES = "/proc/self/fd"
LISTEN = "0A"  # the state, in the fourth column
SO_ATTACH_FILTER = 26  # Linux; not among the names of `socket`
# Classic BPF over a TCP header: load the flags; if SYN is set, drop the packet; else take all of it.
STEPS = ((0x30, 0, 0, 13), (0x45, 0, 1, 2), (0x06, 0, 0, 0), (0x06, 0, 0, 0xFFFFFFFF))
DROP_SYN = b"".join(struct.pack("=HBBI", *step) for step in STEPS)


def own_listeners(port: int) -> set[str]:
    """The sockets of this process that listen on a port, by inode. Blocks."""
    listening = set()
    for table in PROC_TCP:
        with contextlib.suppress(OSError), open(table) as rows:
            for row in rows:
                fields = row.split(maxsplit=10)
                if fields[3] == LISTEN and fields[1].endswith(f":{port:04X}"):
                    listening.add(f"socket:[{fields[9]}]")
    return listening & _own_sockets().keys()


def let_nobody_in(port: int) -> None:
    """Whoever begins to connect now hears nothing, and of the end once the port is closed. Blocks.

    A listener that is closed resets those whom it has let in and not been asked by: they could not know whether
    their request was done. So nobody should be there when it is.
    """
    handles, program = _own_sockets(), ctypes.create_string_buffer(DROP_SYN)
    filter_ = struct.pack("@HP", len(DROP_SYN) // 8, ctypes.addressof(program))
    for name in own_listeners(port):
        with contextlib.suppress(OSError):  # of a kernel that cannot: then a few are reset
            duplicate = socket.socket(fileno=os.dup(handles[name]))
            with duplicate:
                duplicate.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, filter_)


def _own_sockets() -> dict[str, int]:
    """Handles by what they are."""
    mine = {}
    for handle in os.listdir(PROC_HANDLES):
        with contextlib.suppress(OSError):  # gone since it was listed
            mine[os.readlink(f"{PROC_HANDLES}/{handle}")] = int(handle)
    return mine
