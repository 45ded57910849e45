"""Reports to the service manager how far a start or stop is: one datagram of systemd's notification protocol.

No-op without NOTIFY_SOCKET, that is without `Type=notify`. Source: sd_notify(3).
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress

READY, STOPPING = "READY=1\nSTATUS=serving", "STOPPING=1\nSTATUS=finishing requests and flushing"


def notify_manager(state: str) -> None:
    """Send a state. The node continues without a manager that listens."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as manager, suppress(OSError):
        manager.sendto(state.encode(), f"\0{address[1:]}" if address.startswith("@") else address)
