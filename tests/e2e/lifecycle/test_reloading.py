"""All processes of a running node apply changed tokens and certificates; they ignore invalid ones."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import socket
import ssl
import subprocess
import threading
import time
from pathlib import Path

import psutil
import pytest

from tests.e2e.calls import send
from tests.e2e.node_process import NodeProcess, refused_start, running_process
from tests.tokens import add_token
from tests.waiting import wait_until

pytestmark = pytest.mark.e2e

WAIT_S = 60  # for work that takes a fraction of a second on an idle machine
NEVER_MS = 86_400_000


def call(url: str, token: str, method: str = "GET", body: object = None) -> tuple[int, bytes]:
    status, _, answer = send(url, method, body, token)
    return status, answer


def direct_urls(node: NodeProcess, token: str) -> list[str]:
    """Return a URL for each serving process."""
    status, body = call(f"{node.url}/v1/topics/t", token, "PUT", b'{"partitions":8}')
    assert status in (200, 201), body
    return sorted({part["leader_url"] for part in json.loads(body)["partitions"]})


def statuses(urls: list[str], token: str) -> set[int]:
    return {call(f"{url}/v1/topics", token)[0] for url in urls}


def test_a_changed_tokens_file_counts_in_every_process_and_a_broken_one_changes_nothing(tmp_path):
    path = tmp_path / "tokens.toml"
    first = add_token(path, "first", admin=[""])
    with running_process(tmp_path, tokens_file=path, reload_check_ms=100, shards=2) as node:
        urls = direct_urls(node, first)
        assert len(urls) == 2
        second = add_token(path, "second")
        wait_until(lambda: statuses(urls, second) == {200})
        good = path.read_text()
        path.write_text(good + "[[tokens]]\nsha256 = 'broken")
        wait_until(lambda: "changed files rejected" in node.errors)
        assert statuses(urls, second) == {200}
        kill_a_shard(node)
        wait_until(lambda: answered(urls, second))
        path.unlink()
        wait_until(lambda: node.errors.count("changed files rejected") >= 2)
        assert statuses(urls, first) == {200}
        path.write_text(good.replace(hashlib.sha256(second.encode()).hexdigest(), "0" * 64))
        wait_until(lambda: statuses(urls, second) == {401})
        assert statuses(urls, first) == {200}
        assert node.stop() == 0


@pytest.mark.parametrize("shards", [0, 2], ids=["one process", "two shards"])
def test_sighup_takes_a_change_over_at_once(tmp_path, shards):
    path = tmp_path / "tokens.toml"
    first = add_token(path, "first", admin=[""])
    with running_process(tmp_path, tokens_file=path, reload_check_ms=NEVER_MS, shards=shards) as node:
        urls = direct_urls(node, first)
        second = add_token(path, "second")
        assert statuses(urls, second) == {401}
        os.kill(node.pid, signal.SIGHUP)
        wait_until(lambda: statuses(urls, second) == {200})
        assert node.stop() == 0


@pytest.mark.parametrize("shards", [0, 2], ids=["one process", "two shards"])
def test_sighup_ends_no_node_that_has_nothing_to_reload(tmp_path, shards):
    """A script that reloads all services ended it, or its supervisor."""
    with running_process(tmp_path, shards=shards) as node:
        os.kill(node.pid, signal.SIGHUP)
        assert call(f"{node.url}/readyz", "")[0] == 200
        assert node.stop() == 0


@pytest.mark.parametrize("shards", [0, 1])
def test_a_start_with_a_tokens_file_that_cannot_be_used_is_refused_in_one_line(tmp_path, shards):
    path = tmp_path / "tokens.toml"
    for text, says in ((None, "No such file"), ("tokens = 'mine'", "tokens"), ("= 1", "line 1")):
        if text is not None:
            path.write_text(text)
        code, out, err = refused_start(port=0, data_dir=tmp_path / "data", tokens_file=path, shards=shards)
        assert (code, out) == (1, "")
        (line,) = err.splitlines()
        assert line.startswith("penstock: ")
        assert says in line
        assert "--tokens-file" in line
    assert not (tmp_path / "data").exists()


def shards_of(node: NodeProcess) -> list[psutil.Process]:
    children = psutil.Process(node.pid).children()
    return [child for child in children if is_shard(child)]


def is_shard(process: psutil.Process) -> bool:
    try:
        return "node.processes.shard_process" in process.cmdline()
    except psutil.Error:  # the process has just ended
        return False


def kill_a_shard(node: NodeProcess) -> None:
    shard = shards_of(node)[0]
    shard.kill()
    wait_until(lambda: not psutil.pid_exists(shard.pid))


def answered(urls: list[str], token: str) -> bool:
    try:
        return statuses(urls, token) == {200}
    except OSError:  # its port has no listener yet
        return False


def make_certificate(directory: Path, name: str) -> tuple[Path, Path]:
    directory.mkdir(parents=True, exist_ok=True)
    cert, key = directory / f"{name}.crt", directory / f"{name}.key"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    names = ["-days", "2", "-subj", f"/CN={name}", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    files = ["-keyout", str(key), "-out", str(cert)]
    subprocess.run([*command, *names, *files], check=True, capture_output=True, timeout=WAIT_S)
    return cert, key


def install(source: tuple[Path, Path], cert: Path, key: Path) -> None:
    """Replace each file by a rename, as certificate tools do."""
    for wanted, place in zip(source, (cert, key), strict=True):
        fresh = place.with_suffix(".new")
        fresh.write_bytes(wanted.read_bytes())
        fresh.replace(place)


def connected(port: int) -> ssl.SSLSocket:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context.wrap_socket(socket.create_connection(("127.0.0.1", port), WAIT_S), server_hostname="localhost")


def certificates_seen(port: int, count: int = 8) -> set[bytes | None]:
    """Return the certificates of this many new connections: the listeners share the port, and any of them may
    accept.
    """
    seen = set()
    for _ in range(count):
        with connected(port) as connection:
            seen.add(connection.getpeercert(binary_form=True))
    return seen


def sees_only(cert: Path, port: int, count: int) -> bool:
    """True if only this certificate is served. A handshake may be cut if its listener closes at that moment."""
    try:
        return certificates_seen(port, count) == {der(cert)}
    except OSError:
        return False


def der(cert: Path) -> bytes:
    return ssl.PEM_cert_to_DER_cert(cert.read_text())


def all_answer(node: NodeProcess, count: int) -> bool:
    """True if a topic with partitions in all shards can be described, over this many connections."""
    try:
        for _ in range(count):
            with connected(node.port) as connection:
                get(connection, "/v1/topics/all", '{"partitions":8}', "PUT")
                if not connection.recv(65536).startswith(b"HTTP/1.1 20"):
                    return False
    except OSError:
        return False
    return True


def get(connection: ssl.SSLSocket, target: str, body: str = "", method: str = "GET") -> None:
    head = f"{method} {target} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
    connection.sendall((head + body).encode())


def test_new_connections_get_the_new_certificate_and_open_ones_finish(tmp_path):
    first, second = make_certificate(tmp_path / "c", "first"), make_certificate(tmp_path / "c", "second")
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    install(first, cert, key)
    settings = {"tls_cert": cert, "tls_key": key, "shards": 2}
    with running_process(tmp_path, reload_check_ms=100, **settings) as node:
        assert certificates_seen(node.port) == {der(first[0])}
        with connected(node.port) as waiting, connected(node.port) as made:
            get(made, "/v1/topics/t", method="PUT")
            assert made.recv(65536).startswith(b"HTTP/1.1 201 ")
            get(waiting, "/v1/topics/t/partitions/0/records?from=latest&wait_ms=30000")
            cert.write_bytes(second[0].read_bytes())  # does not match the key: nothing may change
            wait_until(lambda: "changed files rejected" in node.errors)
            assert certificates_seen(node.port) == {der(first[0])}
            install(second, cert, key)
            # One shard may still have the old one: so few connections that all meet the other are improbable.
            wait_until(lambda: sees_only(second[0], node.port, 20))
            assert certificates_seen(node.port, 12) == {der(second[0])}
            with connected(node.port) as fresh:
                get(fresh, "/v1/topics/t/records", "x", "POST")
                assert fresh.recv(65536).startswith(b"HTTP/1.1 200 ")
            assert waiting.recv(65536).startswith(b"HTTP/1.1 200 "), "the long poll of an old connection is answered"
        assert node.stop() == 0


@pytest.mark.long
def test_a_shard_that_cannot_come_back_is_tried_again_until_it_can(tmp_path):
    """The certificate is unreadable when the shard restarts; the supervisor must keep retrying."""
    pair = make_certificate(tmp_path / "c", "first")
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    install(pair, cert, key)
    with running_process(tmp_path, reload_check_ms=NEVER_MS, tls_cert=cert, tls_key=key, shards=2) as node:
        cert.write_text("broken")
        kill_a_shard(node)
        wait_until(lambda: node.errors.count("a process died") >= 2)
        install(pair, cert, key)
        wait_until(lambda: len(shards_of(node)) == 2 and all_answer(node, 8))
        assert node.stop() == 0


def test_no_connection_is_refused_while_certificates_change(tmp_path):
    pairs = [make_certificate(tmp_path / "c", name) for name in ("first", "second")]
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    install(pairs[0], cert, key)
    refused: list[OSError] = []
    done = threading.Event()
    with running_process(tmp_path, reload_check_ms=NEVER_MS, tls_cert=cert, tls_key=key) as node:

        def knock() -> None:
            while not done.is_set():
                time.sleep(0.005)
                try:
                    connected(node.port).close()
                except ConnectionRefusedError as error:
                    refused.append(error)
                except OSError:
                    pass  # the listener closed before the handshake was done; the client may retry

        knocking = threading.Thread(target=knock)
        knocking.start()
        try:
            for turn in range(1, 4):
                install(pairs[turn % 2], cert, key)
                os.kill(node.pid, signal.SIGHUP)
                wait_until(lambda: sees_only(cert, node.port, 3))
        finally:
            done.set()
            knocking.join()
        assert refused == []
        assert node.stop() == 0
