"""Rules from client certificates to principals: ordered, each a full match on one attribute; the first hit wins.

An attribute is a value that `ssl.getpeercert` has parsed: a URI or a DNS name of the subject's alternative names, or
the one attribute of its kind in the subject. Text of a distinguished name is never searched, so that `OU=CN=admin` is
an OU. Invariants: a certificate with two attributes of a kind matches no rule of that kind, and one that gives two
names by one rule is not named by it; a name is always one that an access rule can have.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, cast

from msgspec import Struct

from gateway.access.rules import InvalidRule, check_principal

try:
    import re2
except ImportError:
    re2 = None

PATTERN_CHARS_MAX = 500
VALUE_CHARS_MAX = 500  # of an attribute; longer ones match nothing
MEMORY_BYTES_MAX = 256 * 1024  # of one compiled pattern, with RE2
REPEATS_MAX = 2  # of a pattern without RE2: with n of them a match takes the n-th power of the value's length
# The attributes of a subject, by their short names, and the names of `ssl`.
_SUBJECT = {
    "CN": "commonName",
    "OU": "organizationalUnitName",
    "O": "organizationName",
    "DC": "domainComponent",
    "UID": "userId",
    "C": "countryName",
    "ST": "stateOrProvinceName",
    "L": "localityName",
    "serialNumber": "serialNumber",
    "emailAddress": "emailAddress",
}
_ALTERNATIVE = {"uri": "URI", "dns": "DNS"}
_PLACE = re.compile(r"\$(\d)")
_GROUP = "group:"
Pairs = tuple[tuple[str, str], ...]


class CertificateRule(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One rule of the file. `$1` in `name` is what the first parentheses of `matches` have matched, `$0` all of it."""

    attribute: str
    matches: str
    name: str = "$0"
    groups: tuple[str, ...] = ()
    tenant: str | None = None


class InvalidCertificateRule(Exception):
    """A rule cannot be used. The text is one line that names the field to change."""


class Named(NamedTuple):
    """The principal `cert:<name>` of a certificate, its groups and its tenant."""

    name: str
    groups: tuple[str, ...]
    tenant: str | None


class CertificateRules:
    """The rules of a listener."""

    def __init__(self, rules: Sequence[CertificateRule]) -> None:
        """Raises InvalidCertificateRule."""
        self._rules = [_CompiledRule(rule) for rule in rules]

    def __repr__(self) -> str:
        return f"CertificateRules({len(self._rules)})"

    def find(self, certificate: Mapping[str, object]) -> Named | None:
        """Returns whom a certificate names, which `ssl.getpeercert` has parsed; None: no rule matches it."""
        for rule in self._rules:
            if (named := rule.find(certificate)) is not None:
                return named
        return None


class _CompiledRule:
    def __init__(self, rule: CertificateRule) -> None:
        if rule.attribute not in _SUBJECT and rule.attribute not in _ALTERNATIVE:
            known = ", ".join([*_ALTERNATIVE, *_SUBJECT])
            raise InvalidCertificateRule(f"attribute: {rule.attribute[:40]!r} is none of {known}")
        self._rule = rule
        self._match, groups = _compile(rule.matches)
        for place in _PLACE.findall(rule.name):
            if int(place) > groups:
                raise InvalidCertificateRule(f"name: ${place} has no parentheses in {rule.matches[:80]!r}")
        if "$" in _PLACE.sub("", rule.name) or not _PLACE.sub("x", rule.name):
            raise InvalidCertificateRule(f"name: {rule.name[:80]!r} is not a name with $0 to $9")
        for group in rule.groups:
            if not group.startswith(_GROUP):
                raise InvalidCertificateRule(f"groups: {group[:80]!r} is not of the form group:ISSUER:NAME")
            _check(group, "groups")
        _check(f"cert:{_PLACE.sub('x', rule.name)}", "name")
        if rule.tenant == "":
            raise InvalidCertificateRule("tenant: it is empty; omit it")

    def find(self, certificate: Mapping[str, object]) -> Named | None:
        names = {name for value in self._values(certificate) if (name := self._name(value)) is not None}
        return Named(names.pop(), self._rule.groups, self._rule.tenant) if len(names) == 1 else None

    def _values(self, certificate: Mapping[str, object]) -> list[str]:
        kind = self._rule.attribute
        if kind in _ALTERNATIVE:
            names = cast(Pairs, certificate.get("subjectAltName", ()))
            return [value for name, value in names if name == _ALTERNATIVE[kind]]
        subject = cast(tuple[Pairs, ...], certificate.get("subject", ()))
        values = [value for rdn in subject for name, value in rdn if name == _SUBJECT[kind]]
        return values if len(values) == 1 else []

    def _name(self, value: str) -> str | None:
        """Returns the name that a value gives; None: it does not match, or no access rule could name it."""
        if not 0 < len(value) <= VALUE_CHARS_MAX or not value.isprintable() or (match := self._match(value)) is None:
            return None
        name = _PLACE.sub(lambda place: match.group(int(place[1])) or "", self._rule.name)
        try:
            check_principal(f"cert:{name}")
        except InvalidRule:
            return None
        return name


def _check(principal: str, field: str) -> None:
    try:
        check_principal(principal)
    except InvalidRule:
        raise InvalidCertificateRule(f"{field}: {principal[:80]!r} is not a principal") from None


def _compile(pattern: str) -> tuple[Callable[[str], Any], int]:
    """Returns a function that matches a whole value, and the number of parentheses. Raises InvalidCertificateRule."""
    if not 0 < len(pattern) <= PATTERN_CHARS_MAX:
        raise InvalidCertificateRule(f"matches: give a pattern of 1 to {PATTERN_CHARS_MAX} characters")
    if re2 is None:
        return _compile_bounded(pattern)
    options = re2.Options()
    options.max_mem, options.log_errors = MEMORY_BYTES_MAX, False
    try:
        compiled = re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0].decode(errors="replace") if isinstance(error.args[0], bytes) else str(error)
        raise InvalidCertificateRule(f"matches: {reason.partition(':')[0]} in {pattern[:80]!r}") from None
    return compiled.fullmatch, compiled.groups


def _compile_bounded(pattern: str) -> tuple[Callable[[str], Any], int]:
    """Compiles without RE2: only patterns whose match takes a bounded time. Raises InvalidCertificateRule."""
    plain = re.sub(r"\\[^0-9]|\[\^?\]?[^\]]*\]", "x", pattern)  # without escapes and sets of characters
    repeats = len(re.findall(r"[*+{]", plain))
    if repeats > REPEATS_MAX or re.search(r"\)[*+{?]|\(\?|\\", plain):
        text = f"matches: {pattern[:80]!r} needs google-re2 (pip install google-re2): without it a pattern has at most "
        raise InvalidCertificateRule(f"{text}{REPEATS_MAX} repeats, none of parentheses, and no (?")
    try:
        compiled = re.compile(pattern, re.ASCII)
    except re.error as error:
        raise InvalidCertificateRule(f"matches: {error.msg} in {pattern[:80]!r}") from None
    return compiled.fullmatch, compiled.groups
