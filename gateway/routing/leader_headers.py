"""The headers about leaders (`Penstock-Forward`, `Penstock-Leader`, `Penstock-Leader-Epoch`) and about racks.

Rejects a request that must not be passed on but would have to be, and names the leader; forwards nothing itself.
"""

from __future__ import annotations

from collections.abc import Iterable

from gateway.http.problems import Problem
from gateway.http.request import Request
from gateway.routing.peers import Peers
from gateway.routing.router import Router
from gateway.wire.exchange import Carrier

FORWARD = "Penstock-Forward"
LEADER = "Penstock-Leader"
LEADER_EPOCH = "Penstock-Leader-Epoch"
RACK = "Penstock-Rack"
RACK_CHARS_MAX = 200


def check_forward(request: Request) -> None:
    """Checks `Penstock-Forward`. Raises Problem invalid_header."""
    if request.headers.get(FORWARD, "never") != "never":
        raise Problem("invalid_header", f"{FORWARD} takes the word never")


async def check_leadership(request: Request, router: Router, partitions: Iterable[tuple[str, int]]) -> None:
    """Checks that this process answers for all partitions if the request has `Penstock-Forward: never`.

    Raises Problem misdirected if it does not.
    """
    if FORWARD not in request.headers or not may_be_led(request.connection):
        return
    for topic_name, number in partitions:
        topic_id = router.partitions.topic_id(topic_name, number)
        if not router.peers.is_owned_here(topic_id, number):
            url = router.peers.leader_url(topic_id, number)
            assert url is not None, topic_name
            text = f"partition {number} of topic {topic_name!r} is led at {url}, and the request must not be passed on"
            raise Problem("misdirected", text, headers={LEADER: url}, leader_url=url)


def may_be_led(connection: Carrier | None) -> bool:
    """Returns whether the client of a connection may be led to other processes.

    The URLs of leaders are those of the default listener, which may take other credentials than another one.
    """
    return connection is None or connection.listener is None or connection.listener.leads


def leader_headers(
    peers: Peers, topic_id: str, numbers: Iterable[int], connection: Carrier | None = None
) -> dict[str, str]:
    """Returns `Penstock-Leader` for a request that was passed on, if one other process leads all its partitions.

    Returns nothing for the URL of this node: all its processes share it.
    """
    if not may_be_led(connection):
        return {}
    urls = {leader_url(peers, topic_id, number) for number in numbers}
    url = urls.pop() if len(urls) == 1 else None
    return {} if url is None else {LEADER: url}


def leader_url(peers: Peers, topic_id: str, number: int) -> str | None:
    """Returns the URL of a leader in another process; None if it is that of this node, or unknown."""
    url = peers.leader_url(topic_id, number)
    return None if url == peers.url else url


def note_owner(connection: Carrier | None, peers: Peers, topic_id: str, numbers: Iterable[int]) -> None:
    """Notes at the connection of a request which other process of this node owns its partitions, if one owns all."""
    if connection is None or connection.moves is None:
        return
    owners = {peers.owner(topic_id, number) for number in numbers}
    if len(owners) == 1 and not peers.is_local(owner := owners.pop()) and owner.node_id is None:
        connection.moves.note_served(owner.shard)


def read_leader_epoch(request: Request) -> int:
    """Returns the newest epoch that the consumer knows of this partition. Raises Problem invalid_header."""
    if LEADER_EPOCH not in request.headers:
        return 0
    text = request.headers[LEADER_EPOCH]
    if not (text.isascii() and text.isdecimal() and len(text) <= 10 and int(text) < 2**31):
        raise Problem("invalid_header", f"{LEADER_EPOCH} is a whole number from 0 to {2**31 - 1}")
    return int(text)


def read_rack(request: Request) -> str | None:
    """Returns the reader's rack; None if it sent none. Raises Problem invalid_header."""
    rack = request.headers.get(RACK)
    if rack is not None and not (0 < len(rack) <= RACK_CHARS_MAX and rack.isascii() and rack.isprintable()):
        raise Problem("invalid_header", f"{RACK} is 1 to {RACK_CHARS_MAX} printable ASCII characters")
    return rack
