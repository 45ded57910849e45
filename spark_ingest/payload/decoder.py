"""The decoders by name: their contract, the installed ones, and the steps of a recipe joined in a `Converter`.

A decoder gets the bytes of a value and returns a mapping of members; json_text.py makes JSON of it, which decode/ reads
into typed columns like the JSON of a producer. Bytes that it cannot decode raise Undecodable and become a dead letter.

A decoder with a method `declared` also returns the types that the payload of a value declares.

Other distributions add decoders by the entry point group DECODERS: a function of the options that returns a function
from bytes to a mapping, and raises ValueError for bytes that it cannot decode.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from engine.encodings.json_text import json_text
from engine.encodings.undecodable import Undecodable
from spark_ingest.errors import IngestRefused
from spark_ingest.payload.installed import DECODERS, entry_point_names, load_entry_point
from spark_ingest.payload.transformers import declared_after, transforms_of
from spark_ingest.plan import DROP_TOMBSTONES, JSON, RAW, Recipe
from spark_ingest.types.declared_types import OfSame
from spark_ingest.types.json_types import Members

_INSTALL = "pip install --find-links dist 'penstock-server[formats]', or make setup in a clone"
BUILT_IN = (JSON, RAW, "csv", "delimited", "regex", "avro", "protobuf", "msgpack")
_UNREADABLE = (ValueError, TypeError, RecursionError, msgspec.DecodeError)

Decode = Callable[[bytes], Mapping[Any, Any]]
Transform = Callable[[bytes], "bytes | None"]


@dataclass(slots=True)
class Converted:
    """The JSON text of each value. `bad` and `filtered` have the positions of values without one."""

    texts: list[bytes | None]
    bad: dict[int, Undecodable] = field(default_factory=dict)
    filtered: set[int] = field(default_factory=set)


class Converter:
    """Decodes values and applies the transformers of a recipe, in their order. A null value stays, or is left out."""

    def __init__(self, decode: Decode | None, steps: Sequence[Mapping[str, Any]] = ()) -> None:
        self._decode = decode
        self._steps = steps
        self._transforms = transforms_of(steps)
        self._drops_tombstones = any(step["do"] == DROP_TOMBSTONES for step in steps)
        self._declared: Callable[[bytes], Members] | None = getattr(decode, "declared", None)
        self._after = OfSame(lambda members: declared_after(steps, members))

    @property
    def keeps_all(self) -> bool:
        """True if every value stays as it is."""
        return self._decode is None and not self._transforms and not self._drops_tombstones

    def declared(self, value: bytes | None) -> Members:
        """Returns the types that the payload of a value declares for members of its JSON; none if it cannot be decoded.

        The types of one schema are the same object at each call.
        """
        if value is None or self._declared is None:
            return []
        try:
            return self._after(self._declared(value)) if self._steps else self._declared(value)
        except Undecodable:
            return []

    def convert(self, values: Sequence[bytes | None]) -> Converted:
        done = Converted([])
        for at, value in enumerate(values):
            text: bytes | None = None
            if value is not None:
                try:
                    text = self._text(value)
                    if text is None:
                        done.filtered.add(at)
                except Undecodable as error:
                    done.bad[at] = error
            elif self._drops_tombstones:
                done.filtered.add(at)
            done.texts.append(text)
        return done

    def _text(self, value: bytes) -> bytes | None:
        """Returns the JSON text of a value; None if a filter leaves it out. Raises Undecodable."""
        text: bytes | None = value if self._decode is None else _decoded(self._decode, value)
        for transform in self._transforms:
            if text is not None:
                text = transform(text)
        return text


def _decoded(decode: Decode, value: bytes) -> bytes:
    try:
        return json_text(decode(value))
    except Undecodable:
        raise
    except UnicodeDecodeError as error:
        raise Undecodable("not_utf8", str(error)) from error
    except RecursionError as error:
        raise Undecodable("nested_too_deeply", "the value is nested too deeply") from error
    except _UNREADABLE as error:
        raise Undecodable("not_decodable", str(error) or type(error).__name__) from error


def converter_of(recipe: Recipe) -> Converter | None:
    """Returns what makes JSON of a recipe's values; None if they are JSON already, or stay raw.

    Raises IngestRefused if a library or an entry point is not installed, or an option is wrong.
    """
    if recipe.payload == RAW:
        return None
    decode = None if recipe.payload == JSON else _decoder(recipe.payload, recipe.decoder)
    converter = Converter(decode, recipe.transforms)
    return None if converter.keeps_all else converter


def _decoder(name: str, options: Mapping[str, Any]) -> Decode:
    try:
        factory = _factory(name)
    except ModuleNotFoundError as error:
        missing = "protobuf" if (error.name or "").startswith("google") else error.name
        raise IngestRefused(f"payload {name} needs {missing}, which is not installed", hint=_INSTALL) from error
    try:
        decode: Decode = factory({"payload": name, **options})
    except (ValueError, TypeError, KeyError) as error:
        raise IngestRefused(f"payload {name}: {error}", hint="correct the settings of the topic") from error
    return decode


def _factory(name: str) -> Callable[[Mapping[str, Any]], Any]:
    """Imports one decoder only: the others' libraries may not be installed. Raises ModuleNotFoundError."""
    match name:
        case "csv" | "regex":
            from spark_ingest.payload.text import decoder_of as of_text

            return of_text
        case "delimited":
            from spark_ingest.payload.text import delimited_of

            return delimited_of
        case "avro":
            from spark_ingest.payload.avro import decoder_of as of_avro

            return of_avro
        case "protobuf":
            from spark_ingest.payload.protobuf import decoder_of as of_protobuf

            return of_protobuf
        case "msgpack":
            from spark_ingest.payload.message_pack import decoder_of as of_message_pack

            return of_message_pack
    factory: Callable[[Mapping[str, Any]], Any] = load_entry_point(DECODERS, name)
    return factory


def is_known(name: str) -> bool:
    """True if a decoder is built in or installed."""
    return name in BUILT_IN or name in entry_point_names(DECODERS)
