"""The examples of the contract match the contract. Other tests send them to a node."""

from typing import Any
from urllib.parse import parse_qsl, urlsplit

import jsonschema_rs
import orjson

from openapi import Example, Expected, load_contract, load_examples, operations, resolve
from tests.cells import each_cell
from tests.contract.example_matching import differences

CONTRACT = load_contract()
OPERATIONS = {operation.operation_id: operation for operation in operations(CONTRACT)}
EXAMPLES = load_examples()
# Their bodies are invalid on purpose.
MALFORMED = {"28-malformed"}

each_example = each_cell("example", EXAMPLES, ids=lambda example: example.name)


def test_every_operation_has_an_example() -> None:
    assert {example.operation for example in EXAMPLES} == OPERATIONS.keys()


@each_example
def test_example_names_method_and_path_of_its_operation(example: Example) -> None:
    operation = OPERATIONS[example.operation]
    assert example.method == operation.method
    steps = urlsplit(example.path).path.split("/")
    template = operation.path.split("/")
    assert len(steps) == len(template)
    assert all(part.startswith("{") or part == step for part, step in zip(template, steps, strict=True))


@each_example
def test_example_uses_only_what_its_operation_has(example: Example) -> None:
    parameters = [_resolve(p) for p in OPERATIONS[example.operation].spec["parameters"]]
    usable = {p["name"] for p in parameters}
    query = urlsplit(example.path).query
    assert {name for name, _ in parse_qsl(query)} <= usable
    assert set(example.headers) - {"Content-Type", "Accept", "Host"} <= usable


@each_example
def test_example_body_has_the_form_of_the_contract(example: Example) -> None:
    if example.body is None or example.name in MALFORMED:
        return
    media_type = example.headers["Content-Type"].partition(";")[0]
    content = _resolve(OPERATIONS[example.operation].spec["requestBody"])["content"]
    media = content.get(media_type) or content["*/*"]
    if media_type.endswith(("/json", "+json")):
        _validate(orjson.loads(example.body), media["schema"])


@each_example
def test_expected_answer_has_the_form_of_the_contract(example: Example) -> None:
    response = _resolve(OPERATIONS[example.operation].spec["responses"][str(example.expect.status)])
    media_type = example.expect.headers.get("Content-Type")
    assert media_type is None or media_type in response["content"]
    expected = example.expect.json_subset
    if expected is None:
        return
    in_json = (media for name, media in response["content"].items() if name.endswith("json"))
    media = next(in_json) if media_type is None else response["content"][media_type]
    if _is_whole_answer(example):
        _validate(expected, media["schema"])


@each_example
def test_expected_problem_is_that_of_the_table(example: Example) -> None:
    if example.expect.status < 400:
        return
    problem = example.expect.json_subset
    listed = CONTRACT["x-penstock-problems"][problem["code"]]
    assert problem["code"] in (*OPERATIONS[example.operation].spec["x-penstock-codes"], "host_not_allowed")
    assert problem["type"] == f"/docs#problem-{problem['code']}"
    for name in ("status", "title", "retryable", "no_side_effects"):
        assert problem[name] == listed[name]
    assert example.expect.status == listed["status"]


def test_matching_finds_each_difference() -> None:
    expected = Expected(
        status=200,
        headers={"Content-Type": "application/json", "X-Next": "2"},
        json_subset={"a": 1, "list": [{"id": "x"}, {"id": "y"}], "gone": None},
        varies=("/list/*/id",),
    )
    right = {"a": 1, "list": [{"id": "p", "more": 1}, {"id": "q"}], "gone": None, "new": 1}
    headers = {"content-type": "application/json; charset=utf-8", "x-next": "2"}
    assert differences(expected, 200, headers, orjson.dumps(right)) == []

    assert differences(expected, 500, headers, orjson.dumps(right))
    assert differences(expected, 200, {**headers, "x-next": "3"}, orjson.dumps(right))
    for wrong in ({"a": 2}, {"a": True}, {"list": []}, {"list": [{"id": 1}, {"id": "y"}]}, {"gone": 0}):
        assert differences(expected, 200, headers, orjson.dumps({**right, **wrong})), wrong
    assert differences(expected, 200, headers, b'{"a":1,"list":[{"id":"x"},{"id":"y"}]}')
    assert differences(Expected(200, text="a\n"), 200, {}, b"a")
    assert differences(Expected(200, text_contains=("b",)), 200, {}, b"a")


def _is_whole_answer(example: Example) -> bool:
    """Examples may show a part of a long answer; these show a complete one."""
    return example.name not in {"05-create-topic-again", "31-openapi"}


def _validate(value: Any, schema: dict[str, Any]) -> None:
    jsonschema_rs.Draft202012Validator({"components": CONTRACT["components"], **schema}).validate(value)


def _resolve(value: dict[str, Any]) -> dict[str, Any]:
    return resolve(CONTRACT, value)
