"""Deserializers of a consumer: how `decoded()` and `decoded_key()` of its records make values of bytes.

They run when a record is asked for its value, so a record that cannot be decoded raises there, and the consumer goes on
behind it. Other packages provide more as entry points of the group `penstock.deserializers`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import orjson

if TYPE_CHECKING:
    from penstock.encryption.encryption import Encryption

ENTRY_POINTS = "penstock.deserializers"


class Deserializer(Protocol):
    def deserialize(self, topic: str, data: bytes) -> Any:
        """Returns the value of stored bytes. Raises ValueError if they are not of its form."""


class JsonDeserializer:
    """Parses JSON."""

    def deserialize(self, topic: str, data: bytes) -> Any:
        return orjson.loads(data)


class StringDeserializer:
    """Decodes UTF-8."""

    def deserialize(self, topic: str, data: bytes) -> Any:
        return data.decode()


_OWN: dict[str, Callable[..., Deserializer]] = {"json": JsonDeserializer, "string": StringDeserializer}


class Deserializers(NamedTuple):
    """Holds those of the keys and of the values of one consumer; None: they stay bytes. Values are decrypted first.

    `first_topics`: values that were first sent to others are refused; None: only those of the topic that is read pass.
    """

    key: Deserializer | None
    value: Deserializer | None
    encryption: Encryption | None = None
    first_topics: tuple[str, ...] | None = None


def load_deserializer(name: str, **settings: Any) -> Deserializer:
    """Makes the deserializer of this name with these settings. Raises ValueError if no package provides it."""
    brought = {point.name: point for point in entry_points(group=ENTRY_POINTS)}
    if name in _OWN:
        return _OWN[name](**settings)
    if name not in brought:
        names = ", ".join(sorted({*_OWN, *brought}))
        raise ValueError(
            f"no deserializer {name!r}; available: {names}. Install a package with an entry point {name!r} in the "
            f"group {ENTRY_POINTS}"
        )
    made: Deserializer = brought[name].load()(**settings)
    return made


def deserializers(
    key: str | Deserializer | None,
    value: str | Deserializer | None,
    encryption: Encryption | None = None,
    first_topics: str | Iterable[str] | None = None,
) -> Deserializers | None:
    """Returns those of a consumer; None if it has none.

    Raises ValueError for an unknown name, and for `first_topics` without encryption, which would check nothing.
    """
    if first_topics is not None and encryption is None:
        raise ValueError("first_topics needs a client with encryption: other records do not say where they were sent")
    if key is None and value is None and encryption is None:
        return None
    accepted = (first_topics,) if isinstance(first_topics, str) else first_topics
    return Deserializers(_load(key), _load(value), encryption, None if accepted is None else tuple(accepted))


def _load(given: str | Deserializer | None) -> Deserializer | None:
    return load_deserializer(given) if isinstance(given, str) else given
