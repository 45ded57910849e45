"""Reads certificates and lists of revoked certificates (CRL) as far as `ssl` does not: a reader of DER.

It reads files of the operator and certificates whose chain OpenSSL has checked; it checks no signature. Invariant:
bytes that are not of the form are an InvalidX509, and never a partial answer.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from datetime import UTC, datetime
from ipaddress import ip_address
from typing import NamedTuple

from engine.errors import EngineError

CRL_BYTES_MAX = 64 * 1024 * 1024  # some two million certificates
_SEQUENCE, _INTEGER, _OBJECT_ID, _OCTETS, _UTC_TIME, _TIME = 0x30, 0x02, 0x06, 0x04, 0x17, 0x18
_VERSION, _EXTENSIONS = 0xA0, 0xA3  # of a certificate
_DNS_NAME, _ADDRESS = 0x82, 0x87
_ALTERNATIVE_NAMES = bytes.fromhex("551d11")  # 2.5.29.17
_CERTIFICATE, _CRL = "CERTIFICATE", "X509 CRL"


class InvalidX509(EngineError):
    """The bytes are not a certificate, or not a list of revoked ones. Give another file."""


class Crls(NamedTuple):
    """The lists of a file. `expires_ms`: when the first of them ends; None: none has an end."""

    issuers: frozenset[bytes]
    serials: frozenset[int]
    expires_ms: int | None


class _Element(NamedTuple):
    tag: int
    start: int  # of the content
    end: int


def read_crls(pem: str) -> Crls:
    """Returns what the lists of a PEM file say. Raises InvalidX509."""
    issuers, serials, ends = set(), set[int](), []
    for der in _blocks(pem, _CRL):
        issuer, revoked, expires_ms = _read_crl(der)
        issuers.add(issuer)
        serials |= revoked
        if expires_ms is not None:
            ends.append(expires_ms)
    return Crls(frozenset(issuers), frozenset(serials), min(ends, default=None))


def certificates_of(pem: str) -> list[bytes]:
    """Returns the certificates in a PEM file. Raises InvalidX509."""
    return _blocks(pem, _CERTIFICATE)


def subject_of(der: bytes) -> bytes:
    """Returns the subject of a certificate, as it is encoded. Raises InvalidX509."""
    subject = _body(der)[4]
    return der[subject.start : subject.end]


def serial_of(der: bytes) -> int:
    """Returns the serial number of a certificate. Raises InvalidX509."""
    return _integer(der, _body(der)[0])


def expires_ms_of(pem: str) -> int:
    """Returns when the first certificate of a PEM file that ends does so. Raises InvalidX509."""

    def end_of(der: bytes) -> int:
        times = list(_elements(der, _body(der)[3]))
        if len(times) != 2:
            raise InvalidX509("it is not a certificate")
        return _time_ms(der, times[1])

    return min(map(end_of, _blocks(pem, _CERTIFICATE)))


def names_of(pem: str) -> frozenset[str]:
    """Returns the host names and addresses of the first certificate in a PEM file. Raises InvalidX509."""
    der = _blocks(pem, _CERTIFICATE)[0]
    names = set()
    for kind, start, end in _alternative_names(der):
        if kind == _DNS_NAME:
            names.add(der[start:end].decode("ascii", "replace").lower())
        elif kind == _ADDRESS and end - start in (4, 16):
            names.add(str(ip_address(der[start:end])))
    return frozenset(names)


def _read_crl(der: bytes) -> tuple[bytes, set[int], int | None]:
    """Returns the issuer, the serial numbers and the end of a list."""
    whole = _element(der, 0, len(der), _SEQUENCE)
    parts = list(_elements(der, _element(der, whole.start, whole.end, _SEQUENCE)))
    if parts and parts[0].tag == _INTEGER:  # the version
        del parts[0]
    tags = [part.tag for part in parts]
    if tags[:2] != [_SEQUENCE, _SEQUENCE] or len(tags) < 3 or tags[2] not in (_UTC_TIME, _TIME):
        raise InvalidX509("it is not a list of revoked certificates")
    issuer, rest = parts[1], parts[3:]
    expires_ms = None
    if rest and rest[0].tag in (_UTC_TIME, _TIME):
        expires_ms = _time_ms(der, rest.pop(0))
    serials = set()
    if rest and rest[0].tag == _SEQUENCE:
        for entry in _elements(der, rest[0]):
            serials.add(_integer(der, _element(der, entry.start, entry.end, _INTEGER)))
    return der[issuer.start : issuer.end], serials, expires_ms


def _body(der: bytes) -> list[_Element]:
    """Returns the parts of a certificate from its serial number on: that, algorithm, issuer, validity, subject, key."""
    whole = _element(der, 0, len(der), _SEQUENCE)
    parts = list(_elements(der, _element(der, whole.start, whole.end, _SEQUENCE)))
    if parts and parts[0].tag == _VERSION:
        del parts[0]
    if [part.tag for part in parts[:6]] != [_INTEGER, *[_SEQUENCE] * 5]:
        raise InvalidX509("it is not a certificate")
    return parts


def _alternative_names(der: bytes) -> Iterator[_Element]:
    for part in _body(der)[6:]:
        if part.tag != _EXTENSIONS:
            continue
        for extension in _elements(der, _element(der, part.start, part.end, _SEQUENCE)):
            fields = list(_elements(der, extension))
            oid, value = fields[0], fields[-1]
            if der[oid.start : oid.end] == _ALTERNATIVE_NAMES and (oid.tag, value.tag) == (_OBJECT_ID, _OCTETS):
                yield from _elements(der, _element(der, value.start, value.end, _SEQUENCE))


def _blocks(pem: str, label: str) -> list[bytes]:
    begin, end = f"-----BEGIN {label}-----", f"-----END {label}-----"
    blocks = []
    for text in pem.split(begin)[1:]:
        body, found, _ = text.partition(end)
        if not found:
            raise InvalidX509(f"a block {label} has no end")
        certificate = f"{ssl.PEM_HEADER}\n{body.strip()}\n{ssl.PEM_FOOTER}"
        try:
            blocks.append(ssl.PEM_cert_to_DER_cert(certificate))
        except ValueError:
            raise InvalidX509(f"a block {label} is not base64") from None
    if not blocks:
        raise InvalidX509(f"it has no block {label} in PEM")
    return blocks


def _elements(der: bytes, outer: _Element) -> Iterator[_Element]:
    at = outer.start
    while at < outer.end:
        element = _element(der, at, outer.end)
        yield element
        at = element.end


def _element(der: bytes, at: int, end: int, expected: int | None = None) -> _Element:
    """Returns the element at a place. Raises InvalidX509, also if it has another tag than expected."""
    if at + 2 > end:
        raise InvalidX509("it ends too early")
    tag, length = der[at], der[at + 1]
    start = at + 2
    if length >= 0x80:
        size = length & 0x7F
        if not 0 < size <= 4 or start + size > end:
            raise InvalidX509("it has a length that DER does not allow")
        length = int.from_bytes(der[start : start + size], "big")
        start += size
    if start + length > end or (expected is not None and tag != expected):
        raise InvalidX509("it is not of the form that it has to have")
    return _Element(tag, start, start + length)


def _integer(der: bytes, element: _Element) -> int:
    return int.from_bytes(der[element.start : element.end], "big")


def _time_ms(der: bytes, element: _Element) -> int:
    text = der[element.start : element.end].decode("ascii", "replace")
    if element.tag == _UTC_TIME:
        text = ("19" if text[:2] >= "50" else "20") + text  # RFC 5280 5.1.2.4
    try:
        return round(datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp() * 1000)
    except ValueError:
        raise InvalidX509(f"{text[:20]!r} is not a time") from None
