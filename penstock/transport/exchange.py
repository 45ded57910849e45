"""One request and its answer as values, and the conversion of an answer into JSON or an error.

Without sockets: penstock/transport/transport.py (aiohttp) and penstock/admin/single_request.py (standard library) send
and receive these.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

import orjson

from penstock.errors import ProblemError

Json = dict[str, Any]

_PROBLEM_MEMBERS = frozenset(
    {"type", "title", "status", "code", "detail", "retryable", "no_side_effects", "request_id", "instance"}
)
# Without a problem document a proxy answered, not the node: these statuses may be temporary.
_RETRYABLE_STATUSES = frozenset({408, 425, 429, 502, 503, 504})
_DETAIL_CHARACTERS = 300  # enough of a proxy's error page to recognise it


Query = Mapping[str, str | int | tuple[str, ...]]  # several values of a name are a tuple


class Request(NamedTuple):
    method: str
    path: str
    query: Query = MappingProxyType({})
    body: bytes | None = None
    headers: Mapping[str, str] = {}

    @property
    def target(self) -> str:
        """Path and query of the request line."""
        return f"{self.path}?{urlencode(self.query, doseq=True, quote_via=quote)}" if self.query else self.path


class Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]  # case-insensitive
    body: bytes

    def json(self) -> Json:
        """Returns the JSON document of a 2xx answer; {} if it has no body. Raises ProblemError for any other answer."""
        self.check()
        if not self.body:
            return {}
        try:
            document = orjson.loads(self.body)
        except orjson.JSONDecodeError:
            document = None
        if not isinstance(document, dict):
            raise not_a_node(self)
        return document

    def check(self) -> None:
        """Raises ProblemError unless the status is 2xx."""
        if not 200 <= self.status < 300:
            raise problem_of(self)


def problem_of(answer: Answer) -> ProblemError:
    """Returns the error of an answer. Without a problem document, the request counts as possibly carried out."""
    try:
        document = orjson.loads(answer.body)
    except orjson.JSONDecodeError:
        document = None
    if not isinstance(document, dict) or not isinstance(document.get("code"), str):
        return _foreign_error(answer)
    return problem_from(document, answer.status, answer.headers)


def problem_from(document: Json, status: int, headers: Mapping[str, str]) -> ProblemError:
    """Returns the error of a problem document: a whole answer, or one partition's part of a 207."""
    return ProblemError(
        str(document.get("detail") or document.get("title") or document["code"]),
        status=status,
        code=document["code"],
        title=str(document.get("title", "")),
        retryable=document.get("retryable") is True,
        no_side_effects=document.get("no_side_effects") is True,
        retry_after_ms=_retry_after_ms(headers),
        request_id=str(document.get("request_id", "")),
        members={name: value for name, value in document.items() if name not in _PROBLEM_MEMBERS},
    )


def not_a_node(answer: Answer) -> ProblemError:
    """Returns the error for a 2xx status with a body that no node sends."""
    return ProblemError(
        "the answer is not a JSON document; is this the address of a Penstock node?",
        status=answer.status,
        code="not_a_node",
        retryable=False,
        no_side_effects=False,
    )


def _foreign_error(answer: Answer) -> ProblemError:
    text = answer.body[:_DETAIL_CHARACTERS].decode("utf-8", "replace").strip()
    return ProblemError(
        f"HTTP status {answer.status} without a problem document" + (f": {text}" if text else ""),
        status=answer.status,
        code=f"http_{answer.status}",
        retryable=answer.status in _RETRYABLE_STATUSES,
        no_side_effects=False,
        retry_after_ms=_retry_after_ms(answer.headers),
    )


def _retry_after_ms(headers: Mapping[str, str]) -> int | None:
    """Parses Retry-After in seconds. The date form comes from proxies only; the client's own backoff replaces it."""
    text = headers.get("Retry-After")
    return int(text) * 1000 if text is not None and text.isdecimal() else None
