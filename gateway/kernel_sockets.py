"""What the kernel knows of a TCP connection of this process, by its two addresses: what its client has acknowledged.

Linux only (sock_diag); elsewhere nothing is known, and callers must do without. Granian takes whatever it is given and
tells nobody how much its clients have read, and it keeps its sockets to itself.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterable
from contextlib import suppress
from ipaddress import ip_address
from typing import NamedTuple

_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_NLM_F_REQUEST = 1
_NLMSG_ERROR = 2
_INET_DIAG_INFO = 2
_HEAD = struct.Struct("=IHHII")  # length, type, flags, sequence, port
_ASKED = struct.Struct("=BBBBI")  # family, protocol, extensions, padding, states
_ANSWER_BYTES = 72  # inet_diag_msg: 4 of state, 48 of identity, five words
_INODE_AT = 68
_BYTES_ACKED_AT = 120  # in tcp_info, since Linux 4.1
_ANY_COOKIE = struct.pack("=III", 0, 0xFFFFFFFF, 0xFFFFFFFF)  # after the interface
_ANSWER_MAX = 65_536


class Connection(NamedTuple):
    """As the kernel sees it now."""

    acknowledged_bytes: int
    inode: int


class KernelSockets:
    """Asks the kernel. Blocks for some 25 microseconds a question."""

    def __init__(self) -> None:
        self._netlink: socket.socket | None = None
        with suppress(OSError, AttributeError):
            self._netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, _NETLINK_SOCK_DIAG)
            self._netlink.settimeout(0.1)  # it answers at once, or something is wrong

    @property
    def is_known(self) -> bool:
        """Whether this kernel tells at all."""
        return self._netlink is not None

    def find(self, server: str, client: str) -> Connection | None:
        """The connection between two `address:port`; None when there is none any more, or nothing is known."""
        if self._netlink is None:
            return None
        try:
            family, ends = _identity(server, client)
            asked = _ASKED.pack(family, socket.IPPROTO_TCP, 1 << (_INET_DIAG_INFO - 1), 0, 0xFFFFFFFF) + ends
            head = _HEAD.pack(_HEAD.size + len(asked), _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, 1, 0)
            self._netlink.send(head + asked)
            return _connection(self._netlink.recv(_ANSWER_MAX))
        except (OSError, ValueError, struct.error):
            return None

    def shut_down(self, ends: Iterable[tuple[str, str]]) -> None:
        """End connections whose clients do not read: what is kept for them is then let go. Looks at every file once."""
        found = [self.find(server, client) for server, client in ends]
        wanted = {f"socket:[{connection.inode}]" for connection in found if connection is not None}
        if not wanted:
            return
        for name in os.listdir("/proc/self/fd"):
            with suppress(OSError):
                if os.readlink(f"/proc/self/fd/{name}") in wanted:
                    with socket.socket(fileno=os.dup(int(name))) as connection:
                        connection.shutdown(socket.SHUT_RDWR)


def _identity(server: str, client: str) -> tuple[int, bytes]:
    ends = [text.rpartition(":") for text in (server, client)]
    addresses = [ip_address(host.strip("[]").partition("%")[0]) for host, _, _ in ends]
    family = socket.AF_INET if all(address.version == 4 for address in addresses) else socket.AF_INET6
    ports = struct.pack(">HH", *(int(port) for _, _, port in ends))
    return family, ports + b"".join(address.packed.ljust(16, b"\0") for address in addresses) + _ANY_COOKIE


def _connection(answer: bytes) -> Connection | None:
    length, kind, *_ = _HEAD.unpack_from(answer)
    if kind == _NLMSG_ERROR:
        return None
    (inode,) = struct.unpack_from("=I", answer, _HEAD.size + _INODE_AT)
    position = _HEAD.size + _ANSWER_BYTES
    while position < length:
        size, name = struct.unpack_from("=HH", answer, position)
        if name == _INET_DIAG_INFO:
            (acknowledged,) = struct.unpack_from("=Q", answer, position + 4 + _BYTES_ACKED_AT)
            return Connection(acknowledged, inode)
        position += (size + 3) & ~3
    return None
