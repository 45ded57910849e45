"""Which targets the operator allows: names of hosts, and networks for addresses that are not public.

A connection goes to an address that was checked here, so a name whose address changes between two looks gains nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import NamedTuple
from urllib.parse import urlsplit

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

URL_CHARACTERS_MAX = 2048
_NAME = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?)*\.?")
_VISIBLE = re.compile(r"[\x21-\x7e]+")
_TRANSLATED = ip_network("64:ff9b::/32")  # NAT64 (RFC 6052, 8215): an IPv4 address in other clothes


class InvalidTarget(ValueError):
    """A URL cannot be a target, or the operator does not allow it. The message says why."""


class AllowedTargets(NamedTuple):
    """The allow list of a node. `hosts` are names, `.name` for those below it, `*` for all."""

    hosts: frozenset[str]
    networks: tuple[Network, ...]
    allows_http: bool

    def check_url(self, url: str) -> None:
        """Raises InvalidTarget for a URL that is not allowed, as far as can be said without its addresses."""
        if len(url) > URL_CHARACTERS_MAX or not _VISIBLE.fullmatch(url):
            raise InvalidTarget(f"a URL has 1 to {URL_CHARACTERS_MAX} visible characters of ASCII")
        try:
            parts = urlsplit(url)
            host, _ = parts.hostname, parts.port
        except ValueError:
            raise InvalidTarget("the URL cannot be read") from None
        if parts.scheme not in (("https", "http") if self.allows_http else ("https",)):
            raise InvalidTarget("the URL does not begin with https://")
        if parts.username is not None or parts.password is not None or parts.fragment or "\\" in url:
            raise InvalidTarget("the URL has a user, a password, a fragment or a backslash")
        if not host:
            raise InvalidTarget("the URL has no host")
        if (address := _address(host)) is not None:
            if not self.allows_address(address):
                raise InvalidTarget(f"the address {host} is not allowed")
            if "*" not in self.hosts and not self.is_listed(address) and host not in self.hosts:
                raise InvalidTarget(f"the host {host} is not on the operator's list")
        elif not _NAME.fullmatch(host) or host.rpartition(".")[2].isdigit():
            raise InvalidTarget("the host of the URL is neither a name nor an address")
        elif not self._has(host.rstrip(".")):
            raise InvalidTarget(f"the host {host} is not on the operator's list")

    def allows_address(self, address: Address) -> bool:
        """Returns whether a connection may go to an address: it is public, or in an allowed network."""
        if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        return self.is_listed(address) or _is_public(address)

    def is_listed(self, address: Address) -> bool:
        """Returns whether the operator allows a network that the address is in."""
        return any(address in network for network in self.networks)

    def _has(self, host: str) -> bool:
        names = host.split(".")
        below = ("." + ".".join(names[first:]) for first in range(len(names)))
        return "*" in self.hosts or host in self.hosts or any(domain in self.hosts for domain in below)


def parse_targets(words: Iterable[str], *, allows_http: bool) -> AllowedTargets:
    """Returns the allow list that a setting has. A word with a slash is a network. Raises ValueError."""
    hosts, networks = set(), []
    for word in words:
        if "/" in word:
            networks.append(ip_network(word))
        else:
            hosts.add(word)
    return AllowedTargets(frozenset(hosts), tuple(networks), allows_http)


def _address(host: str) -> Address | None:
    try:
        return ip_address(host)
    except ValueError:
        return None


def _is_public(address: Address) -> bool:
    if not address.is_global or address.is_multicast or address.is_reserved or address.is_unspecified:
        return False
    if isinstance(address, IPv4Address):
        return True
    has_other_inside = address.sixtofour is not None or address.teredo is not None or address in _TRANSLATED
    return not has_other_inside and not address.is_site_local
