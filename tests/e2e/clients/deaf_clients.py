"""Clients that send requests and do not read, over both protocols, and the memory of the process meanwhile."""

from __future__ import annotations

import re
import socket
from pathlib import Path

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import ResponseReceived
from h2.settings import SettingCodes

MIB = 2**20


def resident_mib(pid: int) -> float:
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) / 1024


def begin_peak(pid: int) -> None:
    """Reset the peak that `peak_mib` returns."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def peak_mib(pid: int) -> float:
    """Return the kernel's maximum of resident memory since `begin_peak`."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) / 1024


def open_files(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def http1_request(port: int, head: bytes, receive_bytes: int = 4096) -> socket.socket:
    """Send requests, with a small window."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    client.connect(("127.0.0.1", port))
    client.sendall(head)
    return client


def http2_requests(
    port: int, path: str, accept: str, streams: int, window_bytes: int = 1
) -> tuple[socket.socket, H2Connection]:
    """Send requests on several streams whose windows stay nearly closed: behind a closed one only a piece is read."""
    connection = H2Connection(H2Configuration(client_side=True, header_encoding="utf-8"))
    connection.initiate_connection()
    connection.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: window_bytes})
    fields = [(":method", "GET"), (":path", path), (":scheme", "http"), (":authority", "127.0.0.1"), ("accept", accept)]
    for _ in range(streams):
        connection.send_headers(connection.get_next_available_stream_id(), fields, end_stream=True)
    client = socket.create_connection(("127.0.0.1", port))
    client.sendall(connection.data_to_send())
    return client, connection


def statuses(client: socket.socket, connection: H2Connection, count: int) -> list[str]:
    """Return the statuses of this many answers on a connection."""
    found: list[str] = []
    client.settimeout(60)
    while len(found) < count:
        for event in connection.receive_data(client.recv(65536)):
            if isinstance(event, ResponseReceived):
                found += [str(value) for name, value in event.headers if name == ":status"]
        client.sendall(connection.data_to_send())
    return found


def is_hung_up_on(client: socket.socket, within_s: float = 60) -> bool:
    """Read what has arrived, until the node closes the connection."""
    client.settimeout(within_s)
    try:
        while client.recv(2**20):
            pass
    except TimeoutError:
        return False
    except ConnectionResetError:
        pass
    return True
