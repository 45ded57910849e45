"""Lines of statsd in UDP packets, and the names that statsd takes. Nothing says whether a packet arrives."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Sequence
from typing import NamedTuple

DATAGRAM_BYTES = 1432  # what an Ethernet frame has room for, less the headers of IPv6, UDP and a tunnel


def plain_name(value: str) -> str:
    """Returns a value as one part of a statsd name."""
    return (
        "".join(letter if letter.isascii() and (letter.isalnum() or letter in "_-") else "_" for letter in value) or "_"
    )


def datagrams(lines: Sequence[str], bytes_max: int = DATAGRAM_BYTES) -> list[bytes]:
    """Groups lines into packets of at most `bytes_max`, except for a longer line."""
    packets: list[bytes] = []
    for line in lines:
        data = line.encode()
        if packets and len(packets[-1]) + 1 + len(data) <= bytes_max:
            packets[-1] += b"\n" + data
        else:
            packets.append(data)
    return packets


class StatsdTarget(NamedTuple):
    """A statsd whose name was looked up."""

    family: int
    address: tuple[str, int] | tuple[str, int, int, int] | tuple[int, bytes]

    def send(self, packets: Iterable[bytes]) -> None:
        """Sends packets. Raises OSError."""
        with socket.socket(self.family, socket.SOCK_DGRAM) as sender:
            for packet in packets:
                sender.sendto(packet, self.address)


def look_up(host: str, port: int) -> StatsdTarget:
    """Looks up a name, which may take seconds. Raises OSError, and UnicodeError for a text such as a..b."""
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    return StatsdTarget(family, address)
