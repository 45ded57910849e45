"""The leaders of partitions, learned from answers. Requests for a partition go there first.

Pure. Only a hint: any node takes any request, and an old leader names the new one. The token is sent along, so
`leader_addresses` decides which addresses are used: by default those whose host is one of the given hosts.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.transport.nodes import parse_address

LEADER_HEADER = "Penstock-Leader"
_LEADERS_MAX = 10_000  # partitions; beyond that the table is cleared and learned again


class LeaderCache:
    """Maps the path of a partition's records, which produces and fetches share, to the URL of its leader."""

    def __init__(self, given: Iterable[str], policy: str) -> None:
        self._policy = policy
        self._given = {(address.is_tls, address.host) for address in map(parse_address, given)}
        self._urls: dict[str, str] = {}

    def __repr__(self) -> str:
        return f"<LeaderCache {len(self._urls)}>"

    def url_of(self, path: str) -> str | None:
        return self._urls.get(path)

    def on_leader_header(self, path: str, url: str) -> None:
        """Remember the leader that an answer named, if its address is allowed."""
        if not self._is_allowed(url):
            return
        if len(self._urls) >= _LEADERS_MAX:
            self._urls.clear()
        self._urls[path] = url.rstrip("/")

    def on_failure(self, path: str) -> None:
        self._urls.pop(path, None)

    def _is_allowed(self, url: str) -> bool:
        if self._policy == "off":
            return False
        try:
            address = parse_address(url)
        except ValueError:
            return False
        return self._policy == "any" or (address.is_tls, address.host) in self._given
