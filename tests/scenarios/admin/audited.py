"""One request for each operation that changes something, in an order in which each can be made, and their traces."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from tests.scenarios.gateways import JSON, Answer, Gateway

HOOK = "http://127.0.0.1:9/hook?signature=firma-7f3c9d"
SECRET = "whsec_" + "QUJD" * 8
FENCE = "valla-7f3c9d"
SETTINGS = {
    "push_targets": "127.0.0.1/32",
    "push_http": True,
    "push_unconfirmed": True,
    "audit": "on",
}


class Change(NamedTuple):
    operation: str
    method: str
    path: str
    body: object = None
    status: int = 200


TOPIC = "/v1/topics/t"
PARTITION = f"{TOPIC}/partitions/0"
PUSH = "/v1/subscriptions/s"
DISKS = "/v1/cluster/nodes/1/disks"
RULE = {"id": "r1", "principals": ["anonymous"], "operations": ["read"], "resource": "topic", "name": "t"}
CHANGES = [
    Change("create_topic", "PUT", TOPIC, {"partitions": 2}, 201),
    Change("alter_topic", "PATCH", TOPIC, {"config": {"retention_ms": 7_200_000}, "partitions": 3}),
    Change("roll_topic", "POST", f"{TOPIC}/roll"),
    Change("delete_records", "DELETE", f"{PARTITION}/records?before=0"),
    Change("set_fence", "PUT", f"{PARTITION}/fence", {"token": FENCE}),
    Change("configure_group", "PUT", "/v1/groups/g", {"config": {"session_timeout_ms": 20_000}}, 201),
    Change("alter_group", "PATCH", "/v1/groups/g", {"config": {"session_timeout_ms": 30_000}}),
    Change("reset_group", "POST", "/v1/groups/g/reset", {"to": "earliest", "topics": ["t"]}),
    Change("delete_group_offsets", "DELETE", "/v1/groups/g/offsets?topic=t"),
    Change("delete_group", "DELETE", "/v1/groups/g", status=204),
    Change("put_subscription", "PUT", PUSH, {"url": HOOK, "topics": ["t"], "secrets": [SECRET]}, 201),
    Change("alter_subscription", "PATCH", PUSH, {"delivery": {"timeout_ms": 7000}}),
    Change("pause_subscription", "POST", f"{PUSH}/pause"),
    Change("resume_subscription", "POST", f"{PUSH}/resume"),
    Change("replay_subscription", "POST", f"{PUSH}/replay", {"to": "earliest"}),
    Change("delete_subscription", "DELETE", PUSH, status=204),
    Change("reassign", "POST", "/v1/cluster/reassignments", {"topic": "t", "partitions": {"0": [1]}}, 202),
    Change("cancel_reassignment", "DELETE", "/v1/cluster/reassignments/t/0", status=204),
    Change("drain_node", "POST", "/v1/cluster/nodes/1/drain", {"drained": True}, 409),
    Change("decommission_node", "POST", "/v1/cluster/nodes/1/decommission", status=409),
    Change("balance", "POST", "/v1/cluster/balance", {"apply": True}),
    Change(
        "move_partitions", "POST", f"{DISKS}/moves", {"moves": [{"topic": "t", "partition": 0, "to": "{disk}"}]}, 202
    ),
    Change("cancel_move", "DELETE", f"{DISKS}/moves/t/0", status=204),
    Change("create_token", "POST", "/v1/access/tokens", {"name": "shop"}, 201),
    Change("rotate_token", "POST", "/v1/access/tokens/shop/rotate", status=201),
    Change("revoke_token", "DELETE", "/v1/access/tokens/shop"),
    Change("add_rule", "POST", "/v1/access/rules", RULE, 201),
    Change("remove_rule", "DELETE", "/v1/access/rules/r1"),
    Change("set_quota", "PUT", "/v1/access/quotas/topic/t", {"bytes_in": 1_000_000}),
    Change("remove_quota", "DELETE", "/v1/access/quotas/topic/t"),
    Change("add_url_key", "POST", "/v1/access/keys", status=201),
    Change("remove_url_key", "DELETE", "/v1/access/keys/{key}"),
    Change("create_tenant", "PUT", "/v1/tenants/team", status=201),
    Change("alter_tenant", "PATCH", "/v1/tenants/team", {"limits": {"topics": 5}}),
    Change("remove_tenant", "DELETE", "/v1/tenants/team"),
    Change("delete_topic", "DELETE", TOPIC, status=204),
]
STATES = (
    "/v1/topics",
    TOPIC,
    f"{PARTITION}/fence",
    "/v1/groups",
    "/v1/groups/g",
    "/v1/subscriptions",
    PUSH,
    "/v1/cluster",
    "/v1/access/rules",
    "/v1/access/tokens",
    "/v1/access/quotas",
    "/v1/access/keys",
    "/v1/tenants",
)
VOLATILE = (
    "request_id",
    "lag_ms",
    "lag_records",
    "attempts",
    "last_error",
    "delivered",
    "failed",
    "waiting",
    "in_flight",
    "state",
)


async def make(gateway: Gateway, change: Change, headers: Mapping[str, str] | None = None) -> Answer:
    body = b"" if change.body is None else orjson.dumps(change.body)
    path = change.path
    if b"{disk}" in body:
        disks = (await gateway.send("GET", DISKS)).json["disks"]
        body = body.replace(b"{disk}", disks[0]["path"].encode())
    if "{key}" in path:
        path = path.replace("{key}", (await gateway.send("GET", "/v1/access/keys")).json["keys"][0]["id"])
    return await gateway.send(change.method, path, body, {"Content-Type": JSON, **(headers or {})})


async def state_of(gateway: Gateway) -> dict[str, Any]:
    """Return all that the changes change."""
    found = {}
    for path in STATES:
        found[path] = _lasting((await gateway.send("GET", path)).json)
    return found


def _lasting(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _lasting(one) for name, one in value.items() if name not in VOLATILE}
    return [_lasting(one) for one in value] if isinstance(value, list) else value


def events_in(directory: Path) -> list[dict[str, Any]]:
    """Return the events of all audit files."""
    files = sorted(directory.glob("audit-*.jsonl"))
    return [orjson.loads(line) for file in files for line in file.read_bytes().splitlines()]
