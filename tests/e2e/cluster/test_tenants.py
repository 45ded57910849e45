"""Two tenants on three nodes: each part of the story goes to another node, and no byte names what is another's."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.e2e.cluster.test_cluster import SETTINGS, Cluster, until
from tests.replication.zookeeper_process import WHY_NOT, is_installed, zookeeper_process
from tests.scenarios.http.test_tenants import (
    RIGHTS,
    Caller,
    Hook,
    Node,
    use_groups,
    use_records,
    use_rest,
    use_subscriptions,
    use_topics,
)
from tests.tokens import add_token

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.skipif(not is_installed(), reason=WHY_NOT)]


@pytest.mark.long
def test_no_byte_that_a_tenant_receives_of_three_nodes_names_another_one_or_its_own_prefix(tmp_path: Path) -> None:
    tokens, hook = tmp_path / "tokens.toml", Hook()
    boss = add_token(tokens, "boss", read=[""], write=[""], admin=[""], group=[""], metrics=True)
    own = {"tokens-file": tokens, "superusers": "token:boss", "push-targets": "127.0.0.0/8"}
    own |= {"push-http": True, "push-unconfirmed": True, "auto-create-topics": True}
    with zookeeper_process(tmp_path / "zookeeper") as zookeeper:
        cluster = Cluster(tmp_path, f"127.0.0.1:{zookeeper.port}", 3, **{**SETTINGS, **own})
        try:
            cluster.start()
            ports = [urlsplit(node.url).port or 0 for node in cluster.nodes.values()]
            nodes = [Node(port, boss, hook) for port in ports]
            until(lambda: nodes[0].caller(boss)("GET", "/readyz").json()["status"] == "ready")
            assert nodes[0].caller(boss)("POST", "/v1/access/keys").status_code == 201
            ids = [f"q{secrets.token_hex(8)}" for _ in range(3)]
            of_tenants = [node.tenant(tenant) for node, tenant in zip(nodes, ids, strict=True)]
            until(lambda: all(_knows(node, token) for node in nodes for token in of_tenants))
            callers = [[node.caller(token) for node in nodes] for token in of_tenants]
            assert callers[2][0]("PUT", "/v1/topics/orders").status_code == 201
            for number, asks in enumerate(callers[:2]):
                one, two, three = asks[number:] + asks[:number]
                use_topics(one, ids[2])
                until(partial(_all_know_a_topic, (one, two, three)))
                use_records(two, ids[2])
                use_groups(three, ids[2])
                use_subscriptions(two, ids[2], hook, f"c{number}")
                use_rest(one, ids[number], ids[2])
            for number, asks in enumerate(callers[:2]):
                for ask in asks:
                    assert ask.faults(ids[1 - number], f"{ids[number]}.", f"{ids[number]}\\.") == []
        finally:
            for node in cluster.nodes.values():
                node.kill()
            hook.server.shutdown()


def _knows(node: Node, token: str) -> bool:
    answer = Caller(node.port, token, "1.1")("GET", "/v1/access/rules")
    return answer.status_code == 200 and len(answer.json()["rules"]) == len(RIGHTS)


def _all_know_a_topic(callers: Sequence[Caller]) -> bool:
    return all(ask("GET", "/v1/topics/fresher").status_code == 200 for ask in callers)
