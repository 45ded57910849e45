"""Requests that are invalid for any operation: names, methods, paths, headers, sizes. Each gets a problem, without side
effects.
"""

import time

import pytest

from engine.format import batch
from openapi import load_contract, operations, resolve
from tests.scenarios.conformity import assert_problem
from tests.scenarios.gateways import RECORD_BATCH, in_process_only

OPERATIONS = list(operations(load_contract()))
SETTING = b'{"config":{"kind":"%b"}}'
IDS = {"ids": lambda operation: operation.operation_id}


def path_of(operation, topic="no-such-topic", group="g"):
    path = operation.path.replace("{topic}", topic).replace("{partition}", "0").replace("{node_id}", "1")
    path = path.replace("{group}", group).replace("{member}", "m").replace("{key}", "k").replace("{subscription}", "s")
    path = path.replace("{rule}", "r").replace("{token}", "t").replace("{tenant}", "acme").replace("{guide}", "start")
    return path.replace("{owner}/{name}", "tenant/acme")


@in_process_only
@pytest.mark.parametrize("operation", [one for one in OPERATIONS if one.operation_id != "console_asset"], **IDS)
async def test_an_unknown_query_name_is_refused_everywhere(topic, operation):
    """But for the files of the console: a file that is not there is the first thing to say."""
    answer = await topic.gateway.send(operation.method, path_of(operation, topic.name), b"", colour="red")
    assert_problem(answer, "unknown_query", parameter="colour", no_side_effects=True)
    assert (await topic.gateway.send("GET", topic.path)).status == 200


@in_process_only
@pytest.mark.parametrize("operation", OPERATIONS, **IDS)
async def test_a_head_that_is_wrong_is_refused_everywhere(topic, operation):
    path = path_of(operation, topic.name)
    answer = await topic.gateway.send(operation.method, path, b"", {"Penstock-Client-Id": "a b"})
    assert_problem(answer, "invalid_header", no_side_effects=True)
    answer = await topic.gateway.send(operation.method, path, b"", {"Origin": "https://elsewhere.example"})
    assert_problem(answer, "forbidden", no_side_effects=True)
    assert (await topic.gateway.send("GET", topic.path)).status == 200


@in_process_only
@pytest.mark.parametrize("operation", [operation for operation in OPERATIONS if "requestBody" in operation.spec], **IDS)
async def test_a_body_is_optional_where_the_contract_says_so(gateway, new_name, operation):
    """Compares `required` of the contract with the answer to a request without a body."""
    body = resolve(load_contract(), operation.spec["requestBody"])
    topic = await gateway.create(new_name())
    kind = "share" if operation.operation_id == "acquire_records" else "consumer"
    if operation.operation_id in ("alter_group", "acquire_records"):
        await gateway.send("PUT", path_of(operation, group=kind).removesuffix("/acquire"), SETTING % kind.encode())
    if operation.operation_id == "rotate_token":
        headers = {"Content-Type": "application/json"}
        assert (await gateway.send("POST", "/v1/access/tokens", b'{"name":"t"}', headers)).status == 201
    answer = await gateway.send(operation.method, path_of(operation, topic.name, kind), b"")
    assert (answer.status < 400) == (not body.get("required", False)), answer.body


@in_process_only
@pytest.mark.parametrize("operation", [operation for operation in OPERATIONS if "{topic}" in operation.path], **IDS)
async def test_an_unknown_topic_is_reported_by_every_route(gateway, operation):
    if operation.operation_id == "create_topic":
        return
    body = {"PATCH": b'{"config":{}}', "PUT": b'{"token":"a"}', "POST": b"1"}.get(operation.method, b"")
    headers = {"Content-Type": "application/json"} if operation.method in ("PATCH", "PUT") else {}
    queries = {"fetch": {"offset": 0}, "delete_records": {"before": 1}, "describe_source": {"name": "a"}}
    query = queries.get(operation.operation_id, {})
    answer = await gateway.send(operation.method, path_of(operation), body, headers, **query)
    assert_problem(answer, "unknown_topic")


@in_process_only
async def test_request_ids_differ(gateway):
    ids = [(await gateway.send("GET", "/healthz")).headers["Penstock-Request-Id"] for _ in range(5)]
    assert len(set(ids)) == 5


@in_process_only
async def test_a_record_over_the_limit_of_its_topic_is_refused(new_topic):
    topic = await new_topic(record_bytes_max=100)
    fits, over = "x" * 96, "x" * 99
    assert (await topic.post_lines(f'"{fits}"')).status == 200
    for answer in (
        await topic.post_lines("1", f'"{over}"'),
        await topic.post_records({"value": 1}, {"value": over}),
        await topic.post_records({"key": "k" * 60, "value": "v" * 60}),
        await topic.post_records({"value": 1, "headers": {"h" * 60: "v" * 60}}),
        await topic.post(b"x" * 101, "text/plain"),
    ):
        assert_problem(answer, "record_too_large", limit=100, no_side_effects=True)
    assert (await topic.positions())["log_end"] == 1


@in_process_only
async def test_a_batch_over_the_limit_of_its_topic_is_refused(new_topic):
    topic = await new_topic(batch_bytes_max=2_000, record_bytes_max=1_000)
    assert (await topic.post_lines(*['"' + "x" * 500 + '"'] * 3)).status == 200
    assert_problem(await topic.post_lines(*['"' + "x" * 500 + '"'] * 4), "batch_too_large", limit=2_000)
    assert (await topic.positions())["log_end"] == 3


@in_process_only
async def test_a_body_over_the_limit_of_the_node_is_refused(start_gateway):
    topic = await (await start_gateway(request_body_bytes_max=10_000)).create("small-bodies")
    assert (await topic.post(b"x" * 10_000, "text/plain")).status == 200
    for size in (10_001, 500_000, 3_000_000):
        assert_problem(await topic.post(b"x" * size, "text/plain"), "body_too_large", limit=10_000)
    assert (await topic.positions())["log_end"] == 1


@in_process_only
async def test_more_records_than_the_node_takes_at_once_are_refused(start_gateway):
    topic = await (await start_gateway(records_per_request_max=10)).create("few-records")
    assert (await topic.post_lines(*["1"] * 10)).status == 200
    assert_problem(await topic.post_lines(*["1"] * 11), "body_too_large", limit=10)
    assert_problem(await topic.post_records(*[{"value": 1}] * 11), "body_too_large", limit=10)
    assert (await topic.positions())["log_end"] == 10


@in_process_only
async def test_batches_that_no_empty_queue_could_hold_are_refused_for_good(start_gateway):
    """With a retryable error, as from a busy node, a client would retry forever. Small values grow most."""
    gateway = await start_gateway(append_queue_bytes_max=2**20, request_body_bytes_max=2**20)
    topic = await gateway.create("busy")
    lines = b"1\n" * 180_000
    problem = assert_problem(await topic.post(lines, "application/x-ndjson"), "body_too_large", limit=2**20)
    assert (problem["retryable"], problem["no_side_effects"]) == (False, True)
    assert (await topic.positions())["log_end"] == 0
    assert (await topic.post(lines[:100_000], "application/x-ndjson")).status == 200


@in_process_only
async def test_a_time_far_in_the_future_is_refused(topic):
    """Otherwise its segment would never expire."""
    ahead = int(time.time() * 1000) + 2 * 3_600_000
    problem = assert_problem(await topic.post_records({"value": 1}, {"value": 2, "timestamp": ahead}), "invalid_body")
    assert problem["record"] == 1
    assert_problem(await topic.post(bytes(batch.encode_values([b"1"], ahead)), RECORD_BATCH), "invalid_body")
    assert await topic.records() == []
