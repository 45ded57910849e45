"""Finds the address of a client behind the proxies that the operator trusts (`trusted_proxies`).

A connection from another address is the client itself, whatever its headers say. Proxies note addresses from
left to right: the rightmost one outside of the trusted networks is the client's. The client wrote those left of it.
Invariant: a trusted proxy's header that cannot be read, or two that disagree, end the request: a wrong guess could
satisfy a rule that names networks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from ipaddress import IPv6Address, ip_address, ip_network
from typing import TYPE_CHECKING

from multidict import CIMultiDictProxy, istr

from gateway.access.rules import Address, Network, address_of
from gateway.http.problems import Problem

if TYPE_CHECKING:  # it knows the parsers, which a supervisor does not need
    from gateway.http.request import Request

_FORWARDED, _X_FORWARDED_FOR = istr("Forwarded"), istr("X-Forwarded-For")


class Proxies:
    """The networks of trusted proxies. Raises ValueError for a word that is none."""

    def __init__(self, words: Sequence[str] = ()) -> None:
        self._networks: tuple[Network, ...] = tuple(map(ip_network, words))

    def __repr__(self) -> str:
        return f"Proxies({', '.join(map(str, self._networks))})"

    def forwards(self, request: Request) -> bool:
        """Returns whether a connection is that of a trusted proxy, which may carry requests of many clients."""
        return bool(self._networks) and self._is_trusted(address_of(request.client))

    def address_of(self, request: Request) -> Address | None:
        """Returns the address of the client; None: it has none, as on a Unix socket. Raises Problem invalid_header."""
        peer = address_of(request.client)
        if not self._networks or not self._is_trusted(peer):
            return peer
        headers = request.headers
        found = {
            self._client_of(noted, name)
            for name, noted in (
                ("X-Forwarded-For", _noted(headers, _X_FORWARDED_FOR)),
                ("Forwarded", _noted_for(headers)),
            )
            if noted
        }
        if len(found) > 1:
            raise Problem("invalid_header", "Forwarded and X-Forwarded-For name different clients: a proxy sets one")
        return found.pop() if found else peer

    def client_of(self, request: Request) -> str:
        """Returns the address of the client in the form of `Request.client`. Raises Problem invalid_header."""
        if not self._networks:
            return request.client or ""
        address = self.address_of(request)
        return "" if address is None else f"[{address}]:0" if isinstance(address, IPv6Address) else f"{address}:0"

    def _is_trusted(self, address: Address | None) -> bool:
        return address is not None and any(address in network for network in self._networks)

    def _client_of(self, noted: list[str], header: str) -> Address:
        address = None
        for text in reversed(noted):
            address = _parse(text)
            if address is None:
                raise Problem(
                    "invalid_header", f"{header} of a trusted proxy has {text[:100]!r}: that is not an address"
                )
            if not self._is_trusted(address):
                break
        assert address is not None
        return address


def _noted(headers: CIMultiDictProxy[str], name: istr) -> list[str]:
    return [one.strip() for one in ",".join(headers.getall(name, ())).split(",") if one.strip()]


def _noted_for(headers: CIMultiDictProxy[str]) -> list[str]:
    """Returns the value of `for` of each element of Forwarded (RFC 7239); empty where an element has none."""
    noted = []
    for element in _split(",".join(headers.getall(_FORWARDED, ())), ","):
        if element.strip():
            pairs = (pair.partition("=") for pair in _split(element, ";"))
            values = [value.strip() for name, _, value in pairs if name.strip().lower() == "for"]
            noted.append(values[0] if len(values) == 1 else "")
    return [one[1:-1] if len(one) > 1 and one[0] == one[-1] == '"' else one for one in noted]


def _split(text: str, separator: str) -> Iterator[str]:
    """Splits a text at a separator that is not in quotes."""
    begin, is_quoted, is_escaped = 0, False, False
    for index, letter in enumerate(text):
        if is_escaped:
            is_escaped = False
        elif is_quoted and letter == "\\":
            is_escaped = True
        elif letter == '"':
            is_quoted = not is_quoted
        elif letter == separator and not is_quoted:
            yield text[begin:index]
            begin = index + 1
    yield text[begin:]


def _parse(text: str) -> Address | None:
    """Returns the address of `192.0.2.1`, `192.0.2.1:80`, `2001:db8::1`, `[2001:db8::1]` or `[2001:db8::1]:80`."""
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        address = ip_address(text)
    except ValueError:
        return None
    return (address.ipv4_mapped if isinstance(address, IPv6Address) else None) or address
