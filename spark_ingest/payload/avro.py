"""The decoder of Avro, by fastavro: an object container of one record, single-object encoding, or a registry's header.

The first bytes say which: `Obj` and 1; C3 01 and a fingerprint; 0 and a schema id. With the option `framing` = `bare`
there are none, and the only schema of `schemas` counts. `schemas` has the JSON of schemas, by the id of a registry or
another name; each has its fingerprint, too. Other ids are looked up at `registry_url`.

Limits: a container unpacks to CONTAINER_BYTES_MAX. A schema in a container whose arrays have items without bytes is
rejected, because a few bytes may then announce any number of items. engine/encodings bounds what a value takes.
"""

from __future__ import annotations

import bz2
import lzma
import time
import zlib
from collections.abc import Callable, Mapping
from functools import lru_cache
from io import BytesIO
from typing import Any, NamedTuple

from fastavro import parse_schema, schemaless_reader
from fastavro.schema import fingerprint, to_parsing_canonical_form

from engine.encodings.avro_schema import BAD_DATUM, AvroSchema, parse_avro, read_avro, registered_avro
from engine.encodings.registry import HEADER_BYTES, Registry, schema_id_of
from engine.encodings.undecodable import Undecodable
from spark_ingest.payload.avro_types import AvroTypes
from spark_ingest.types.json_types import Members

CONTAINER_BYTES_MAX = 64 << 20
SCHEMAS_KEPT = 1000
_HEADER = parse_schema(
    {
        "type": "record",
        "name": "header",
        "fields": [
            {"name": "magic", "type": {"type": "fixed", "name": "magic", "size": 4}},
            {"name": "meta", "type": {"type": "map", "values": "bytes"}},
            {"name": "sync", "type": {"type": "fixed", "name": "sync", "size": 16}},
        ],
    }
)
_SIZES = parse_schema(
    {"type": "record", "name": "block", "fields": [{"name": name, "type": "long"} for name in ("count", "size")]}
)


class Schema(NamedTuple):
    """A schema, and the types of its members."""

    avro: AvroSchema
    members: Members


class _Datum(NamedTuple):
    """The bytes of a record, packed with a codec, and its schema."""

    data: bytes
    schema: Schema
    codec: bytes = b"null"


def decoder_of(options: Mapping[str, Any]) -> Callable[[bytes], Any]:
    """Raises ValueError for a schema that is wrong."""
    return _Avro(options)


def fingerprint_of(schema: str) -> str:
    """Returns the CRC-64-AVRO of a schema's canonical form, in hexadecimal digits. Raises ValueError."""
    return _rabin(_parse(schema))


def _rabin(schema: Schema) -> str:
    return str(fingerprint(to_parsing_canonical_form(schema.avro.tree), "CRC-64-AVRO"))


class _Avro:
    def __init__(self, options: Mapping[str, Any]) -> None:
        self._schemas = {key: _parse(text) for key, text in options.get("schemas", {}).items()}
        self._schemas |= {_rabin(schema): schema for schema in list(self._schemas.values())}
        self._bare = next(iter(self._schemas.values()), None) if options.get("framing") == "bare" else None
        if options.get("framing") == "bare" and self._bare is None:
            raise ValueError("framing bare needs schema_file")
        self._registry = Registry(options["registry_url"], time.monotonic) if options.get("registry_url") else None
        self._registered = lru_cache(SCHEMAS_KEPT)(self._look_up)
        self._embedded = lru_cache(SCHEMAS_KEPT)(_embedded)

    def __call__(self, value: bytes) -> Any:
        """Returns the record. Raises Undecodable, RegistryUnavailable."""
        datum = self._unframe(value)
        return read_avro(_unpack(datum.data, datum.codec), datum.schema.avro)

    def declared(self, value: bytes) -> Members:
        """Returns the types of the writer's schema, the same object for each value of it. Raises as the decoder."""
        return self._unframe(value).schema.members

    def _unframe(self, value: bytes) -> _Datum:
        if self._bare is not None:
            return _Datum(value, self._bare)
        if value[:4] == b"Obj\x01":
            return self._container(value)
        if value[:2] == b"\xc3\x01" and len(value) >= 10:
            return _Datum(value[10:], self._find_schema(value[2:10].hex()))
        if (schema_id := schema_id_of(value)) is not None:
            return _Datum(value[HEADER_BYTES:], _usable(self._registered(schema_id)))
        raise Undecodable("not_avro", "the value is not a container, single-object encoding or a registry's message")

    def _find_schema(self, mark: str) -> Schema:
        try:
            return self._schemas[mark]
        except KeyError:
            raise Undecodable("unknown_schema", f"no schema file has the fingerprint {mark}") from None

    def _look_up(self, schema_id: int) -> Schema | Undecodable:
        """Returns the reason why there is none, so that it is kept like a schema. Raises RegistryUnavailable."""
        if str(schema_id) in self._schemas:
            return self._schemas[str(schema_id)]
        registered = self._registry.schema(schema_id) if self._registry else None
        if registered is None:
            return Undecodable("unknown_schema", f"the id {schema_id} is not known")
        if registered.schemaType != "AVRO":
            return Undecodable(
                "unknown_schema", f"the id {schema_id} is a schema of {registered.schemaType}, not of Avro"
            )
        assert self._registry is not None
        try:
            return _typed(registered_avro(self._registry, registered))
        except ValueError as error:
            return Undecodable("unknown_schema", f"the schema of the id {schema_id} is not usable: {error}")

    def _container(self, value: bytes) -> _Datum:
        stream = BytesIO(value)
        try:
            header = schemaless_reader(stream, _HEADER, None)
            sizes = schemaless_reader(stream, _SIZES, None)
        except BAD_DATUM as error:
            raise Undecodable("not_avro", f"the container's header is damaged: {error}") from error
        data = stream.read(max(0, sizes["size"]))
        if sizes["count"] != 1 or stream.read() != header["sync"]:
            raise Undecodable("several_records", "the container does not have exactly one record")
        schema = _usable(self._embedded(bytes(header["meta"].get("avro.schema", b""))))
        return _Datum(data, schema, bytes(header["meta"].get("avro.codec", b"null")))


def _embedded(text: bytes) -> Schema | Undecodable:
    try:
        return _typed(parse_avro(text.decode(), is_trusted=False))
    except ValueError as error:
        return Undecodable("unknown_schema", f"the container's schema is not usable: {error}")


def _parse(text: str) -> Schema:
    """Raises ValueError."""
    return _typed(parse_avro(text))


def _typed(schema: AvroSchema) -> Schema:
    return Schema(schema, AvroTypes(schema.tree).members())


def _usable(schema: Schema | Undecodable) -> Schema:
    if isinstance(schema, Undecodable):
        raise schema
    return schema


def _unpack(data: bytes, codec: bytes) -> bytes:
    """Raises Undecodable."""
    unpackers: dict[bytes, Callable[[], Any]] = {
        b"deflate": lambda: zlib.decompressobj(-15),
        b"bzip2": bz2.BZ2Decompressor,
        b"xz": lambda: lzma.LZMADecompressor(memlimit=CONTAINER_BYTES_MAX),
    }
    if codec in (b"null", b""):
        return data
    if codec not in unpackers:
        names = ", ".join(["null", *(name.decode() for name in unpackers)])
        raise Undecodable("not_avro", f"the container's codec is {codec[:20]!r}; there are: {names}")
    unpacker = unpackers[codec]()
    try:
        unpacked: bytes = unpacker.decompress(data, CONTAINER_BYTES_MAX)
    except (zlib.error, OSError, lzma.LZMAError, EOFError) as error:
        raise Undecodable("not_avro", f"the container's block is damaged: {error}") from error
    if not unpacker.eof:
        too_large = len(unpacked) >= CONTAINER_BYTES_MAX
        why = f"unpacks to more than {CONTAINER_BYTES_MAX:,} bytes" if too_large else "is incomplete"
        raise Undecodable("too_large" if too_large else "not_avro", f"the container's block {why}")
    return unpacked
