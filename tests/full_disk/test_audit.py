"""On a full disk a deletion is made and recorded; once the trail has no room left, nothing is changed any more."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from tests.e2e.node_process import running_process
from tests.full_disk.small_disk import CONFIG, SmallDisk, produce, small_disk
from tests.scenarios.admin.audited import events_in
from tests.scenarios.conformity import assert_problem
from tests.scenarios.gateways import Gateway, over_http2

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

SHARDED = pytest.param("ext4", {"shards": 2}, marks=pytest.mark.long, id="ext4, two shards")
CHANGES_MAX = 300  # a spare file has room for some 60


@pytest.mark.parametrize(("kind", "form"), [pytest.param("tmpfs", {}, id="tmpfs, one process"), SHARDED])
async def test_a_deletion_is_recorded_and_made_and_without_room_for_the_trail_nothing_is(tmp_path, kind, form):
    with small_disk(tmp_path, kind) as disk:
        settings = {"data_dir": disk.data, "store": f"file://{tmp_path}/store", "audit": "on", **form}
        with running_process(tmp_path, **settings) as process:
            async with over_http2(process.port) as gateway:
                for name in ("deleted", "kept", "altered"):
                    await produce(await gateway.create(name, **CONFIG), 5)
                disk.fill()
                assert (await gateway.send("DELETE", "/v1/topics/deleted")).status == 204
                events = events_of(disk)
                assert [event["data"]["operation"] for event in events[-2:]] == ["delete_topic"] * 2
                assert events[-1]["data"]["outcome"] == "done"

                await until_refused(gateway, disk)
                before = await config_of(gateway)
                disk.fill()
                refused = await gateway.send("DELETE", "/v1/topics/kept")
                assert_problem(refused, "audit_unavailable", retryable=True, no_side_effects=True)
                assert "no space is left" in refused.json["detail"]
                assert (await gateway.send("GET", "/v1/topics/kept")).status == 200
                assert await config_of(gateway) == before

                disk.make_room()
                assert (await gateway.send("DELETE", "/v1/topics/kept")).status == 204
                assert events_of(disk)[-1]["data"]["outcome"] == "done"
            assert process.stop() == 0
        files = list((disk.data / "audit").glob("audit-*.jsonl"))
        assert len(files) >= 2, "a spare file was used"
        assert not [file for file in files if b"\0" in file.read_bytes()], "its zeros are cut off"


def events_of(disk: SmallDisk) -> list[dict]:
    """Return the events; a spare file in use ends in zeros."""
    directory: Path = disk.data / "audit"
    if not any(b"\0" in file.read_bytes() for file in directory.glob("audit-*")):
        return events_in(directory)
    files = sorted(directory.glob("audit-*.jsonl"))
    return [orjson.loads(line) for file in files for line in file.read_bytes().rstrip(b"\0").splitlines()]


async def config_of(gateway: Gateway) -> dict:
    return dict((await gateway.send("GET", "/v1/topics/altered")).json["config"])


async def until_refused(gateway: Gateway, disk: SmallDisk) -> None:
    """Alter a topic until the trail has no room: each answer says what has happened."""
    expected = await config_of(gateway)
    for number in range(CHANGES_MAX):
        disk.fill()
        retention_ms = 7_200_000 + number
        body = orjson.dumps({"config": {"retention_ms": retention_ms}})
        answer = await gateway.send("PATCH", "/v1/topics/altered", body, {"Content-Type": "application/json"})
        if answer.status == 200:
            expected["retention_ms"] = retention_ms
        else:
            assert answer.json["code"] in ("audit_unavailable", "storage_full"), answer.json
        assert await config_of(gateway) == expected
        if answer.status == 503:
            return
    raise AssertionError("the trail takes changes without end")
