"""The addresses of a cluster's nodes, and which of them to ask: the one that answered last, until it does not.

Pure: it is told the time and what happened. Every node of a cluster takes every request, so there is no best one, and
a client stays where it is. Nothing but the addresses that the caller gave is ever in this list: neither a redirect nor
what a node says of others adds to it (leaders are apart, in penstock/transport/leaders.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple
from urllib.parse import urlsplit

DEFAULT_URL = "http://127.0.0.1:8080"
_IPV6 = "an IPv6 address stands in brackets: http://[::1]:8080"


class Address(NamedTuple):
    is_tls: bool
    host: str
    port: int
    base_path: str  # without a slash at its end; empty unless the node sits behind a path of a proxy

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.is_tls else 'http'}://{host}:{self.port}{self.base_path}"


def parse_address(url: str) -> Address:
    """Raises ValueError, with a text for the person who wrote the address."""
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
    """One address and how it has been doing. Ready from `down_until` on, loop time in seconds."""

    __slots__ = ("down_until", "failures", "url")

    def __init__(self, url: str) -> None:
        self.url = url
        self.failures = 0  # since its last answer
        self.down_until = 0.0

    def __repr__(self) -> str:
        return f"<Node {self.url}{f' failed {self.failures} times' if self.failures else ''}>"


class NodeList:
    """Invariant: order() gives every node once, so a request is refused only when each of them refused it."""

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
        """The order in which to try: the current node and those after it that are ready, then the one ready soonest."""
        start = self._nodes.index(self._current)
        turned = self._nodes[start:] + self._nodes[:start]
        return sorted(turned, key=lambda node: max(node.down_until, now))

    def on_answer(self, node: Node, now: float) -> None:
        """A late answer of a node that was left does not bring it back before its time."""
        if now < node.down_until:
            return
        node.failures = 0
        if node is not self._current:
            self._current = node
            self.changes += 1

    def on_failure(self, node: Node, now: float) -> None:
        """It is left for a while that doubles with every failure, counting once what fails together."""
        if now < node.down_until:
            return
        backoff_ms = min(self._backoff_ms << min(node.failures, 20), self._backoff_ms_max)
        node.failures += 1
        node.down_until = now + backoff_ms / 1000

    def leave(self, node: Node, now: float) -> None:
        """The next try is another's, however long the caller pauses: it said so itself, or failed in the middle."""
        self.on_failure(node, now)
        if node is self._current and len(self._nodes) > 1:
            self._current = self._nodes[(self._nodes.index(node) + 1) % len(self._nodes)]
            self.changes += 1


def parse_addresses(given: str | Iterable[str]) -> list[str]:
    """One address or several, also with commas between, in their normal form, each once. Raises ValueError."""
    texts = [given] if isinstance(given, str) else given
    addresses = [str(parse_address(url.strip())) for text in texts for url in text.split(",")]
    if not addresses:
        raise ValueError("a client needs the address of at least one node")
    return list(dict.fromkeys(addresses))
