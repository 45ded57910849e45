"""The address of a node, taken apart and checked once."""

from __future__ import annotations

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
