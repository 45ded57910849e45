"""The status of a node for people: overview, topics in pages, the last hour, the caller, the settings."""

from pathlib import Path

import orjson

from engine.errors import StorageFailed
from engine.format.paths import store_registration_key
from engine.tiering.manifest.job_registration import (
    CommitFigures,
    JobFigures,
    RegisteredTopic,
    Registration,
    encode_registration,
)
from tests.gateway.several_nodes import several_nodes
from tests.scenarios.gateways import Gateway, in_process, in_process_only
from tests.tokens import add_token, bearer


async def fill(gateway: Gateway, **sizes: int) -> None:
    for name, size_bytes in sizes.items():
        await (await gateway.create(name)).post(b"x" * size_bytes)


async def names(gateway: Gateway, **query: object) -> tuple[list[str], dict[str, object]]:
    document = (await gateway.send("GET", "/v1/topics", **query)).json
    return [row["topic"] for row in document["topics"]], document


async def test_topics_come_in_pages_by_name_or_by_a_number(gateway):
    await fill(gateway, b1=30_000, b2=300_000, b3=3000, b4=1)
    assert (await names(gateway))[1].keys() == {"topics", "total", "next"}
    first, document = await names(gateway, prefix="b", limit=2)
    assert (first, document["total"], document["next"]) == (["b1", "b2"], 4, "b2")
    rest, document = await names(gateway, prefix="b", limit=2, after="b2")
    assert (rest, document["total"], document["next"]) == (["b3", "b4"], 4, None)
    largest, document = await names(gateway, prefix="b", sort="log_bytes", limit=2)
    assert largest == ["b2", "b1"]
    assert (await names(gateway, prefix="b", sort="log_bytes", after=document["next"]))[0] == ["b3", "b4"]
    assert (await gateway.send("GET", "/v1/topics", sort="log_bytes", after="x")).json["code"] == "invalid_query"


async def test_a_summary_has_sizes_from_all_processes(gateway):
    await fill(gateway, sum_a=1000, sum_b=10)
    _, document = await names(gateway, prefix="sum_", include="summary")
    rows = {row["topic"]: row for row in document["topics"]}
    assert rows["sum_a"]["log_bytes"] > 1000 > rows["sum_b"]["log_bytes"] > 10
    assert document["totals"]["log_bytes"] == rows["sum_a"]["log_bytes"] + rows["sum_b"]["log_bytes"]
    assert (rows["sum_a"]["in_sync_partitions"], rows["sum_a"]["led_partitions"], document["nodes_missing"]) == (
        1,
        1,
        [],
    )


@in_process_only
async def test_rates_ages_and_lags_are_of_the_last_sample(gateway):
    topic = await gateway.create("a")
    observer = gateway.node.observer
    observer.stop()  # no sample of its own comes between those of the test
    await observer.sample()
    await topic.post_lines("1", "2", "3")
    poll = orjson.dumps({"topics": ["a"], "wait_ms": 0})
    polled = await gateway.send("POST", "/v1/groups/g/members/m/poll", poll, {"Content-Type": "application/json"})
    assert polled.status == 200
    await gateway.node.groups._lags.measure(gateway.node.groups._groups())
    await observer.sample()
    (row,) = (await names(gateway, prefix="a", include="summary"))[1]["topics"]
    assert row["records_in_per_s"] > 0 < row["bytes_in_per_s"]
    assert row["oldest_ms"] is not None
    samples = (await gateway.send("GET", "/v1/history", topic="a", since_ms=20_000)).json
    by_name = {series["name"]: series["values"] for series in samples["series"]}
    assert max(value or 0 for value in by_name["records_in_per_s"]) > 0
    totals = (await gateway.send("GET", "/v1/overview")).json["totals"]
    assert totals["records_in_per_s"] > 0 < totals["log_bytes"]


@in_process_only
async def test_a_poll_of_an_unchanged_status_is_304_and_large_ones_are_compressed(gateway):
    await fill(gateway, **{f"t{number:03}": 1 for number in range(60)})
    answer = await gateway.send("GET", "/v1/topics", headers={"Accept-Encoding": "gzip"}, include="summary")
    assert (answer.headers["Content-Encoding"], answer.status) == ("gzip", 200)
    known = {"If-None-Match": answer.headers["ETag"]}
    again = await gateway.send("GET", "/v1/topics", headers=known, include="summary")
    assert (again.status, again.body) == (304, b"")
    await fill(gateway, more=1)
    again = await gateway.send("GET", "/v1/topics", headers=known, include="summary")
    assert again.status == 200


@in_process_only
async def test_a_partition_that_is_offline_is_a_finding_until_it_is_back(gateway):
    await fill(gateway, a=1)
    partition = gateway.node.shard.topics["a"].partitions[0]
    partition.offline = StorageFailed("a/0: EIO")
    await gateway.node.observer.sample()
    found = {one["code"]: one for one in (await gateway.send("GET", "/v1/overview")).json["findings"]}
    assert (found["replica_offline"]["topic"], "EIO" in found["replica_offline"]["found"]) == ("a", True)
    partition.offline = None
    await gateway.node.observer.sample()
    codes = [one["code"] for one in (await gateway.send("GET", "/v1/overview")).json["findings"]]
    assert "replica_offline" not in codes


async def test_history_says_what_it_has_and_refuses_what_it_has_not(gateway):
    document = (await gateway.send("GET", "/v1/history", since_ms=60_000)).json
    assert document["step_ms"] == 10_000
    assert all(len(series["values"]) in (0, 6) for series in document["series"])
    answer = await gateway.send("GET", "/v1/history", names="records_in_per_s,nothing")
    assert (answer.status, answer.json["parameter"]) == (400, "names")
    assert (await gateway.send("GET", "/v1/history", topic="a", group="g")).json["code"] == "invalid_query"


async def test_a_limited_token_sees_its_own_and_what_it_may(tmp_path: Path):
    tokens = tmp_path / "tokens"
    limited, boss = (
        add_token(tokens, "limited", read=["a"]),
        add_token(tokens, "boss", admin=[""], read=[""], write=[""], group=[""]),
    )
    async with in_process(tmp_path, tokens_file=str(tokens)) as gateway:
        for name in ("a.x", "b.x"):
            assert (await gateway.send("PUT", f"/v1/topics/{name}", headers=bearer(boss))).status == 201
            gateway.node.shard.topics[name].partitions[0].offline = StorageFailed(f"{name}/0: EIO")
        await gateway.node.observer.sample()
        overview = (await gateway.send("GET", "/v1/overview", headers=bearer(limited))).json
        assert [one["topic"] for one in overview["findings"] if one["topic"]] == ["a.x"]
        assert (overview["topics"], overview["limited_to"]["prefixes"]) == (1, ["a"])
        gateway.node.shard.topics["a.x"].partitions[0].offline = None
        whose = {"Content-Type": "application/json"} | bearer(boss)
        await gateway.send("POST", "/v1/topics/a.x/records", b'{"records":[{"value":1}]}', whose)
        assert (await gateway.send("POST", "/v1/groups/g/members/m/poll", b'{"topics":["a.x"]}', whose)).status == 200
        await gateway.node.groups._lags.measure(gateway.node.groups._groups())
        rows = [
            (await gateway.send("GET", "/v1/topics", headers=bearer(token), include="summary", prefix="a")).json
            for token in (boss, limited)
        ]
        lags = [(row["topics"][0]["lag_group"], row["totals"]["lag_records"]) for row in rows]
        assert lags == [("g", 1), (None, 0)], "a group that a caller has no right to is not named"
        me = (await gateway.send("GET", "/v1/me", headers=bearer(limited))).json
        read = [one for one in me["rights"] if (one["resource"], one["operation"]) == ("topic", "read")]
        assert (me["principal"], read[0]["prefixes"]) == ("token:limited", ["a"])
        assert not any(one["operation"] == "write" for one in me["rights"])
        assert (await gateway.send("GET", "/v1/settings", headers=bearer(limited))).status == 403
        for query, status in (({"topic": "a.x"}, 200), ({"topic": "b.x"}, 403), ({"group": "g"}, 403)):
            assert (await gateway.send("GET", "/v1/history", headers=bearer(limited), **query)).status == status
        whole = (await gateway.send("GET", "/v1/overview", headers=bearer(boss))).json
        assert len([one for one in whole["findings"] if one["code"] == "replica_offline"]) == 2


async def test_settings_have_their_source_and_no_credentials(tmp_path: Path):
    store = f"file://user:se@secret@{tmp_path}/store?key=secret"
    sources = {"store": "flag"}
    async with in_process(tmp_path, sources=sources) as gateway:
        object.__setattr__(gateway.node.settings, "store", store)
        answer = await gateway.send("GET", "/v1/settings")
        rows = {row["name"]: row for row in answer.json["settings"]}
        assert (rows["store"]["value"], rows["store"]["source"]) == (f"file://{tmp_path}/store", "flag")
        assert rows["data_dir"]["source"] == "adjusted", "the test gave it to no source"
        assert rows["port"] | {"why": ""} == {
            "name": "port", "value": 8080, "source": "default", "default": 8080, "minimum": 0, "maximum": 65535,
            "choices": [], "why": "",
        }  # fmt: skip
        assert b"secret" not in answer.body


async def test_each_node_says_which_may_be_restarted_and_what_is_wrong(tmp_path: Path, caplog):
    async with several_nodes(tmp_path, count=3) as cluster:
        await cluster.create("t", 2, leader=1)
        gateways = [member.gateway for member in cluster.members.values()]

        async def may(node_id: int) -> set[tuple[bool, str]]:
            answers = [(await one.send("GET", f"/v1/cluster/nodes/{node_id}/may-restart")).json for one in gateways]
            return {(answer["may_restart"], "".join(row["code"] for row in answer["reasons"])) for answer in answers}

        assert await may(2) == {(True, "")}
        assert await may(9) == {(False, "unknown_node")}
        cluster.world.lead(1, 1, in_sync=(1, 2))
        assert await may(3) == {(False, "not_in_sync")}
        assert await may(2) == {(False, "needed")}
        assert [(await one.send("GET", "/readyz", **{"for": "restart"})).status for one in gateways] == [503, 503, 503]
        assert not caplog.records  # a probe got the answer that it asks for
        within = {"for": "restart", "within_ms": 0}
        assert [(await one.send("GET", "/readyz", **within)).status for one in gateways] == [200, 200, 200]
        within["within_ms"] = 86_400_000
        assert (await gateways[0].send("GET", "/readyz", **within)).status == 503
        assert (await gateways[2].send("GET", "/readyz")).status == 200
        for one in gateways:
            await one.node.observer.sample()
            found = [row for row in (await one.send("GET", "/v1/overview")).json["findings"] if row["topic"]]
            assert [(row["code"], row["found"]) for row in found] == [
                ("under_replicated", "t/1 lacks replicas in sync: node 3 lags")
            ]


async def test_a_node_shows_its_audit_trail_to_operators(tmp_path: Path):
    tokens = tmp_path / "tokens"
    boss, reader = add_token(tokens, "boss", metrics=True), add_token(tokens, "reader", read=[""])
    async with in_process(tmp_path, tokens_file=str(tokens), superusers="token:boss", node_id=1) as gateway:
        assert (await gateway.send("PUT", "/v1/topics/a", headers=bearer(boss))).status == 201
        path = "/v1/cluster/nodes/1/audit"
        assert (await gateway.send("GET", path, headers=bearer(reader))).status == 403
        page = (await gateway.send("GET", path, headers=bearer(boss), limit=2, resource="topic/a")).json
        assert [row["type"].rpartition(".v1.")[2] for row in page["events"]] == ["change.ended", "change.intended"]
        assert (page["recorded"], page["nodes_missing"]) == (True, [])
        older = (await gateway.send("GET", path, headers=bearer(boss), after=page["next"])).json
        assert older["events"][-1]["type"] == "penstock.audit.v1.started"
        assert older["next"] is None
        denied = (await gateway.send("GET", path, headers=bearer(boss), kind="denied")).json["events"]
        assert [row["data"]["operation"] for row in denied] == ["read_audit"]
        assert (await gateway.send("GET", f"{path}?after={2**64}:0", headers=bearer(boss))).status == 400
        other = (await gateway.send("GET", "/v1/cluster/nodes/9/audit", headers=bearer(boss))).json
        assert (other["recorded"], other["nodes_missing"]) == (None, [9])
        for after in ("x", "1:", f"1:{10**18}", "1:\N{SUPERSCRIPT TWO}"):  # a number of 65 bits fits into no call
            assert (await gateway.send("GET", path, headers=bearer(boss), after=after)).json["code"] == "invalid_query"


async def test_ingestion_jobs_have_their_lag_and_the_counts_of_their_commits(tmp_path: Path):
    async with in_process(tmp_path) as gateway:
        topic = await gateway.create("a")
        await topic.post_lines("1", "2", "3")
        record = gateway.node.shard.topics["a"].record
        figures = JobFigures(7, 2, ("b",), (CommitFigures(1, 1000, 5, 1, 2, 2, 300),))
        topics = {"a": RegisteredTopic(record.topic_id, {0: 1}), "gone": RegisteredTopic("other", {0: 9})}
        job = Registration("hourly", "a1", "s3://user:secret@lake/x?key=secret", topics, figures)
        store, cluster_id = gateway.node.usage.store, gateway.node.server.admin.cluster_id
        store.put(store_registration_key(cluster_id, "hourly", "a1"), encode_registration(job))
        store.put(store_registration_key(cluster_id, "later", "a2"), b"not a registration")
        answer = await gateway.send("GET", "/v1/cluster/jobs", limit=1)
        [row] = answer.json["jobs"]
        assert (row["job"], row["output"], row["topics"]) == ("hourly", "s3://lake/x", ["a", "gone"])
        assert (row["lag_records"], row["lag_s"] >= 0, row["lost_records"], row["held"]) == (2, True, 7, ["b"])
        assert row["commits"][0] | {"rows": 5, "small_files": 2} == row["commits"][0]
        assert b"secret" not in answer.body
        [unreadable] = (await gateway.send("GET", "/v1/cluster/jobs", after=answer.json["next"])).json["jobs"]
        assert (unreadable["id"], unreadable["readable"]) == ("later-a2", False)


async def test_one_request_moves_a_partition_to_one_directory(tmp_path: Path):
    async with in_process(tmp_path) as gateway:
        await gateway.send("PUT", "/v1/topics/a")
        moves = [{"topic": "a", "partition": 0, "to": path} for path in ("/b", "/c")]
        path = "/v1/cluster/nodes/1/disks/moves"
        assert (await gateway.send("POST", path, orjson.dumps({"moves": moves}))).json["code"] == "invalid_body"
        refused = (await gateway.send("POST", path, orjson.dumps({"moves": moves[:1]}))).json
        assert "is not a data directory" in refused["detail"]
