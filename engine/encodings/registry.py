"""Schemas by their id in a registry with Confluent's API: `GET /schemas/ids/{id}`. A schema may be registered too.

A schema of an id never changes, so a worker asks for each id once. The environment variable AUTH (`user:password`)
authenticates; plans do not have it. A registry that does not answer is a retryable error.
"""

from __future__ import annotations

import os
from base64 import b64encode
from collections.abc import Callable
from functools import partial
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from io import BufferedReader, RawIOBase
from socket import socket
from typing import Annotated, Any, TypeVar
from urllib.error import HTTPError
from urllib.parse import quote, urlsplit
from urllib.request import HTTPHandler, HTTPRedirectHandler, HTTPSHandler, Request, build_opener

import msgspec

from engine.errors import EngineError

T = TypeVar("T")

AUTH = "PENSTOCK_SCHEMA_REGISTRY_AUTH"
TIMEOUT_S = 10.0
ANSWER_BYTES_MAX = 4 << 20
REFERENCES_MAX = 100
REFERENCE_DEPTH_MAX = 10
HEADER_BYTES = 5  # of a value: a zero byte, and the id of its schema


class RegistryUnavailable(EngineError):
    """The schema registry does not answer, or rejects the request. Check it and run again; the plan is resumed."""

    code = "registry_unavailable"
    retryable = True


class RefusedSchema(ValueError):
    """The registry does not take a schema."""


class Reference(msgspec.Struct, frozen=True):
    name: str
    subject: str
    version: int


class RegisteredSchema(msgspec.Struct, frozen=True):
    """A schema. `id` is that of a schema which was asked for by its subject."""

    schema: str
    schemaType: str = "AVRO"  # noqa: N815 - the name of the API
    references: tuple[Reference, ...] = ()
    id: int | None = None


class _Id(msgspec.Struct, frozen=True):
    id: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]


class _Version(msgspec.Struct, frozen=True):
    subject: str
    version: int


class _NoRedirects(HTTPRedirectHandler):
    """Follows no redirect: another address must not get the password."""

    def redirect_request(self, *_: object) -> None:
        return None


class _TimedReader(RawIOBase):
    """Reads a socket until `end`: an answer in drops, of headers too, would start the timeout of the socket again."""

    def __init__(self, connection: socket, monotonic: Callable[[], float], end: float) -> None:
        self._socket = connection
        self._raw = connection.makefile("rb", buffering=0)
        self._monotonic = monotonic
        self._end = end

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        """Raises TimeoutError."""
        left_s = self._end - self._monotonic()
        if left_s <= 0:
            raise TimeoutError("the answer did not end in time")
        self._socket.settimeout(left_s)
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


class _TimedAnswer(HTTPResponse):
    """An answer that is read until `end`, from its first byte on."""

    def __init__(self, monotonic: Callable[[], float], end: float, sock: socket, *args: Any, **options: Any) -> None:
        super().__init__(sock, *args, **options)
        self.fp.close()
        self.fp = BufferedReader(_TimedReader(sock, monotonic, end))


class _Http(HTTPHandler):
    """Opens connections whose answers have to be whole in the timeout of the request."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        super().__init__()
        self._monotonic = monotonic

    def http_open(self, req: Request) -> HTTPResponse:
        return self.do_open(partial(_make_connection, HTTPConnection, self._monotonic), req)


class _Https(HTTPSHandler):
    def __init__(self, monotonic: Callable[[], float]) -> None:
        super().__init__()
        self._monotonic = monotonic

    def https_open(self, req: Request) -> HTTPResponse:
        return self.do_open(partial(_make_connection, HTTPSConnection, self._monotonic), req)


def _make_connection(
    kind: type[HTTPConnection], monotonic: Callable[[], float], host: str, *, timeout: float, **options: Any
) -> HTTPConnection:
    answer_by = {"response_class": staticmethod(partial(_TimedAnswer, monotonic, monotonic() + timeout))}
    timed: type[HTTPConnection] = type(kind.__name__, (kind,), answer_by)
    return timed(host, timeout=timeout, **options)


_NOT_THERE = (400, 404, 409, 422)  # the registry has no such id, or none can have it, or takes no such schema


class Registry:
    """Reads and registers schemas. Keeps no answers; decoders keep what they made of them.

    An answer that is not whole after `timeout_s` is none.
    """

    def __init__(self, url: str, monotonic: Callable[[], float], timeout_s: float = TIMEOUT_S) -> None:
        """`monotonic`: the time in seconds, which never goes back."""
        self._opener = build_opener(_NoRedirects, _Http(monotonic), _Https(monotonic))
        self._url = url.rstrip("/")
        self._timeout_s = timeout_s

    def schema(self, schema_id: int) -> RegisteredSchema | None:
        """Returns a schema; None if the registry does not have the id. Raises RegistryUnavailable."""
        return self._get(f"/schemas/ids/{schema_id}", RegisteredSchema)

    def read_serialized(self, schema_id: int) -> RegisteredSchema | None:
        """Returns a schema of Protobuf as the base64 of its FileDescriptorProto, and as `schema` does."""
        return self._get(f"/schemas/ids/{schema_id}?format=serialized", RegisteredSchema)

    def read_referenced(self, reference: Reference) -> RegisteredSchema | None:
        path = f"/subjects/{quote(reference.subject, safe='')}/versions/{reference.version}"
        return self._get(path, RegisteredSchema)

    def subjects(self, schema_id: int) -> frozenset[str]:
        """Returns the subjects that have a schema. Raises RegistryUnavailable."""
        versions = self._get(f"/schemas/ids/{schema_id}/versions", list[_Version])
        return frozenset(version.subject for version in versions or ())

    def register(self, subject: str, kind: str, schema: str) -> int:
        """Returns the id of a schema, which the subject has then. Raises RegistryUnavailable, RefusedSchema."""
        body = msgspec.json.encode({"schemaType": kind, "schema": schema})
        registered = self._get(f"/subjects/{quote(subject, safe='')}/versions", _Id, body)
        if registered is None:
            raise RefusedSchema(f"the registry does not take the schema for the subject {subject}")
        return registered.id

    def _get(self, path: str, kind: type[T], body: bytes | None = None) -> T | None:
        """Returns the answer to a GET, or to a POST of a body; None if there is no such thing."""
        headers = {"accept": "application/vnd.schemaregistry.v1+json, application/json"}
        if body is not None:
            headers["content-type"] = "application/vnd.schemaregistry.v1+json"
        if auth := os.environ.get(AUTH):
            headers["authorization"] = f"Basic {b64encode(auth.encode()).decode()}"
        try:
            with self._opener.open(Request(self._url + path, body, headers), timeout=self._timeout_s) as answer:  # noqa: S310 - url_problem
                return msgspec.json.decode(answer.read(ANSWER_BYTES_MAX), type=kind)
        except HTTPError as error:
            with error:
                if error.code in _NOT_THERE:
                    return None
            raise RegistryUnavailable(f"{self._url}{path}: {error}") from error
        except (OSError, HTTPException, msgspec.DecodeError, RecursionError) as error:
            raise RegistryUnavailable(f"{self._url}{path}: {error}") from error


def schema_id_of(value: bytes) -> int | None:
    """Returns the id of the schema that a value names in its first bytes; None if it does not begin so."""
    return int.from_bytes(value[1:HEADER_BYTES], "big") if len(value) >= HEADER_BYTES and not value[0] else None


def url_problem(url: str) -> str | None:
    """Returns why a URL is not one of a registry, and what to write; None if it is."""
    parts: Any = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return "is not a URL; write http://host:port or https://host"
    if "@" in parts.netloc:
        return f"has a password, and others would see it; set {AUTH}=user:password in the environment"
    return None
