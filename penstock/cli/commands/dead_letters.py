"""`penstock group replay-dead-letters`: produces dead letters of a share group back to where they came from.

A share group of its own hands them out, so a command that is repeated goes on where the last one ended. Each produce
has an idempotency key made of the dead letter's place, so a lost answer makes no second record.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import orjson

from penstock.admin.single_request import SingleRequestClient
from penstock.transport.exchange import Json, Request

PREFIX = "dead-letter-"  # of the headers that a dead letter has beside those of its record
AT_ONCE = 100


def replay(client: SingleRequestClient, group: str, topic: str) -> int:
    """Replay the dead letters of a group. Returns how many. Raises ProblemError, ConnectionFailed."""
    replaying = f"{group}.replay-dead-letters"
    count = 0
    while True:
        wish = {"topics": [topic], "max_records": AT_ONCE, "value": "base64"}
        found = client.acquire_records(replaying, wish)
        if found["lock"] is None:
            return count
        try:
            for record in found["records"]:
                if record.get("headers", {}).get(PREFIX + "group") == group:
                    _produce(client, record)
                    count += 1
        except BaseException:
            client.acknowledge_records(replaying, {"lock": found["lock"], "outcome": "release", "delay_ms": 0})
            raise
        client.acknowledge_records(replaying, {"lock": found["lock"]})


def _produce(client: SingleRequestClient, record: Json) -> None:
    headers = record["headers"]
    topic, partition = headers[PREFIX + "topic"], headers[PREFIX + "partition"]
    copy: dict[str, Any] = {
        name: record[name] for name in ("key", "key_base64", "value", "value_base64") if name in record
    }
    copy["headers"] = {name: value for name, value in headers.items() if not name.startswith(PREFIX)}
    path = f"/v1/topics/{quote(topic, safe='')}/partitions/{partition}/records"
    key = f"replay:{record['topic']}:{record['partition']}:{record['offset']}:{record['timestamp']}"
    sent = {"Content-Type": "application/json", "Idempotency-Key": key}
    client.send(Request("POST", path, body=orjson.dumps({"records": [copy]}), headers=sent)).check()
