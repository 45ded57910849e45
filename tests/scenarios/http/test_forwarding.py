"""`Penstock-Forward: never`: the client itself sends a request to the process that serves it."""

from __future__ import annotations

from yarl import URL

from tests.scenarios.conformity import assert_problem
from tests.scenarios.gateways import NDJSON, over_http2

STRAIGHT = {"Penstock-Forward": "never"}
PARTITIONS = 8  # with this many, each of two shards owns some, for any topic id


async def test_a_request_that_must_not_be_forwarded_is_served_here_or_gets_the_leader(new_topic, form):
    topic = await new_topic(PARTITIONS)
    elsewhere = {}
    for number in range(PARTITIONS):
        answer = await topic.post(b"1\n", NDJSON, STRAIGHT, to=number)
        if answer.status != 200:
            url = answer.headers["Penstock-Leader"]
            assert_problem(answer, "misdirected", leader_url=url, no_side_effects=True)
            elsewhere[number] = url
    assert len(elsewhere) < PARTITIONS
    assert bool(elsewhere) == (form == "sharded")
    for number, url in elsewhere.items():
        async with over_http2(URL(url).port) as owner:
            path = f"{topic.path}/partitions/{number}/records"
            assert (await owner.send("POST", path, b"2\n", {"Content-Type": NDJSON, **STRAIGHT})).status == 200
            fetched = await owner.send("GET", path, b"", STRAIGHT, offset=0)
            assert [record["value"] for record in fetched.json["records"]] == [2]
    assert {number for number in range(PARTITIONS) if await topic.values(number) == [1]} == set(
        range(PARTITIONS)
    ) - elsewhere.keys()


async def test_requests_for_a_topic_and_for_several_get_the_same(new_topic, form):
    topic = await new_topic(PARTITIONS)
    events = await topic.gateway.send("HEAD", f"{topic.path}/records", b"", {"Accept": "text/event-stream", **STRAIGHT})
    lines = "".join(f'{{"topic":"{topic.name}","partition":{number},"value":1}}\n' for number in range(PARTITIONS))
    several = await topic.gateway.send("POST", "/v1/records", lines.encode(), {"Content-Type": NDJSON, **STRAIGHT})
    assert events.status == several.status == (421 if form == "sharded" else 200)
    stored = [record for number in range(PARTITIONS) for record in await topic.records(number)]
    assert len(stored) == (0 if form == "sharded" else PARTITIONS)
