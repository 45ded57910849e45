"""The Host rule: the host names that a node accepts, as a defence against DNS rebinding. Pure.

In DNS rebinding, the owner of a web page's name points that name at a private address. The browser treats the node as a
part of that page's site, so the Origin rule (gateway/access/origins.py) does not see a foreign page; but the Host of
each request is the foreign name. A node without tokens therefore accepts only names that no outsider can own or that
its operator has given: IP addresses, loopback names, the hosts of `host` and `advertised_url`, `allowed_hosts`. With
tokens every name is accepted: a page does not know the token (docs/decisions/0016).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from urllib.parse import urlsplit

from gateway.http.problems import Problem
from gateway.settings import NodeSettings

ALL = "*"
ACCEPTED_MAX = 1024  # Host values that passed before, about 100 bytes each; beyond this number all are forgotten
_HOST = re.compile(
    r"(?:\[([0-9A-Fa-f:.]{2,45})\]|((?:[A-Za-z0-9._~!$&'()*+,;=-]|%[0-9A-Fa-f]{2}){1,255}))(?::[0-9]{0,5})?"
)
_ALLOWED = re.compile(r"\.?[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*")


class Hosts:
    """The Host rule of one node. `accepted` holds the values that passed before: they need no other check."""

    def __init__(self, settings: NodeSettings) -> None:
        given = settings.allowed_host_names
        own = [settings.host, urlsplit(settings.advertised_url).hostname or ""]
        self._names = frozenset(normal_name(name) for name in [*given, *own] if name)
        self._suffixes = tuple(name for name in given if name.startswith("."))
        self._is_open = ALL in given or bool(settings.tokens_file)
        self.accepted: set[str] = set()

    def __repr__(self) -> str:
        return f"Hosts({'all' if self._is_open else sorted(self._names)})"

    def check(self, host: str) -> None:
        """Checks the Host of a request. Raises Problem invalid_header, host_not_allowed."""
        name = name_of(host)
        if name is None:
            raise Problem("invalid_header", f"Host is {host[:100]!r}, which is not a host with an optional port")
        if not self._is_open and not self._is_allowed(name):
            text = f"this node does not answer to the host {name!r}: call it by an IP address, or name the host in the "
            raise Problem("host_not_allowed", f"{text}setting allowed_hosts", setting="allowed_hosts")
        if len(self.accepted) >= ACCEPTED_MAX:
            self.accepted.clear()
        self.accepted.add(host)

    def _is_allowed(self, name: str) -> bool:
        if name == "localhost" or name.endswith(".localhost") or name in self._names or is_ip_address(name):
            return True
        return is_one_of(name, self._suffixes)


def is_host(value: str) -> bool:
    """Returns whether a Host header may have this value: a name or an address, perhaps with a port (RFC 9110 7.2)."""
    return name_of(value) is not None


def name_of(host: str) -> str | None:
    """Returns the normal name without port and brackets; None if malformed. Zones are malformed (RFC 9110 has none)."""
    parts = _HOST.fullmatch(host)
    if parts is None:
        return None
    address, name = parts.groups()
    if address is not None:
        return address if ":" in address and is_ip_address(address) else None
    return normal_name(name)


def is_one_of(name: str, hosts: Iterable[str]) -> bool:
    """Returns whether a normal name is one of these. `*.example.org` means every name one label below it.

    A leading dot means the name and all names below it.
    """
    return any(
        name == host
        or (host.startswith("*.") and name.partition(".")[2] == host[2:] and name != host)
        or (host.startswith(".") and (name == host[1:] or name.endswith(host)))
        or host == ALL
        for host in hosts
    )


def is_allowed_host(text: str) -> bool:
    """Returns whether `allowed_hosts` may have this entry: a name, a suffix of names that begins with a dot, or `*`."""
    return text == ALL or bool(_ALLOWED.fullmatch(text))


def normal_name(name: str) -> str:
    """Returns the name in lower case, without the dot that ends a fully qualified name."""
    return name.lower().removesuffix(".")


def is_ip_address(name: str) -> bool:
    """Returns whether the name is an IP address in its usual form; an IPv6 address has no brackets and no zone."""
    try:
        IPv6Address(name) if ":" in name else IPv4Address(name)
    except AddressValueError:
        return False
    return True
