"""Requests to running nodes, each on a connection of its own."""

from __future__ import annotations

import urllib.error
import urllib.request
from email.message import Message
from io import BytesIO
from typing import Any

import orjson

from tests.tokens import bearer

JSON, NDJSON = "application/json", "application/x-ndjson"
ANSWER_S = 60


def send(
    url: str, method: str = "GET", body: object = None, token: str = "", content_type: str = JSON
) -> tuple[int, Message, bytes]:
    """Return status, headers and body of an answer, whatever its status. Bytes are sent as they are, others as JSON."""
    data = body if body is None or isinstance(body, bytes) else orjson.dumps(body)
    headers = {"Content-Type": content_type, **(bearer(token) if token else {})}
    request = urllib.request.Request(url, data, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=ANSWER_S) as answer:
            return answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read()


def call(url: str, method: str = "GET", body: object = None, content_type: str = JSON) -> Any:
    """Return the document of an answer. Raises HTTPError if it is not a good one."""
    status, headers, answer = send(url, method, body, content_type=content_type)
    if status >= 400:
        raise urllib.error.HTTPError(url, status, answer.decode(), headers, BytesIO(answer))
    return orjson.loads(answer or b"null")
