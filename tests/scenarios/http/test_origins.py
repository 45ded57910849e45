"""Pages of other origins are rejected unless they are configured; configured ones get CORS headers. HEAD and
OPTIONS.
"""

import re

import pytest

from engine.errors import StartRefused
from gateway.access.origins import EXPOSED, Origins
from gateway.http.problems import Problem
from gateway.settings import NodeSettings
from node.setup.setting_sources import load_settings
from openapi import load_contract, operations
from tests.gateway.requests import request_of
from tests.scenarios.conformity import assert_problem
from tests.scenarios.event_source import event_source
from tests.scenarios.gateways import http2_only

PAGE = "https://app.example.org"
GETS = [operation for operation in operations(load_contract()) if operation.method == "GET"]


def preflight(method, headers="authorization,content-type,ce-id", origin=PAGE):
    given = {"Origin": origin, "Access-Control-Request-Method": method}
    return given | ({"Access-Control-Request-Headers": headers} if headers else {})


@pytest.mark.parametrize(
    ("origin", "host", "advertised_url", "is_own"),
    [
        ("http://node", "node", "", True),
        ("http://Node:80", "node", "", True),
        ("https://node", "node:443", "", True),
        ("http://node", "node:443", "", False),
        ("http://node:8080", "node", "", False),
        ("https://events.example.org", "10.0.0.7:8080", "https://events.example.org/", True),
        ("https://events.example.org:444", "10.0.0.7:8080", "https://events.example.org", False),
        ("", "", "", False),
        ("null", "null", "", False),
    ],
)
def test_which_origin_is_the_node_itself(origin, host, advertised_url, is_own):
    origins = Origins(NodeSettings(advertised_url=advertised_url))
    request = request_of({"Origin": origin, "Host": host})
    if is_own:
        assert origins.answer_headers(request) == {}
    else:
        with pytest.raises(Problem, match="forbidden"):
            origins.answer_headers(request)


@pytest.mark.parametrize("wrong", ["app.example.org", "https://a/", "https://a b", "https://a,x", "https://u@a"])
def test_a_setting_that_names_no_origin_is_refused_at_the_start(wrong):
    with pytest.raises(StartRefused, match="not an origin"):
        load_settings({"cors_origins": wrong}, {})


@http2_only
async def test_a_page_that_is_named_may_call_and_read_the_answer(start_gateway):
    gateway = await start_gateway(cors_origins=f"http://localhost:3000, {PAGE}")
    topic = await gateway.create("named")
    for origin in (PAGE, "http://localhost:3000"):
        for answer in (
            await topic.post(b"1", "text/plain", {"Origin": origin}),
            await topic.gateway.send("GET", "/v1/topics/none", headers={"Origin": origin}),
        ):
            assert answer.headers["Access-Control-Allow-Origin"] == origin, answer.body
            assert answer.headers["Access-Control-Expose-Headers"] == EXPOSED
            assert "Origin" in answer.headers.getall("Vary")
    assert_problem(
        await topic.gateway.send("GET", topic.path, headers={"Origin": "http://localhost:3001"}), "forbidden"
    )
    assert "Origin" in (await topic.fetch(0)).headers.getall("Vary"), (
        "a cache must not give one origin's answer to another"
    )
    async with event_source(gateway.port, f"{topic.path}/records?from=earliest", {"Origin": PAGE}) as stream:
        assert stream.headers["Access-Control-Allow-Origin"] == PAGE
        assert (await stream.next()).json["value"] == "1"


@http2_only
async def test_a_preflight_is_answered_for_what_the_path_takes(start_gateway):
    gateway = await start_gateway(cors_origins="*")
    answer = await gateway.send("OPTIONS", "/v1/topics/t/records", headers=preflight("POST"))
    assert (answer.status, answer.body) == (204, b"")
    assert answer.headers["Access-Control-Allow-Origin"] == "*"
    assert "POST" in answer.headers["Access-Control-Allow-Methods"].split(", ")
    assert answer.headers["Access-Control-Allow-Headers"] == "authorization,content-type,ce-id"
    assert int(answer.headers["Access-Control-Max-Age"]) > 0
    answer = await gateway.send("OPTIONS", "/v1/topics/t/records", headers=preflight("POST", "a\tb"))
    assert "Access-Control-Allow-Headers" not in answer.headers
    assert_problem(await gateway.send("OPTIONS", "/nowhere", headers=preflight("GET")), "not_found")


@pytest.mark.parametrize("operation", GETS, ids=lambda operation: operation.operation_id)
async def test_a_head_is_the_get_without_its_body(topic, operation):
    await topic.post(b"1", "text/plain")
    path = operation.path.replace("{topic}", topic.name).replace("{partition}", "0")
    query = {"from": "earliest"} if operation.operation_id == "fetch" else {}
    get = await topic.gateway.send("GET", path, **query)
    head = await topic.gateway.send("HEAD", path, **query)
    assert (head.status, head.body) == (get.status, b"")
    ours = {
        "Content-Type",
        "Penstock-Next-Offset",
        "Penstock-High-Watermark",
        "Penstock-Log-Start",
        "Cache-Control",
        "ETag",
    }
    assert {name: head.headers.get(name) for name in ours} == {name: get.headers.get(name) for name in ours}
    if operation.operation_id not in ("metrics", "tail_topic"):
        own_id, other_id = (answer.headers["Penstock-Request-Id"] for answer in (head, get))  # a problem's body has it
        longer = len(own_id) - len(other_id) if get.status >= 400 else 0
        assert int(head.headers.get("Content-Length", "0")) == len(get.body) + longer


async def test_a_head_never_waits(topic):
    answer = await topic.gateway.send("HEAD", f"{topic.path}/partitions/0/records?from=latest&wait_ms=60000")
    assert (answer.status, answer.headers["Penstock-Next-Offset"]) == (200, "0")


async def test_a_head_of_a_stream_ends(topic):
    answer = await topic.gateway.send("HEAD", f"{topic.path}/records", headers={"Accept": "text/event-stream"})
    assert (answer.status, answer.headers["Content-Type"]) == (200, "text/event-stream")


def test_every_header_of_an_answer_in_the_contract_is_exposed():
    text = str([operation.spec["responses"] for operation in operations(load_contract())]) + str(
        load_contract()["components"]["headers"]
    )
    answered = set(re.findall(r"'((?:Penstock|Producer)-[A-Za-z-]+)'", text))
    assert answered <= set(EXPOSED.split(", "))
