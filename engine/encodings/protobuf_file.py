"""A Protobuf schema of a registry: its messages, by the indexes in the header of their values.

A registry gives a file as its descriptor (`format=serialized`), and those that it imports as references; the files of
`google/protobuf/` come with the library.
"""

from __future__ import annotations

import math
from base64 import b64decode
from binascii import Error as Base64Error
from importlib import import_module

from google.protobuf import descriptor_pb2
from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, Message

from engine.encodings.protobuf_message import MessageKind, indexes_of
from engine.encodings.registry import REFERENCE_DEPTH_MAX, REFERENCES_MAX, Registry
from engine.encodings.undecodable import Undecodable

_FIRST, _FIRST_INDEX = (0,), b"\0"


class ProtobufFile:
    """The messages of one file. Any thread may use it. Invariant: `_kinds` has only messages that the file has."""

    def __init__(self, registry: Registry, schema_id: int) -> None:
        """Raises RegistryUnavailable, ValueError."""
        self._kinds: dict[tuple[int, ...], MessageKind | None] = {}  # None: its types are nested too deeply
        pool = DescriptorPool()
        name = _add_file(pool, registry, schema_id, "", set())
        self._messages = list(pool.FindFileByName(name).message_types_by_name.values())

    def parse(self, value: bytes, text_bytes_max: float = math.inf) -> tuple[MessageKind, Message]:
        """Returns the message of a value with its header. Raises Undecodable, also for one that has about more JSON."""
        kind, data = self._split(value)
        message = kind.parse(data, text_bytes_max)
        if not message.IsInitialized():
            raise Undecodable("not_protobuf", "a required field is missing")
        return kind, message

    def encode(self, text: bytes) -> bytes:
        """Returns the first message of the file, from its JSON, behind its index. Raises Undecodable."""
        kind = self._kinds.get(_FIRST) or MessageKind(self._descriptor(_FIRST))
        self._kinds[_FIRST] = kind
        return _FIRST_INDEX + kind.encode(text)

    def _split(self, value: bytes) -> tuple[MessageKind, bytes]:
        indexes, end = indexes_of(value)
        path = tuple(indexes)
        if path not in self._kinds:
            descriptor = self._descriptor(path)
            try:
                self._kinds[path] = MessageKind(descriptor)
            except RecursionError:
                self._kinds[path] = None
        kind = self._kinds[path]
        if kind is None:
            raise Undecodable("nested_too_deeply", f"the messages within {list(path)} are nested too deeply")
        return kind, value[end:]

    def _descriptor(self, path: tuple[int, ...]) -> Descriptor:
        messages, found = self._messages, None
        for index in path:
            if index >= len(messages):
                raise Undecodable("not_protobuf", f"the schema has no message {list(path)}")
            found = messages[index]
            messages = list(found.nested_types)
        assert found is not None, path
        return found


def _add_file(
    pool: DescriptorPool, registry: Registry, schema_id: int, name: str, added: set[str], depth: int = 0
) -> str:
    """Adds the file of a schema, after those that it imports. Returns its name. Raises as `ProtobufFile` does."""
    if depth > REFERENCE_DEPTH_MAX or len(added) > REFERENCES_MAX:
        raise ValueError("it refers to too many others")
    registered = registry.read_serialized(schema_id)
    if registered is None:
        raise ValueError(f"the schema {schema_id} is not in the registry any more")
    try:
        file = descriptor_pb2.FileDescriptorProto.FromString(b64decode(registered.schema, validate=True))
    except (DecodeError, Base64Error, ValueError):
        raise ValueError("the registry does not give Protobuf as a descriptor (format=serialized)") from None
    file.name = name or file.name or f"{schema_id}.proto"
    for reference in registered.references:
        if reference.name in added:
            continue
        other = registry.read_referenced(reference)
        if other is None or other.id is None:
            raise ValueError(f"{reference.subject} version {reference.version} is not in the registry")
        added.add(reference.name)
        _add_file(pool, registry, other.id, reference.name, added, depth + 1)
    for dependency in file.dependency:
        if dependency not in added and dependency.startswith("google/protobuf/"):
            added.add(dependency)
            _add_well_known(pool, dependency)
    try:
        pool.Add(file)
    except TypeError as error:
        raise ValueError(str(error)) from None
    return str(file.name)


def _add_well_known(pool: DescriptorPool, name: str) -> None:
    """Adds a file that each implementation of Protobuf brings. Raises ValueError."""
    stem = name.removeprefix("google/protobuf/").removesuffix(".proto")
    try:
        module = import_module(f"google.protobuf.{stem if stem.isidentifier() else ''}_pb2")
    except (ModuleNotFoundError, ValueError):
        raise ValueError(f"there is no {name}") from None
    file = descriptor_pb2.FileDescriptorProto()
    module.DESCRIPTOR.CopyToProto(file)
    for dependency in file.dependency:
        _add_well_known(pool, dependency)
    pool.Add(file)
