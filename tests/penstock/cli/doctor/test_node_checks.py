"""Checks of a node's metrics by `penstock doctor`."""

from importlib.metadata import version

import pytest

from penstock.cli.doctor.node_checks import _metrics, check_cluster


@pytest.mark.parametrize("name", ["penstock_recovery_mid_log_truncations", "penstock_recovery_holes"])
def test_truncations_in_the_middle_of_logs_are_reported_by_nodes_of_two_versions(name: str) -> None:
    text = f"penstock_last_shutdown_power_loss 1.0\n{name} 2.0\n"
    (finding,) = [one for one in _metrics(text) if one.name == "last stop"]
    assert finding.found == "power was lost; 2 logs truncated in the middle"


def test_lost_nodes_and_partitions_in_need_are_named() -> None:
    def node(number: int, *, is_alive: bool) -> dict[str, object]:
        return {"node_id": number, "alive": is_alive, "version": version("penstock") if is_alive else None}

    healthy = {"nodes": [node(1, is_alive=True), node(2, is_alive=True)], "controller": 1, "under_replicated": []}
    assert {finding.level for finding in check_cluster(healthy)} == {"ok"}
    ailing = {
        "nodes": [node(1, is_alive=True), node(2, is_alive=False)],  # the first of the list may be the lost one, too
        "controller": None,
        "offline_partitions": [{"topic": "a", "partitions": [0, 2]}],
        "under_replicated": [{"topic": "a", "partitions": [0, 2]}, {"topic": "b", "partitions": [1]}],
    }
    found = {finding.name: (finding.level, finding.found) for finding in check_cluster(ailing) if finding.level != "ok"}
    assert found == {
        "nodes": ("fail", "lost: node 2, of 2"),
        "controller": ("fail", "none"),
        "without a leader": ("fail", "a/0,2"),
        "under-replicated": ("warn", "a/0,2 b/1"),
    }


def test_a_silent_coordination_store_is_a_failure_and_nodes_are_not_called_alive() -> None:
    nodes = [{"node_id": number, "alive": True, "version": version("penstock")} for number in (1, 2)]
    cluster = {"nodes": nodes, "controller": None, "coordination": {"age_ms": 34_000, "silent": True}}
    found = {
        finding.name: (finding.level, finding.found) for finding in check_cluster(cluster) if finding.level != "ok"
    }
    assert found == {
        "coordination store": ("fail", "answered 34 s ago"),
        "nodes": ("warn", "2, all alive when the coordination store last answered"),
    }


def test_what_a_tenant_is_shown_of_a_cluster_is_not_a_failure() -> None:
    [finding] = check_cluster({"nodes": [{"url": "http://127.0.0.1:8080"}]})
    assert (finding.level, "http://127.0.0.1:8080" in finding.found) == ("warn", True)
