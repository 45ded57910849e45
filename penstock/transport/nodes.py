"""The addresses of a cluster's nodes, and the order to ask them in: the one that answered last, until it fails.

Pure: the caller passes the time and the events. Every node of a cluster takes every request, so none is preferred and
the client stays with its node. The list has only the addresses that the caller gave: neither a redirect nor an answer
adds to it (penstock/transport/leaders.py keeps the leaders).
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterable, Sequence
from typing import NamedTuple
from urllib.parse import urlsplit

DEFAULT_URL = "http://127.0.0.1:8080"
_IPV6 = "an IPv6 address needs brackets: http://[::1]:8080"


class Address(NamedTuple):
    is_tls: bool
    host: str
    port: int
    base_path: str  # without a slash at its end; empty unless the node is behind a proxy's path

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.is_tls else 'http'}://{host}:{self.port}{self.base_path}"


def parse_address(url: str) -> Address:
    """Parses the address of a node. Raises ValueError with a text for its author."""
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise ValueError(f"not an address: {url!r} ({error}); {_IPV6}") from None
    if parts.scheme not in ("http", "https") or not host:
        raise ValueError(f"not an http or https address: {url!r}; {_IPV6}")
    if parts.query or parts.fragment or parts.username is not None:
        raise ValueError(f"an address is scheme, host, port and path only: {url!r}")
    if "%" in host:
        raise ValueError(f"the host of an address has no zone: {url!r}")
    is_tls = parts.scheme == "https"
    return Address(is_tls, host, port or (443 if is_tls else 80), parts.path.rstrip("/"))


class Node:
    """Holds one address and its failures. Ready from `down_until` on: loop time, in seconds."""

    __slots__ = ("down_until", "failures", "url")

    def __init__(self, url: str) -> None:
        self.url = url
        self.failures = 0  # since its last answer
        self.down_until = 0.0

    def __repr__(self) -> str:
        return f"<Node {self.url}{f' failed {self.failures} times' if self.failures else ''}>"


class NodeList:
    """Orders the nodes to try.
    Invariant: order() returns every node once, so each is tried before a request fails.
    """

    def __init__(self, urls: Sequence[str], backoff_ms: int, backoff_ms_max: int) -> None:
        assert urls
        self._nodes = [Node(url) for url in urls]
        self._current = self._nodes[0]
        self._backoff_ms = backoff_ms
        self._backoff_ms_max = backoff_ms_max
        self.changes = 0

    def __repr__(self) -> str:
        return f"<NodeList {self._nodes} at {self._current.url}>"

    def __len__(self) -> int:
        return len(self._nodes)

    @property
    def current_url(self) -> str:
        return self._current.url

    def order(self, now: float) -> list[Node]:
        """Returns the nodes in the order to try them: from the current one on, ready ones first."""
        start = self._nodes.index(self._current)
        turned = self._nodes[start:] + self._nodes[:start]
        return sorted(turned, key=lambda node: max(node.down_until, now))

    def on_answer(self, node: Node, now: float) -> None:
        """Makes this the current node, unless it is still in its backoff: a late answer does not end that."""
        if now < node.down_until:
            return
        node.failures = 0
        if node is not self._current:
            self._current = node
            self.changes += 1

    def on_failure(self, node: Node, now: float) -> None:
        """Starts a backoff for the node, doubled with every failure. Failures within a backoff count once."""
        if now < node.down_until:
            return
        backoff_ms = min(self._backoff_ms << min(node.failures, 20), self._backoff_ms_max)
        node.failures += 1
        node.down_until = now + backoff_ms / 1000

    def leave(self, node: Node, now: float) -> None:
        """Starts a backoff and makes the next node current at once: this one stops, or failed within a request."""
        self.on_failure(node, now)
        if node is self._current and len(self._nodes) > 1:
            self._current = self._nodes[(self._nodes.index(node) + 1) % len(self._nodes)]
            self.changes += 1


def parse_addresses(given: str | Iterable[str]) -> list[str]:
    """Returns addresses, given singly or joined with commas, in normal form without duplicates. Raises ValueError."""
    texts: list[str] = [given] if isinstance(given, str) or not isinstance(given, Iterable) else list(given)
    for text in texts:
        if not isinstance(text, str):
            raise ValueError(f"an address is a text such as {DEFAULT_URL!r}, not {text!r}")
    addresses = [str(parse_address(url.strip())) for text in texts for url in text.split(",")]
    if not addresses:
        raise ValueError("a client needs the address of at least one node")
    return list(dict.fromkeys(addresses))


def bearer(token: str) -> str:
    """Returns the value of Authorization. Raises ValueError, which hides the token, if no header can carry it."""
    for position, character in enumerate(token):
        if not "!" <= character <= "~":
            raise ValueError(
                f"the token has {character!r} at position {position}; a token is visible ASCII without spaces"
            )
    return f"Bearer {token}"


def reason_of(error: BaseException) -> str:
    """Returns why a connection failed, in a few words of the system or of TLS."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message}; cacert names the CA to trust"
    if isinstance(error, ssl.SSLError):
        if error.reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"):
            return "it does not answer in TLS; is it an http:// address?"
        return error.reason.replace("_", " ").lower() if error.reason else str(error)
    number = getattr(error, "errno", None)
    if number is not None and number > 0:
        text = os.strerror(number)
    else:  # a number below 0 is of getaddrinfo, which has texts of its own
        text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return text[:1].lower() + text[1:]
