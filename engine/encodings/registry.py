"""Schemas by their id in a registry with Confluent's API: `GET /schemas/ids/{id}`. A schema may be registered too.

A schema of an id never changes, so a worker asks for each id once. The environment variable AUTH (`user:password`)
authenticates; plans do not have it. A registry that does not answer is a retryable error.
"""

from __future__ import annotations

import os
from base64 import b64encode
from collections.abc import Callable
from http.client import HTTPException, HTTPResponse
from typing import Any, TypeVar
from urllib.error import HTTPError
from urllib.parse import quote, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

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
    id: int


class _Version(msgspec.Struct, frozen=True):
    subject: str
    version: int


class _NoRedirects(HTTPRedirectHandler):
    """Follows no redirect: another address must not get the password."""

    def redirect_request(self, *_: object) -> None:
        return None


_OPENER = build_opener(_NoRedirects)
_NOT_THERE = (400, 404, 409, 422)  # the registry has no such id, or none can have it, or takes no such schema


class Registry:
    """Reads and registers schemas. Keeps no answers; decoders keep what they made of them.

    An answer that is not whole after `timeout_s` is none.
    """

    def __init__(self, url: str, monotonic: Callable[[], float], timeout_s: float = TIMEOUT_S) -> None:
        """`monotonic`: the time in seconds, which never goes back."""
        self._monotonic = monotonic
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

    def _read(self, answer: HTTPResponse, end: float) -> bytes:
        """Returns the body. Raises TimeoutError if it comes in drops."""
        data = bytearray()
        while len(data) < ANSWER_BYTES_MAX and (piece := answer.read1(ANSWER_BYTES_MAX - len(data))):
            data += piece
            if self._monotonic() > end:
                raise TimeoutError("the answer did not end in time")
        return bytes(data)

    def _get(self, path: str, kind: type[T], body: bytes | None = None) -> T | None:
        """Returns the answer to a GET, or to a POST of a body; None if there is no such thing."""
        headers = {"accept": "application/vnd.schemaregistry.v1+json, application/json"}
        if body is not None:
            headers["content-type"] = "application/vnd.schemaregistry.v1+json"
        if auth := os.environ.get(AUTH):
            headers["authorization"] = f"Basic {b64encode(auth.encode()).decode()}"
        end = self._monotonic() + self._timeout_s
        try:
            with _OPENER.open(Request(self._url + path, body, headers), timeout=self._timeout_s) as answer:  # noqa: S310 - url_problem
                return msgspec.json.decode(self._read(answer, end), type=kind)
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
