"""Principals in Kafka's words: a token is a user, and the others have types of their own."""

from __future__ import annotations

from gateway.access.rules import ANONYMOUS, EVERYBODY

_USER, _TOKEN = "User:", "token:"
_WORDS = {EVERYBODY: "User:*", ANONYMOUS: "User:ANONYMOUS"}


def kafka_principal(principal: str) -> str:
    """Returns a principal of ours as Kafka writes it: `token:shop` is `User:shop`, `cert:shop` is `cert:shop`."""
    if principal in _WORDS:
        return _WORDS[principal]
    return _USER + principal.removeprefix(_TOKEN) if principal.startswith(_TOKEN) else principal


def own_principal(text: str) -> str:
    """Returns our principal of one of Kafka's; of another form as it is, which is then refused."""
    for own, kafkas in _WORDS.items():
        if text == kafkas:
            return own
    return _TOKEN + text.removeprefix(_USER) if text.startswith(_USER) else text
