"""Checks an answer against the contract: its status, its media type, its problem code and the shape of its JSON.

It runs for every answer in a scenario, so that scenarios need no code for it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from typing import Any

import orjson
from jsonschema_rs import Draft202012Validator

from openapi import Operation, load_contract, operations, resolve

JSON = "application/json"
CODES_OF_NO_OPERATION = ("not_found", "method_not_allowed", "host_not_allowed", "unsupported_transfer_coding",
                         "malformed_request", "headers_too_large", "unknown_method",
                         "unsupported_http_version")  # fmt: skip
PROBLEM = "application/problem+json"


def assert_conforms(method: str, path: str, status: int, headers: Mapping[str, str], body: bytes) -> None:
    assert headers.get("Penstock-Request-Id"), "every answer names its request"
    if method == "HEAD":
        assert body == b""
        return
    if status >= 400:
        _assert_is_problem(status, headers, body)
        if orjson.loads(body)["code"] in CODES_OF_NO_OPERATION:
            return
    operation = operation_of(method, path.partition("?")[0])
    if operation is None:
        return
    response = operation.spec["responses"].get(str(status))
    assert response is not None, f"{operation.operation_id} may not answer {status}: {body[:500]!r}"
    content = resolve(load_contract(), response).get("content", {})
    if not content:
        assert body == b""
        return
    media_type = headers.get("Content-Type", "").partition(";")[0]
    if "cloudevents=binary" in path and status < 400:
        media_type = "*/*"  # an event's data may have any media type
        assert headers["Content-Security-Policy"].startswith("sandbox"), "a script in it must not run at this origin"
        assert headers["Content-Disposition"] == "attachment"
    assert media_type in content, f"{operation.operation_id} may not answer with {media_type}"
    if status >= 400:
        assert orjson.loads(body)["code"] in operation.spec["x-penstock-codes"], (operation.operation_id, body)
    if media_type.endswith(("/json", "+json")):
        for error in _validator(operation.operation_id, status, media_type).iter_errors(json.loads(body)):
            raise AssertionError(f"{operation.operation_id} {status}: {error.message} at {error.instance_path}")


def assert_problem(answer: Any, code: str, **members: object) -> dict[str, Any]:
    """Assert that the answer is this problem and has these members; return the document."""
    problem: dict[str, Any] = orjson.loads(answer.body)
    assert problem.get("code") == code, problem
    for name, value in members.items():
        assert problem.get(name) == value, (name, problem)
    return problem


def operation_of(method: str, path: str) -> Operation | None:
    for pattern, operation in _patterns():
        if operation.method == method and pattern.fullmatch(path):
            return operation
    return None


def _assert_is_problem(status: int, headers: Mapping[str, str], body: bytes) -> None:
    assert headers["Content-Type"] == PROBLEM, body[:500]
    problem = orjson.loads(body)
    kind = load_contract()["x-penstock-problems"][problem["code"]]
    assert problem["status"] == status == kind["status"]
    assert problem["type"] == f"/docs#problem-{problem['code']}"
    assert problem["title"] == kind["title"]
    assert problem["retryable"] == kind["retryable"]
    assert isinstance(problem["no_side_effects"], bool)
    assert problem["request_id"] == headers["Penstock-Request-Id"]
    assert problem["detail"]
    assert ("Retry-After" in headers) == (status in (429, 503))


@cache
def _patterns() -> tuple[tuple[re.Pattern[str], Operation], ...]:
    return tuple(
        (re.compile(re.sub(r"\{\w+\}", "[^/]+", operation.path)), operation)
        for operation in operations(load_contract())
    )


@cache
def _validator(operation_id: str, status: int, media_type: str) -> Draft202012Validator:
    contract = load_contract()
    operation = next(operation for operation in operations(contract) if operation.operation_id == operation_id)
    response = resolve(contract, operation.spec["responses"][str(status)])
    schema = response["content"][media_type]["schema"]
    return Draft202012Validator({"components": contract["components"], **schema})
