"""The contract is a valid OpenAPI document and keeps the rules that its head states. Nothing is sent here."""

from collections.abc import Iterator
from typing import Any

import orjson

from engine.settings import rules
from engine.topic_settings import TopicSettings
from openapi import Operation, contract_json, load_contract, operations, resolve
from tests.cells import each_cell

CONTRACT = load_contract()
OPERATIONS = list(operations(CONTRACT))
PROBLEMS: dict[str, dict[str, Any]] = CONTRACT["x-penstock-problems"]
# These apply to paths outside the contract, or to the head of any request, so no operation lists them.
CODES_OF_NO_OPERATION = {"not_found", "method_not_allowed", "host_not_allowed", "unsupported_transfer_coding",
                         "malformed_request", "headers_too_large", "unknown_method",
                         "unsupported_http_version"}  # fmt: skip

each_operation = each_cell("operation", OPERATIONS, ids=lambda op: op.operation_id)


def test_document_is_valid_openapi() -> None:
    from openapi_spec_validator import validate  # seconds, which each worker that collects would need

    validate(CONTRACT)


def test_json_form_is_the_same_document() -> None:
    assert orjson.loads(contract_json()) == CONTRACT


def test_operation_ids_are_unique_and_snake_case() -> None:
    ids = [operation.operation_id for operation in OPERATIONS]
    assert len(ids) == len(set(ids))
    assert all(name.isidentifier() and name == name.lower() for name in ids)


@each_operation
def test_operation_explains_itself(operation: Operation) -> None:
    assert operation.spec["summary"]
    assert operation.spec["description"].strip()
    assert operation.spec["tags"][0] in {tag["name"] for tag in CONTRACT["tags"]}
    for parameter in map(_resolve, operation.spec["parameters"]):
        assert parameter["description"].strip(), parameter["name"]


@each_operation
def test_operation_lists_exactly_the_statuses_of_its_codes(operation: Operation) -> None:
    statuses_of_codes = {str(PROBLEMS[code]["status"]) for code in operation.spec["x-penstock-codes"]}
    error_statuses = {status for status in operation.spec["responses"] if int(status) >= 400}
    assert statuses_of_codes == error_statuses


@each_operation
def test_errors_are_problem_documents(operation: Operation) -> None:
    for status, response in operation.spec["responses"].items():
        media_types = set(_resolve(response).get("content", {}))
        if int(status) >= 400:
            assert media_types == {"application/problem+json"}
        else:
            assert "application/problem+json" not in media_types


@each_operation
def test_every_operation_refuses_heads_that_are_wrong(operation: Operation) -> None:
    assert {"invalid_header", "forbidden"} <= set(operation.spec["x-penstock-codes"])


@each_operation
def test_path_parameters_are_those_of_the_path(operation: Operation) -> None:
    declared = {p["name"] for p in map(_resolve, operation.spec["parameters"]) if p["in"] == "path"}
    in_path = {part[1:-1] for part in operation.path.split("/") if part.startswith("{")}
    assert declared == in_path


def test_every_code_belongs_to_an_operation() -> None:
    used = {code for operation in OPERATIONS for code in operation.spec["x-penstock-codes"]}
    assert used | CODES_OF_NO_OPERATION == set(PROBLEMS)


@each_cell("code", PROBLEMS)
def test_a_problem_says_what_to_do(code: str) -> None:
    problem = PROBLEMS[code]
    assert set(problem) == {"status", "retryable", "no_side_effects", "title", "what_to_do"}
    assert problem["title"]
    assert problem["what_to_do"].endswith(".")
    if problem["status"] in (429, 503):
        assert problem["retryable"]


@each_operation
def test_links_name_operations_and_all_that_their_paths_need(operation: Operation) -> None:
    targets = {target.operation_id: target for target in OPERATIONS}
    for response in map(_resolve, operation.spec["responses"].values()):
        for link in map(_resolve, response.get("links", {}).values()):
            target = targets[link["operationId"]]
            known = {f"{p['in']}.{p['name']}" for p in map(_resolve, target.spec["parameters"])}
            needed = {name for name in known if name.startswith("path.")}
            assert needed <= set(link["parameters"]) <= known
            assert link["description"].endswith(".")


@each_operation
def test_request_schemas_refuse_unknown_fields(operation: Operation) -> None:
    body = _resolve(operation.spec.get("requestBody", {}))
    for media_type, media in body.get("content", {}).items():
        for schema in _objects_within(media["schema"]):
            assert "additionalProperties" in schema, (media_type, schema)


@each_operation
def test_answers_may_gain_fields(operation: Operation) -> None:
    for response in map(_resolve, operation.spec["responses"].values()):
        for media in response.get("content", {}).values():
            for schema in _objects_within(media["schema"]):
                # A header's {"base64": ...} is the same complete form in requests and answers.
                is_header = set(schema["properties"]) == {"base64"}
                assert is_header or schema.get("additionalProperties") is not False


def test_topic_config_is_that_of_the_engine() -> None:
    declared = CONTRACT["components"]["schemas"]["TopicConfig"]["properties"]
    assert set(declared) == {rule.name for rule in rules(TopicSettings)}
    for rule in rules(TopicSettings):
        schema = declared[rule.name]
        assert schema["default"] == rule.default, rule.name
        assert tuple(schema.get("enum", ())) == rule.choices, rule.name
        most = schema.get("maximum", schema.get("maxLength"))
        assert (schema.get("minimum"), most) == (rule.minimum, rule.maximum), rule.name
        assert ("null" in schema["type"]) == rule.optional, rule.name


def _resolve(value: dict[str, Any]) -> dict[str, Any]:
    return resolve(CONTRACT, value)


def _objects_within(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the schema and all subschemas that describe objects with named properties."""
    schema = _resolve(schema)
    if "properties" in schema:
        yield schema
    inner = [schema.get("items"), schema.get("additionalProperties"), *schema.get("properties", {}).values()]
    for keyword in ("allOf", "anyOf", "oneOf"):
        inner += schema.get(keyword, [])
    for part in inner:
        if isinstance(part, dict):
            yield from _objects_within(part)
