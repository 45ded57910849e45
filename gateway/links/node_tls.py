"""TLS between nodes: which connections use it, and whom a certificate names. Opens no connection.

A node's certificate has the URI penstock://<cluster id>/node/<id> and is of a private CA, the only one that is trusted.
Both sides check chain, purpose and URI before a byte of the secret is sent; the side that connects also checks that the
id is the one it connects to. Whether another node has TLS is in its registration, so that a cluster changes over node
by node. Host names are not checked: the URI is narrower. Contexts are replaced as a whole when the files change.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from engine.errors import StartRefused

if TYPE_CHECKING:
    from replication.cluster.values import NodeInfo

OFF, ACCEPT, DIAL, REQUIRE = "off", "accept", "dial", "require"
HANDSHAKE_BYTE = 0x16  # the first byte of TLS; HTTP begins with a letter
_HINT = "internal_tls_ca, internal_tls_cert and internal_tls_key are PEM, the key without a password"


class NodeRefused(ConnectionRefusedError):
    """The other end of a connection is not the node that it has to be. An operator has to find the reason."""


class TlsFiles(NamedTuple):
    """The files of a node's identity."""

    ca: str
    cert: str
    key: str


@dataclass(frozen=True, slots=True)
class _Contexts:
    dialling: ssl.SSLContext
    accepting: ssl.SSLContext


class NodeTls:
    """The TLS of one process with other nodes."""

    def __init__(self, mode: str = OFF, files: TlsFiles | None = None, cluster_id: str = "", node_id: int = 0) -> None:
        """Blocks, to read the files. Raises StartRefused."""
        self._mode = mode
        self._files = files
        self._cluster_id = cluster_id
        self._node_id = node_id
        self._node_at: dict[str, int] = {}  # the nodes with TLS, by the addresses of their shards
        self._contexts: _Contexts | None = None
        self.renew()

    def __repr__(self) -> str:
        return f"NodeTls({self._mode}, {len(self._node_at)} addresses)"

    @property
    def accepts_plain(self) -> bool:
        return self._mode != REQUIRE

    def renew(self) -> None:
        """Use the files as they are now for new connections. Blocks. Raises StartRefused; then nothing has changed."""
        if self._mode == OFF:
            return
        assert self._files is not None
        try:
            contexts = _Contexts(
                _context(ssl.PROTOCOL_TLS_CLIENT, self._files), _context(ssl.PROTOCOL_TLS_SERVER, self._files)
            )
            named = _node_of(_certificate_at_peer(contexts), self._cluster_id)
        except OSError as error:  # includes SSLError
            reason = getattr(error, "reason", None) or error.strerror or error
            raise StartRefused(f"{', '.join(self._files)} cannot be used between nodes: {reason}", hint=_HINT) from None
        if named != self._node_id:
            text = f"the certificate {self._files.cert} is not of this node"
            raise StartRefused(text, hint=f"it needs the URI {uri_of(self._cluster_id, self._node_id)}")
        self._contexts = contexts

    def follow(self, nodes: Iterable[NodeInfo]) -> None:
        """Take the registrations of the nodes."""
        self._node_at = {url: node.node_id for node in nodes if node.tls for url in node.internal_urls}

    def context_to(self, url: str) -> ssl.SSLContext | None:
        """Return the context for a new connection; None for a plain one. Raises NodeRefused."""
        if self._mode in (OFF, ACCEPT) or self._contexts is None:
            return None
        if url in self._node_at:
            return self._contexts.dialling
        if self._mode == REQUIRE:
            raise NodeRefused(f"the node at {url} has no TLS, and internal_tls is require")
        return None

    def context_from(self, first_byte: int) -> ssl.SSLContext | None:
        """Return the context for an accepted connection; None for a plain one."""
        is_tls = not self.accepts_plain or first_byte == HANDSHAKE_BYTE
        return self._contexts.accepting if is_tls and self._contexts is not None else None

    def check(self, transport: asyncio.BaseTransport, url: str = "") -> None:
        """Check whom the certificate of the other end names; with `url`, that it is the node there.

        No-op on a plain connection. Raises NodeRefused.
        """
        connection: ssl.SSLObject | None = transport.get_extra_info("ssl_object")
        if connection is None:
            return
        found = _node_of(connection.getpeercert() or {}, self._cluster_id)
        if found is None:
            raise NodeRefused(f"the certificate at the other end is not of a node of cluster {self._cluster_id}")
        if url and found != self._node_at.get(url):
            raise NodeRefused(f"the certificate at {url} is of node {found}, not of node {self._node_at.get(url)}")


NO_TLS = NodeTls()


def uri_of(cluster_id: str, node_id: int) -> str:
    return f"penstock://{cluster_id}/node/{node_id}"


def _node_of(certificate: Mapping[str, object], cluster_id: str) -> int | None:
    """Return the id of the node of this cluster that a certificate names; None unless it names one, and no other."""
    names = certificate.get("subjectAltName", ())
    assert isinstance(names, tuple)
    uris = [value for kind, value in names if kind == "URI" and value.startswith("penstock:")]
    match = re.fullmatch(r"penstock://([^/]+)/node/([1-9][0-9]{0,9})", uris[0]) if len(uris) == 1 else None
    return int(match[2]) if match is not None and match[1] == cluster_id else None


def _context(side: ssl._SSLMethod, files: TlsFiles) -> ssl.SSLContext:
    """Raises OSError, ssl.SSLError."""
    context = ssl.SSLContext(side)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(files.ca)
    context.load_cert_chain(files.cert, files.key, password="")
    if side == ssl.PROTOCOL_TLS_SERVER:
        context.num_tickets = 0  # a resumed session would outlive its certificate
    return context


def _certificate_at_peer(contexts: _Contexts) -> dict[str, object]:
    """Return this node's certificate as others see it: it connects to itself in memory. Raises ssl.SSLError."""
    one, other = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = contexts.dialling.wrap_bio(one, other)
    server = contexts.accepting.wrap_bio(other, one, server_side=True)
    for side in (client, server, client, server):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
    return dict(client.getpeercert() or {})
