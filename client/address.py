"""The address of a node, taken apart and checked once."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import urlsplit

DEFAULT_URL = "http://127.0.0.1:8080"


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
    parts = urlsplit(url if "://" in url else f"http://{url}")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"not an http or https address: {url!r}")
    if parts.query or parts.fragment or parts.username is not None:
        raise ValueError(f"an address is scheme, host, port and path only: {url!r}")
    is_tls = parts.scheme == "https"
    return Address(is_tls, parts.hostname, parts.port or (443 if is_tls else 80), parts.path.rstrip("/"))
