"""Addresses that a node listens on: the addresses of its `host`, ports that are free there, and URLs that name it.

A host is an IP address or a name. A name may have several addresses, and a node listens on all that this machine has,
so that `localhost` works for clients that try ::1 first and for those that know 127.0.0.1 only.
"""

from __future__ import annotations

import dataclasses
import errno
import re
import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import combinations
from urllib.parse import urlsplit

from engine.errors import StartRefused
from gateway.access.hosts import is_host, is_ip_address
from gateway.access.listeners.listeners_file import ListenerSpec
from gateway.settings import NodeSettings

WILDCARDS = ("0.0.0.0", "::")  # noqa: S104 - nothing is bound here
NO_DIRECT_URL = "none"
_PORT_ATTEMPTS = 20  # a port that is free on one address may be taken on another
_NOT_HERE = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)  # an address of another machine; no IPv6 on this one
_NUMBERS = re.compile(r"[0-9.]+|0[xX][0-9A-Fa-f]+")  # resolvers take 1.2 for 1.0.0.2


def check_host(host: str) -> str:
    """Returns the host that a node is to listen on, an IPv6 address without brackets. Raises StartRefused."""
    plain = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    hint = "give an IP address of this machine, such as 127.0.0.1, ::1, 0.0.0.0 or ::, or a name of this machine"
    if "%" in plain:
        raise StartRefused(f"host {host!r} has a zone, which URLs cannot carry", hint=hint)
    if plain != host and ":" not in plain:
        raise StartRefused(f"host {host!r} has brackets and is not an IPv6 address", hint=hint)
    is_address = is_ip_address(plain)
    if not is_address and (":" in plain or _NUMBERS.fullmatch(plain) or not is_host(plain)):
        raise StartRefused(f"host {host!r} is neither an IP address nor a name", hint=hint)
    return plain


def check_direct_url(form: str) -> None:
    """Checks the form of the URLs of shards. Raises StartRefused."""
    if form == NO_DIRECT_URL:
        return
    if "{port}" not in form and "{shard}" not in form:
        text = f"advertised_direct_url {form!r} is the same for every shard"
        raise StartRefused(text, hint=f"give it {{port}} or {{shard}}, or the word {NO_DIRECT_URL}")
    check_advertised_url(_direct_url(form, 65_535, 63), "advertised_direct_url")


def check_advertised_url(url: str, setting: str = "advertised_url") -> None:
    """Checks the URL. Raises StartRefused."""
    hint = "give http://host:port or https://host:port, an IPv6 address in brackets: http://[2001:db8::1]:8080"
    try:
        parts = urlsplit(url)
        has_port = parts.port is None or parts.port > 0
    except ValueError as error:
        raise StartRefused(f"{setting} {url!r} is not a URL: {error}", hint=hint) from None
    if "@" in parts.netloc:
        raise StartRefused(f"{setting} holds a user or a password", hint="every client receives this URL: omit them")
    is_plain = not parts.query and not parts.fragment
    if parts.scheme not in ("http", "https") or not (is_host(parts.netloc) and has_port and is_plain):
        raise StartRefused(f"{setting} {url!r} is not the address of a node", hint=hint)


def addresses_of(host: str) -> list[str]:
    """Returns the IP addresses of a host on this machine, at least one. Blocks. Raises StartRefused."""
    try:
        infos = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        hint = "give an IP address of this machine, or a name of this machine"
        raise StartRefused(f"the host {host} cannot be resolved: {error.strerror}", hint=hint) from None
    addresses = [address for address in dict.fromkeys(str(info[4][0]) for info in infos) if "%" not in address]
    here = [address for address in addresses if _is_local_address(address)]
    if not here:
        text = f"this machine has no address {', '.join(addresses)}, to which the host {host} resolves"
        raise StartRefused(text, hint="give an address of this machine; 0.0.0.0 and :: mean all of them")
    return here


@contextmanager
def reserve_port(host: str, port: int, option: str = "--port") -> Iterator[int]:
    """Yields the port if it is free on all addresses of the host; for 0, a free one. Blocks. Raises StartRefused.

    `option` is how the port is given.

    The port stays bound until the context ends, without a listener. So the kernel gives it to no outgoing connection
    before a process of the node listens on it, nor while that process is started again.
    The listener shares its port between processes (SO_REUSEPORT), so it would not notice another program on it; a plain
    bind does.
    """
    sockets = _bind_free(host, port, option)
    try:
        yield sockets[0].getsockname()[1]
    finally:
        for bound in sockets:
            bound.close()


def _bind_free(host: str, port: int, option: str) -> list[socket.socket]:
    """Returns sockets on one port that is free on all addresses of the host. Blocks. Raises StartRefused."""
    try:
        return bind_sockets(host, port)
    except OSError as error:
        text = f"cannot listen on {_address_text(host, port)}: {error.strerror}"
        hint = f"another program has the port: stop it, or give {option} another one"
        raise StartRefused(text, hint=hint) from None


def check_apart(listens: Sequence[tuple[str, str, int]]) -> None:
    """Checks that no two of (what listens, host, port) share an address and a port. Blocks. Raises StartRefused.

    A reserved port is bound without a listener, so the kernel lets another reservation of this process have it too, and
    would then share the connections out among both.
    """
    for (one, host, port), (other, other_host, other_port) in combinations(listens, 2):
        hosts = {host, other_host}
        if port == other_port != 0 and (
            not hosts.isdisjoint(WILDCARDS) or not set(addresses_of(host)).isdisjoint(addresses_of(other_host))
        ):
            raise StartRefused(f"{one} and {other} both have the port {port}", hint="give one of them another port")


def bind_sockets(host: str, port: int) -> list[socket.socket]:
    """Returns sockets for a server, one for each address, on the same port; `::` takes IPv4 too. Blocks.

    Raises StartRefused, OSError. asyncio would bind `::` to IPv6 only.
    """
    addresses = addresses_of(host)
    for _ in range(_PORT_ATTEMPTS - 1 if port == 0 else 0):
        try:
            return _bind(addresses, port)
        except OSError:
            continue  # another address of the host may have another program on the port that the first one chose
    return _bind(addresses, port)


def url_of(settings: NodeSettings, port: int) -> str:
    return f"{'https' if settings.is_tls else 'http'}://{_address_text(settings.host, port)}"


def url_of_listener(spec: ListenerSpec) -> str:
    return f"{'https' if spec.is_tls else 'http'}://{_address_text(spec.host, spec.port)}"


def direct_urls(settings: NodeSettings, ports: Sequence[int], node_url: str) -> list[str]:
    """Returns the URL of each shard for clients: that of the node where clients may not reach the shard's own port.

    A single node behind a proxy or NAT, or that listens on all addresses, does not know how clients reach the
    ports of its shards.
    """
    form = settings.advertised_direct_url
    if form and form != NO_DIRECT_URL:
        return [_direct_url(form, port, shard) for shard, port in enumerate(ports)]
    is_single_node = not settings.coordination or settings.is_embedded  # the nodes of a cluster reach each other
    is_unsure = is_single_node and (settings.advertised_url or settings.host in WILDCARDS)
    return [node_url if form or is_unsure else url_of(settings, port) for port in ports]


def internal_url_of(settings: NodeSettings, port: int) -> str:
    """Returns the URL of the port for other nodes, which does not use TLS."""
    return url_of(dataclasses.replace(settings, tls_cert="", tls_key=""), port)


def reachable(settings: NodeSettings) -> NodeSettings:
    """Returns settings with a host that other machines can call: for `0.0.0.0` the advertised one.

    Raises StartRefused.
    """
    if settings.host not in WILDCARDS:
        return settings
    host = urlsplit(settings.advertised_url).hostname
    if not host:
        text = f"--host {settings.host} is not an address that other nodes can reach"
        raise StartRefused(text, hint="give one address of this machine, or --advertised-url")
    return dataclasses.replace(settings, host=host)


def _direct_url(form: str, port: int, shard: int) -> str:
    return form.replace("{port}", str(port)).replace("{shard}", str(shard)).rstrip("/")


def _address_text(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _is_local_address(address: str) -> bool:
    try:
        _bind([address], 0)[0].close()
    except OSError as error:
        if error.errno in _NOT_HERE:
            return False
        raise
    return True


def _bind(addresses: list[str], port: int) -> list[socket.socket]:
    """Returns sockets bound to one port, which the first one chooses for 0. Raises OSError."""
    with ExitStack() as stack:
        sockets: list[socket.socket] = []
        for address in addresses:
            listening = stack.enter_context(socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET))
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if ":" in address:
                listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, address != "::")
            listening.bind((address, port))
            port = listening.getsockname()[1]
            sockets.append(listening)
        stack.pop_all()
        return sockets
