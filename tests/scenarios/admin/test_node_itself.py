"""A node's information about itself: health, cluster, metrics, its contract and the page that shows it."""

import asyncio
import re
from functools import partial

import orjson
from multidict import CIMultiDict

from openapi import load_contract
from tests.scenarios.gateways import Answer, OverHttp2, in_process, in_process_only
from tests.scenarios.raw_http1 import exchange, request_head


async def test_a_node_that_runs_is_healthy_and_ready(gateway):
    assert (await gateway.send("GET", "/healthz")).json == {"status": "ok"}
    assert (await gateway.send("GET", "/readyz")).json == {"status": "ready"}


@in_process_only
async def test_the_cluster_is_this_node(start_gateway):
    gateway = await start_gateway(node_id=7, rack="r1")
    cluster = (await gateway.send("GET", "/v1/cluster")).json
    (node,) = cluster["nodes"]
    assert (node["node_id"], node["rack"], cluster["controller"]) == (7, "r1", 7)
    assert len(cluster["cluster_id"]) >= 16


async def test_the_leader_of_a_partition_is_this_node_and_its_url_answers(topic, form):
    (partition,) = (await topic.describe())["partitions"]
    (node,) = (await topic.gateway.send("GET", "/v1/cluster")).json["nodes"]
    assert partition["leader"] == node["node_id"]
    assert node["url"].endswith(f":{topic.gateway.port}")
    assert (partition["leader_url"] == node["url"]) == (form != "sharded"), "a shard has a port of its own besides"


async def test_the_contract_is_served_as_it_is_written(gateway):
    assert (await gateway.send("GET", "/openapi.json")).json == orjson.loads(orjson.dumps(load_contract()))


async def test_the_address_alone_leads_to_the_page_and_v1_to_the_paths(gateway):
    answer = await gateway.send("GET", "/")
    assert (answer.status, answer.headers["Location"]) == (302, "/docs")
    links = (await gateway.send("GET", "/v1")).json
    for name, path in links.items():
        if "{" not in path:
            assert (await gateway.send("GET", path)).status == 200, name
    contract = load_contract()["paths"]
    assert set(links.values()) <= set(contract)


async def test_options_of_the_node_lists_every_method(gateway):
    answer = await options_of_all(gateway)
    assert (answer.status, answer.headers["Allow"]) == (204, "DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT")


async def options_of_all(gateway):
    """Send `OPTIONS *`, which most HTTP/1.1 client libraries cannot send."""
    if isinstance(gateway, OverHttp2):
        return await gateway.send("OPTIONS", "*")
    send = partial(exchange, gateway.port, request_head("OPTIONS", "*"))
    head, _, body = (await asyncio.get_running_loop().run_in_executor(None, send)).partition(b"\r\n\r\n")
    status, *fields = head.decode().split("\r\n")
    return Answer(int(status.split()[1]), CIMultiDict(field.split(": ", 1) for field in fields), body)


async def test_the_page_needs_no_network(gateway):
    answer = await gateway.send("GET", "/docs")
    assert answer.headers["Content-Type"].startswith("text/html")
    assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
    assert b"problem-unknown_topic" in answer.body


async def test_the_page_has_the_address_that_it_was_called_by(gateway):
    page = (await gateway.send("GET", "/docs")).body.decode()
    assert f"http://127.0.0.1:{gateway.port}/v1/topics" in page
    assert "127.0.0.1:8080/v1" not in page


async def test_the_page_has_the_advertised_address_before_any_other(tmp_path):
    async with in_process(tmp_path, advertised_url="https://events.example.org") as gateway:
        assert b"https://events.example.org/v1/topics" in (await gateway.send("GET", "/docs")).body


async def test_metrics_count_what_happens(start_gateway):
    gateway = await start_gateway()
    topic = await gateway.create("counted")
    await topic.post_lines("1", "2", "3")
    await topic.fetch(offset=0)
    await topic.fetch(offset=99)
    text = re.sub(r'shard="\d",', "", (await gateway.send("GET", "/metrics")).body.decode())
    assert 'penstock_requests_total{operation="fetch",status="200"} 1.0' in text
    assert 'penstock_requests_total{operation="fetch",status="416"} 1.0' in text
    assert await gateway.metric("penstock_produce_records_total") == 3
    assert await gateway.metric("penstock_topics") == 1


@in_process_only
async def test_metrics_do_not_grow_with_what_clients_make_up(start_gateway):
    """Labels come from the table of routes, never from a path, a topic or a client."""
    gateway = await start_gateway()
    await gateway.send("GET", "/nothing/0")
    before = (await gateway.send("GET", "/metrics")).body.count(b"\n")
    for n in range(1, 20):
        await gateway.send("GET", f"/nothing/{n}", b"", {"Penstock-Client-Id": f"client-{n}"})
        await gateway.send("GET", f"/v1/topics/unknown-{n}")
    after = (await gateway.send("GET", "/metrics")).body.count(b"\n")
    assert after - before < 60


async def test_nothing_follows_the_headers_of_a_head_request(gateway):
    answer = await gateway.send("HEAD", "/healthz")
    assert (answer.status, answer.body) == (200, b"")
    assert (await gateway.send("GET", "/healthz")).status == 200
