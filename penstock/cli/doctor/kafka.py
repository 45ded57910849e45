"""Asks a listener of Kafka's protocol from outside: what it advertises, and whether each such address is that node.

The few messages that this takes are written here by hand, in versions that every node answers.
"""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Iterator
from typing import NamedTuple

from penstock.cli.doctor.machine_checks import FAIL, OK, Finding
from penstock.cli.node import Node

TIMEOUT_S = 5.0
FRAME_BYTES_MAX = 1 << 20
API_VERSIONS, METADATA, SASL_HANDSHAKE, SASL_AUTHENTICATE = 18, 3, 17, 36
_CLIENT = b"penstock-doctor"


class Broker(NamedTuple):
    node_id: int
    host: str
    port: int

    @property
    def address(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Unusable(Exception):
    """A listener does not answer as one. The text says what it does, `remedy` what to change."""

    def __init__(self, text: str, remedy: str) -> None:
        super().__init__(text)
        self.remedy = remedy


def check_kafka(address: str, node: Node) -> Iterator[Finding]:
    """Yields the findings of a listener at HOST:PORT, and of each address that it advertises."""
    host, _, port = address.rpartition(":")
    try:
        brokers = _ask(host.strip("[]"), int(port), node)
    except Unusable as error:
        yield Finding("kafka", FAIL, f"{address}: {error}", error.remedy)
        return
    yield Finding("kafka", OK, f"{address} advertises {', '.join(broker.address for broker in brokers)}")
    for broker in brokers:
        name, remedy = f"node {broker.node_id}", f"correct --kafka-advertised of node {broker.node_id}"
        try:
            others = _ask(broker.host, broker.port, node)
        except Unusable as error:
            text = f"{broker.address}, which it advertises: {error}"
            yield Finding(name, FAIL, text, f"{remedy}, or let this machine reach that address")
            continue
        found = [other for other in others if other.address == broker.address]
        if not found:
            text = f"{broker.address} is another cluster: it advertises {', '.join(one.address for one in others)}"
            yield Finding(name, FAIL, text, remedy)
        elif len(brokers) > 1 and sum(other.address == broker.address for other in brokers) > 1:
            yield Finding(name, FAIL, f"{broker.address} is advertised by several nodes", remedy)
        else:
            yield Finding(name, OK, f"{broker.address} answers")


def _ask(host: str, port: int, node: Node) -> list[Broker]:
    """Returns the brokers that a listener names. Raises Unusable."""
    try:
        connection = socket.create_connection((host, port), TIMEOUT_S)
    except (OSError, ValueError, OverflowError) as error:  # a name that is none, a port above 65,535
        text = f"cannot be reached: {getattr(error, 'strerror', None) or error}"
        raise Unusable(text, "see that the node listens there, and that nothing between blocks it") from None
    with connection:
        if not node.url.startswith("https"):
            return _brokers(connection, node)
        try:
            with ssl.create_default_context(cafile=node.cacert).wrap_socket(
                connection, server_hostname=host
            ) as secured:
                return _brokers(secured, node)
        except ssl.SSLError as error:
            remedy = "the certificate must name the advertised host; give --cacert for a CA of your own"
            raise Unusable(f"no TLS: {error.reason or error}", remedy) from None
        except (OSError, ValueError) as error:
            raise Unusable(
                f"no TLS: {getattr(error, 'strerror', None) or error}", "see that the listener has TLS"
            ) from None


def _brokers(connection: socket.socket, node: Node) -> list[Broker]:
    stage = "ApiVersions"
    try:
        _exchange(connection, API_VERSIONS, 0, b"")
        if node.token:
            stage = "SaslHandshake"
            (error,) = struct.unpack_from(">h", _exchange(connection, SASL_HANDSHAKE, 1, _text("PLAIN")))
            stage = "SaslAuthenticate"
            if error == 0:
                given = f"\0doctor\0{node.token}".encode()
                (error,) = struct.unpack_from(
                    ">h", _exchange(connection, SASL_AUTHENTICATE, 0, struct.pack(">i", len(given)) + given)
                )
                if error:
                    raise Unusable(f"the token is refused, error {error}", "give a --token that the node knows")
        stage = "Metadata"
        return _parse(_exchange(connection, METADATA, 1, struct.pack(">i", 0)))
    except (OSError, struct.error, UnicodeDecodeError, EOFError) as error:
        how = "does not answer" if isinstance(error, TimeoutError) else "closes the connection"
        remedy = {
            "ApiVersions": "no plain listener of Kafka's protocol is there; give an https:// --url for TLS",
            "Metadata": "give a --token if the node has tokens",
        }
        raise Unusable(f"{how} at {stage}", remedy.get(stage, "see the log of the node")) from None


def _exchange(connection: socket.socket, key: int, version: int, body: bytes) -> bytes:
    """Sends one request and returns the body of its response. Raises OSError, EOFError."""
    frame = struct.pack(">hhih", key, version, key, len(_CLIENT)) + _CLIENT + body
    connection.settimeout(TIMEOUT_S)
    connection.sendall(struct.pack(">i", len(frame)) + frame)
    (size,) = struct.unpack(">i", _read(connection, 4))
    if not 4 <= size <= FRAME_BYTES_MAX:
        raise EOFError
    return _read(connection, size)[4:]


def _read(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = connection.recv(size - len(data))
        if not piece:
            raise EOFError
        data += piece
    return data


def _text(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def _parse(data: bytes) -> list[Broker]:
    """Returns the brokers of a Metadata response of version 1. Raises struct.error."""
    (count,) = struct.unpack_from(">i", data)
    brokers, at = [], 4
    for _ in range(count):
        node_id, size = struct.unpack_from(">ih", data, at)
        host = data[at + 6 : at + 6 + size].decode()
        port, rack = struct.unpack_from(">ih", data, at + 6 + size)
        at += 12 + size + max(rack, 0)
        brokers.append(Broker(node_id, host, port))
    return brokers
