"""The leaders of partitions, learned from answers. Requests for a partition go there first.

Pure: the caller passes the time. Only a hint: any node takes any request, and an old leader names the new one. A leader
is a node, or the process of a node that has the partition. The token is sent along, so `leader_addresses` decides which
addresses are used: by default those whose host is one of the given hosts. An address that cannot be reached, as behind
NAT, is not used for a while, which doubles with each failure.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.transport.nodes import parse_address

LEADER_HEADER = "Penstock-Leader"
_LEADERS_MAX = 10_000  # partitions; beyond that the table is cleared and learned again
_ADDRESSES_MAX = 1_000  # that could not be reached
_PAUSE_S = 1.0  # a process that died is back in this time
_PAUSES_MAX = 8  # doublings, to 4 minutes: a request that finds the address unreachable still is late by the attempt


class LeaderCache:
    """Maps the path of a partition's records, which produces and fetches share, to the URL of its leader."""

    def __init__(self, given: Iterable[str], policy: str) -> None:
        self._policy = policy
        self._given = {(address.is_tls, address.host) for address in map(parse_address, given)}
        self._urls: dict[str, str] = {}
        self._unreachable: dict[str, tuple[int, float]] = {}  # failures since the last answer, and the next attempt

    def __repr__(self) -> str:
        return f"<LeaderCache {len(self._urls)}>"

    def url_of(self, path: str, now: float) -> str | None:
        """Returns the address to ask first; None if no leader is known, or if it could not be reached lately."""
        url = self._urls.get(path)
        return None if url in self._unreachable and now < self._unreachable[url][1] else url

    def on_leader_header(self, path: str, url: str) -> bool:
        """Remembers the leader that an answer named, if its address is allowed. True if it is another one."""
        url = url.rstrip("/")
        if self._urls.get(path) == url or not self._is_allowed(url):
            return False
        if len(self._urls) >= _LEADERS_MAX:
            self._urls.clear()
        self._urls[path] = url
        return True

    def on_failure(self, path: str) -> None:
        self._urls.pop(path, None)

    def on_answer(self, url: str) -> None:
        self._unreachable.pop(url, None)

    def on_unreachable(self, path: str, url: str, now: float) -> None:
        """Forgets the leader, and leaves its address out until a pause is over. Failures within a pause count once."""
        self.on_failure(path)
        failures, until = self._unreachable.get(url, (0, 0.0))
        if now < until:
            return
        if len(self._unreachable) >= _ADDRESSES_MAX:
            self._unreachable.clear()
        self._unreachable[url] = (failures + 1, now + _PAUSE_S * 2 ** min(failures, _PAUSES_MAX))

    def _is_allowed(self, url: str) -> bool:
        if self._policy == "off":
            return False
        try:
            address = parse_address(url)
        except ValueError:
            return False
        return self._policy == "any" or (address.is_tls, address.host) in self._given
