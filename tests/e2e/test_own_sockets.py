"""What is done to listening sockets that are not ours to close."""

from __future__ import annotations

import socket

import pytest

from gateway.connections.own_sockets import let_nobody_in, own_listeners


def test_who_is_connected_is_served_and_nobody_new_is_let_in():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        assert len(own_listeners(port)) == 1
        with socket.create_connection(("127.0.0.1", port), 5) as first:
            let_nobody_in(port)
            with pytest.raises(TimeoutError):
                socket.create_connection(("127.0.0.1", port), 0.2)
            first.sendall(b"still here")
            accepted, _ = listener.accept()
            with accepted:
                accepted.settimeout(5)
                assert accepted.recv(100) == b"still here"
                accepted.sendall(b"yes")
                assert first.recv(100) == b"yes"
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), 5)
