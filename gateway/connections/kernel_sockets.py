"""What the kernel knows of TCP connections: which are there, and what the clients of this process have acknowledged.

Linux only (sock_diag); elsewhere nothing is known, and callers must do without. Granian takes whatever it is given and
tells nobody how much its clients have read, and it keeps its sockets to itself.
"""

from __future__ import annotations

import os
import socket
import stat
import struct
from collections.abc import Collection, Iterable
from contextlib import suppress
from ipaddress import IPv6Address, ip_address
from typing import NamedTuple

_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_NLM_F_REQUEST = 1
_NLM_F_DUMP = 0x300
_NLMSG_ERROR = 2
_NLMSG_DONE = 3
_ALIVE = 1 << 1 | 1 << 8  # ESTABLISHED and CLOSE_WAIT: the states in which the HTTP server still has a connection
_LISTEN = 10
_CLIENT_AT = 4 + 2  # the port, in inet_diag_msg; its address is 20 bytes further on
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
        shut_down_sockets({connection.inode for connection in found if connection is not None})


def shut_down_sockets(inodes: Collection[int]) -> None:
    """End connections of this process. Looks at every file once, some microseconds each; any thread may."""
    for inode, handle in own_sockets().items() if inodes else ():
        if inode in inodes:
            with suppress(OSError), socket.socket(fileno=os.dup(handle)) as connection:
                if os.fstat(connection.fileno()).st_ino == inode:  # not another one's by now
                    connection.shutdown(socket.SHUT_RDWR)


def own_sockets() -> dict[int, int]:
    """The file descriptors of this process's sockets, by inode. Blocks."""
    found = {}
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # closed since it was listed
            status = os.fstat(int(name))
            if stat.S_ISSOCK(status.st_mode):
                found[status.st_ino] = int(name)
    return found


def connections_to(port: int) -> dict[int, str] | None:
    """All connections to a local port, of any process, by inode, as the `address:port` of their clients.

    None where the kernel does not tell. Blocks for about a millisecond per thousand; any thread may ask.
    """
    found: dict[int, str] = {}
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, _NETLINK_SOCK_DIAG) as netlink:
            netlink.settimeout(1.0)
            for family in (socket.AF_INET, socket.AF_INET6):
                asked = _ASKED.pack(family, socket.IPPROTO_TCP, 0, 0, _ALIVE) + struct.pack(">HH", port, 0)
                asked += bytes(32) + _ANY_COOKIE
                flags = _NLM_F_REQUEST | _NLM_F_DUMP
                netlink.send(_HEAD.pack(_HEAD.size + len(asked), _SOCK_DIAG_BY_FAMILY, flags, 1, 0) + asked)
                while _dumped(netlink.recv(_ANSWER_MAX), found):
                    pass
    except (OSError, AttributeError):
        return None
    return found


def plain_address(client: str) -> str:
    """One way to write an `address:port`, whoever wrote it: IPv4 over IPv6 is IPv4, and no zones."""
    if not client.startswith("["):
        return client
    host, _, port = client.rpartition(":")
    address = IPv6Address(host.strip("[]").partition("%")[0])
    return f"{address.ipv4_mapped}:{port}" if address.ipv4_mapped else f"[{address}]:{port}"


def _dumped(answer: bytes, found: dict[int, str]) -> bool:
    """Take in a part of a dump. False at its end; raises OSError if there is none."""
    position = 0
    while position < len(answer):
        length, kind, *_ = _HEAD.unpack_from(answer, position)
        if kind == _NLMSG_DONE:
            return False
        if kind == _NLMSG_ERROR:
            raise OSError("the kernel does not tell of its sockets")
        body = position + _HEAD.size
        (port,) = struct.unpack_from(">H", answer, body + _CLIENT_AT)
        (inode,) = struct.unpack_from("=I", answer, body + _INODE_AT)
        address = answer[body + _CLIENT_AT + 18 : body + _CLIENT_AT + 34]
        if not inode:
            pass  # not accepted yet: nobody's
        elif answer[body] == socket.AF_INET:
            found[inode] = f"{socket.inet_ntop(socket.AF_INET, address[:4])}:{port}"
        else:
            found[inode] = plain_address(f"[{socket.inet_ntop(socket.AF_INET6, address)}]:{port}")
        position += (length + 3) & ~3
    return True


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
    if answer[_HEAD.size + 1] == _LISTEN or not inode:  # for one that has ended the kernel tells of the listener
        return None
    position = _HEAD.size + _ANSWER_BYTES
    while position < length:
        size, name = struct.unpack_from("=HH", answer, position)
        if name == _INET_DIAG_INFO:
            (acknowledged,) = struct.unpack_from("=Q", answer, position + 4 + _BYTES_ACKED_AT)
            return Connection(acknowledged, inode)
        position += (size + 3) & ~3
    return None
