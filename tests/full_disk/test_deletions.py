"""Every deletion works without a free byte, and what is refused is refused whole, and works once there is room."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import orjson
import pytest

from tests.e2e.node_process import running_process
from tests.full_disk.small_disk import CONFIG, VALUE, SmallDisk, produce, small_disk, until_positions, until_status
from tests.scenarios.conformity import assert_problem
from tests.scenarios.gateways import Topic, over_http2

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

JSON = {"Content-Type": "application/json"}
FORMS = {
    "one process": {},
    "two shards": {"shards": 2},
    "embedded": {"coordination": "embedded"},
}
SHORT = {("tmpfs", "embedded")}  # ext4 has the next test
EVERY = [
    pytest.param(kind, form, marks=[] if (kind, form) in SHORT else pytest.mark.long, id=f"{kind}, {form}")
    for kind in ("ext4", "tmpfs")
    for form in FORMS
]


@pytest.fixture
def disk(request, tmp_path: Path):
    with small_disk(tmp_path, request.param) as mounted:
        yield mounted


async def refuses_records(topic: Topic) -> None:
    answer = await until_status(topic.gateway, 507, "POST", f"{topic.path}/records", body=b'{"records":[{"value":1}]}')
    assert_problem(answer, "storage_full", retryable=True, no_side_effects=True)


async def spares_are_whole(disk: SmallDisk) -> None:
    """The node makes its spare files again in the room that a deletion made, before records take it."""
    for _ in range(200):
        names = [name for name in os.listdir(disk.data / "spare") if name.isdigit()]
        if len(names) == 8:
            return
        await asyncio.sleep(0.1)
    raise AssertionError(f"spare files: {names}")


@pytest.mark.parametrize(("disk", "form"), EVERY, indirect=["disk"])
async def test_every_deletion_works_without_a_free_byte(disk, form, tmp_path):
    """Failed before: each of them stayed 507, and a refused one hid records until a restart."""
    settings = {"data_dir": disk.data, "store": f"file://{tmp_path}/store", "tier_check_ms": "200ms", **FORMS[form]}
    with running_process(tmp_path, **settings) as process:
        async with over_http2(process.port) as gateway:
            names = ("deleted", "patched", "gone", "tiered")
            topics = {name: await gateway.create(name, **CONFIG) for name in names}
            for topic in topics.values():
                await produce(topic, 12)
            await spares_are_whole(disk)
            disk.fill()
            await refuses_records(topics["deleted"])

            answer = await gateway.send("DELETE", f"{topics['deleted'].path}/partitions/0/records", before=5)
            assert answer.status == 200, answer.body
            assert (await topics["deleted"].fetch(4)).status == 410
            assert (await topics["deleted"].fetch(5)).status == 200
            await spares_are_whole(disk)
            disk.fill()

            body = orjson.dumps({"config": {"retention_bytes": 1 << 20}})
            answer = await gateway.send("PATCH", topics["patched"].path, body, JSON)
            assert answer.status == 200, answer.body
            await until_positions(topics["patched"], log_start=5)
            await spares_are_whole(disk)
            disk.fill()

            assert (await gateway.send("DELETE", topics["gone"].path)).status == 204
            await spares_are_whole(disk)
            disk.fill()

            body = orjson.dumps({"config": {"local_retention_bytes": 0}})
            assert (await gateway.send("PATCH", topics["tiered"].path, body, JSON)).status == 200
            for _ in range(100):
                tier = (await gateway.send("GET", f"{topics['tiered'].path}/tier")).json["partitions"][0]
                if tier["local_log_start"] >= 5:
                    break
                await asyncio.sleep(0.2)
            assert tier["local_log_start"] >= 5, tier
            assert (await topics["tiered"].fetch(0)).status == 200, "from the store"
            disk.fill()
            await refuses_records(topics["tiered"])
        process.kill()
        assert "Traceback" not in process.errors, process.errors
    disk.fill()
    with running_process(tmp_path, **settings) as process:  # on the full disk
        async with over_http2(process.port) as gateway:
            positions = {name: (await Topic(gateway, name).positions())["log_start"] for name in ("deleted", "patched")}
            assert positions["deleted"] == 5
            assert positions["patched"] >= 5
            assert (await gateway.send("GET", "/v1/topics/gone")).status == 404
            topic = Topic(gateway, "deleted")
            answer = await until_status(gateway, 200, "DELETE", f"{topic.path}/partitions/0/records", before=10)
            assert (await topic.fetch(9)).status == 410
            disk.make_room()
            await until_status(gateway, 200, "POST", f"{topic.path}/records", body=b'{"records":[{"value":1}]}')
        assert process.stop() == 0
        assert "Traceback" not in process.errors, process.errors


@pytest.mark.parametrize("disk", ["ext4", pytest.param("tmpfs", marks=pytest.mark.long)], indirect=True)
async def test_what_only_adds_data_is_refused_whole_and_works_once_there_is_room(disk, tmp_path):
    """Failed before: commits of groups were 503 coordinator_moved, and a share group gave its records away twice."""
    with running_process(tmp_path, data_dir=disk.data) as process:
        async with over_http2(process.port) as gateway:
            topic = await gateway.create("t", **CONFIG)
            await produce(topic, 3)
            config = orjson.dumps({"config": {"kind": "share"}})
            assert (await gateway.send("PUT", "/v1/groups/queue", config, JSON)).status in (200, 201)
            commit = orjson.dumps({"offsets": [{"topic": "t", "partition": 0, "offset": 1}]})
            for name in ("g", "unused"):
                assert (await gateway.send("PUT", f"/v1/groups/{name}/offsets", commit, JSON)).status == 200
            await spares_are_whole(disk)
            disk.fill()
            await refuses_records(topic)
            kept = 1
            for number in range(100):  # the last block of the segment takes some
                position = {"topic": "t", "partition": 0, "offset": 2, "metadata": str(number) * 100}
                commit = orjson.dumps({"offsets": [position]})
                first = await gateway.send("PUT", "/v1/groups/g/offsets", commit, JSON)
                if first.status == 507:
                    break
                kept = 2
            refused = [
                first,
                await gateway.send("PUT", "/v1/groups/g/offsets", commit, JSON),
                await gateway.send("DELETE", "/v1/groups/unused"),
                await gateway.send("PUT", "/v1/groups/queue2", config, JSON),
            ]
            for answer in refused:
                assert answer.status == 507, answer.body
                assert_problem(answer, "storage_full", retryable=True, no_side_effects=True)
            offsets = (await gateway.send("GET", "/v1/groups/g/offsets")).json["offsets"]
            assert [one["offset"] for one in offsets] == [kept]
            ask = orjson.dumps({"topics": ["t"], "max_records": 10, "lock_ms": 60_000})
            taken: list[int] = []
            lock = ""
            for _ in range(4):
                answer = await gateway.send("POST", "/v1/groups/queue/acquire", ask, JSON)
                assert answer.status in (200, 507), answer.body
                taken += [one["offset"] for one in answer.json.get("records", ())]
                lock = answer.json.get("lock") or lock
                await asyncio.sleep(0.5)
            end = (await topic.positions())["log_end"]  # small records may have fitted into the last block
            assert sorted(taken) == list(range(end)), "each locked record goes to one caller"
            extension = orjson.dumps({"lock": lock, "outcome": "extend", "lock_ms": 60_000})
            assert (await gateway.send("POST", "/v1/groups/queue/acknowledge", extension, JSON)).status == 200
            outcome = orjson.dumps({"lock": lock})
            answer = await gateway.send("POST", "/v1/groups/queue/acknowledge", outcome, JSON)
            assert answer.status == 507, answer.body
            disk.make_room()
            await until_status(gateway, 200, "PUT", "/v1/groups/g/offsets", body=commit)
            await until_status(gateway, 204, "DELETE", "/v1/groups/unused")
            await until_status(gateway, 200, "POST", "/v1/groups/queue/acknowledge", body=outcome)
            answer = await gateway.send("POST", "/v1/groups/queue/acquire", ask, JSON)
            assert answer.json["records"] == []
        assert process.stop() == 0
        assert "Traceback" not in process.errors, process.errors


@pytest.mark.parametrize(
    "disk", [pytest.param(one, marks=pytest.mark.long) for one in ("ext4", "tmpfs")], indirect=True
)
async def test_producers_and_fences_outlive_a_deletion_without_a_free_byte(disk, tmp_path):
    """Their only traces are the snapshot and the file of the fence, which are written before the records go."""
    with running_process(tmp_path, data_dir=disk.data) as process:
        async with over_http2(process.port) as gateway:
            topic = await gateway.create("t", **CONFIG)
            producer = (await gateway.send("POST", "/v1/producers")).json
            headers = {"Producer-Id": str(producer["producer_id"]), "Producer-Epoch": str(producer["producer_epoch"])}
            body = orjson.dumps({"token": "a"})
            fence = await gateway.send("PUT", f"{topic.path}/partitions/0/fence", body, JSON)
            assert fence.status == 200, fence.body
            token = {"Penstock-Fencing-Token": "a"}
            first = await topic.post(VALUE, "text/plain", {**headers, **token, "Producer-Seq": "0"}, to=0)
            assert first.status == 200, first.body
            for _ in range(12):
                answer = await topic.post(VALUE, "text/plain", token, to=0)
                assert answer.status == 200
            await spares_are_whole(disk)
            disk.fill()
            end = (await topic.positions())["log_end"]
            answer = await gateway.send("DELETE", f"{topic.path}/partitions/0/records", before=end)
            assert answer.status == 200, answer.body
            disk.make_room()
        process.kill()
    with running_process(tmp_path, data_dir=disk.data) as process:
        async with over_http2(process.port) as gateway:
            again = await Topic(gateway, "t").post(VALUE, "text/plain", {**headers, **token, "Producer-Seq": "0"}, to=0)
            assert again.headers.get("Penstock-Duplicate") == "true", again.body
            other = await Topic(gateway, "t").post(b"x", "text/plain", {"Penstock-Fencing-Token": "b"}, to=0)
            assert other.status == 412, other.body


@pytest.mark.parametrize(
    "disk", [pytest.param(one, marks=pytest.mark.long) for one in ("ext4", "tmpfs")], indirect=True
)
async def test_compaction_waits_for_room_and_leaves_nothing_behind(disk, tmp_path):
    with running_process(tmp_path, data_dir=disk.data, compaction_check_ms="500ms") as process:
        async with over_http2(process.port) as gateway:
            topic = await gateway.create("t", cleanup_policy="compact", **CONFIG)
            for _ in range(12):
                answer = await gateway.send(
                    "POST", f"{topic.path}/records", VALUE, {"Content-Type": "text/plain"}, key="k"
                )
                assert answer.status == 200, answer.body
            await spares_are_whole(disk)
            disk.fill()
            await asyncio.sleep(3)
            assert not list(disk.data.glob("topics/t/*/0/*.compacted.tmp"))
            assert (await topic.fetch(0)).status == 200
            disk.make_room()
            for _ in range(100):
                if len(await topic.records(max_bytes=8 << 20)) < 12:
                    break
                await asyncio.sleep(0.2)
            assert len(await topic.records(max_bytes=8 << 20)) < 12
        assert process.stop() == 0


@pytest.mark.parametrize(
    "disk", [pytest.param(one, marks=pytest.mark.long) for one in ("ext4", "tmpfs")], indirect=True
)
async def test_producers_that_hammer_a_full_disk_do_not_take_the_spare_files(disk, tmp_path):
    """Retention frees a segment again and again while appends take every byte."""
    with running_process(tmp_path, data_dir=disk.data) as process:
        async with over_http2(process.port) as gateway:
            topic = await gateway.create("t", retention_bytes=4 << 20, **CONFIG)
            disk.filler.write_bytes(bytes(14 << 20))
            loop = asyncio.get_running_loop()
            ended, refused, accepted = loop.time() + 30, 0, 0

            async def hammer() -> None:
                nonlocal refused, accepted
                while loop.time() < ended:
                    answer = await topic.post(VALUE, "text/plain")
                    assert answer.status in (200, 507), answer.body
                    refused += answer.status == 507
                    accepted += answer.status == 200 and refused > 0

            await asyncio.gather(*(hammer() for _ in range(8)))
            assert refused > 0
            assert accepted > 10, "retention makes room for records again and again"
            await spares_are_whole(disk)
            await until_status(gateway, 200, "POST", f"{topic.path}/records", body=b'{"records":[{"value":1}]}')
        assert process.stop() == 0
        assert "Traceback" not in process.errors, process.errors
