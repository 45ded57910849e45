"""A node's information about itself: health, cluster, metrics, its contract and the page that shows it."""

import orjson

from openapi import load_contract
from tests.scenarios.gateways import in_process, in_process_only


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


async def test_the_address_alone_has_the_console_for_a_browser_and_the_paths_for_others(gateway):
    shell = await gateway.send("GET", "/", headers={"Accept": "text/html,*/*;q=0.8"})
    assert shell.headers["Content-Type"].startswith("text/html")
    links = (await gateway.send("GET", "/v1")).json
    assert (await gateway.send("GET", "/", headers={"Accept": "*/*"})).json == links
    for name, path in links.items():
        if "{" not in path:
            assert (await gateway.send("GET", path)).status == 200, name
    contract = load_contract()["paths"]
    assert set(links.values()) <= set(contract)


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


async def test_guides_and_the_index_of_their_search_are_sent_packed_and_asked_about_by_their_tag(gateway):
    for path in ("/docs", "/docs/produce"):
        answer = await gateway.send("GET", path, headers={"Accept-Encoding": "gzip, deflate"})
        assert (answer.status, answer.headers["Content-Encoding"]) == (200, "gzip"), path
        again = await gateway.send("GET", path, headers={"If-None-Match": answer.headers["ETag"]})
        assert (again.status, again.body) == (304, b"")
    assert len((await gateway.send("GET", "/docs/search.json")).json) > 500
    missing = await gateway.send("GET", "/docs/no-such-guide")
    assert (missing.status, missing.json["code"]) == (404, "not_found")
    assert (await gateway.send("GET", "/docs/..%2FREADME")).status == 404
