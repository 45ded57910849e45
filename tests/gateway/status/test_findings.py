"""The rules that judge a process and a cluster: each staged fault has its finding, and a healthy one has none."""

import dataclasses
from pathlib import Path

import pytest
from msgspec.structs import replace

from gateway.status.findings import (
    ONE_CODE_MAX,
    Directory,
    Facts,
    FirstSeen,
    GroupFacts,
    judge_cluster,
    judge_process,
    worst_first,
)
from replication.cluster.values import NodeInfo, TopicEntry
from replication.cluster.view import ClusterView
from replication.cores.partition_state import Member, PartitionState, VersionedState

GIB = 1 << 30
WELL = Facts(node_id=1, directories=(Directory("/d", 500 * GIB, 1000 * GIB, None),))
FAULTS = {
    "replica_offline": {"offline": (("a", 0, "EIO"), ("a", 2, "EIO"))},
    "records_damaged": {"damaged": (("a", 0, "1 segments"),)},
    "diverged_replicas": {"diverged": (("a", 0, "that lacks records"),)},
    "tier_behind": {"not_uploaded": (("a", 0, "403 Forbidden"),)},
    "disk_full": {"directories": (Directory("/d", GIB // 2, 1000 * GIB, None),)},
    "disk_move_running": {"moving": (("a", 0, "5 of 9 bytes are left to copy to /e"),)},
    "disk_move_failed": {"move_failed": (("a", 0, "/e has 1 bytes free"),)},
    "disk_full_soon": {"directories": (Directory("/d", 50 * GIB, 1000 * GIB, None),)},
    "topics_set_aside": {"topics_set_aside": 2},
    "mid_log_truncation": {"mid_log_truncations": 1},
    "files_near_limit": {"files_share": 0.81},
    "plain_codec": {"is_codec_compiled": False},
    "certificate_expires": {"certificate_s": 13 * 86_400.0},
    "coordination_silent": {"store_silent_s": 34.0},
    "group_stuck": {"groups": (GroupFacts("g", 0, 5, 9.0),)},
    "group_falls_behind": {"groups": (GroupFacts("g", 2, 5, 301.0, True),)},
    "reads_fail": {"failed_reads": (("a", 0, "2 times within ten minutes, at last EIO"),)},
    "dead_letters": {"dead_letters": (("g", 3),)},
    "push_fails": {"failing_pushes": (("s", "answered 500"),)},
}


def test_a_healthy_process_has_no_findings() -> None:
    assert judge_process(WELL) == []
    assert judge_process(replace(WELL, groups=(GroupFacts("g", 2, 5, 301.0, False),))) == []


@pytest.mark.parametrize("code", FAULTS)
def test_a_fault_has_one_finding_with_a_section_of_the_runbook(code: str) -> None:
    (finding,) = judge_process(replace(WELL, **FAULTS[code]))
    assert (finding.code, bool(finding.found), bool(finding.remedy)) == (code, True, True)
    page, _, anchor = finding.runbook.partition("#")
    headings = [line.removeprefix("### ").lower() for line in Path(page).read_text().splitlines() if line[:4] == "### "]
    assert anchor in headings


def test_a_topic_on_a_full_disk_is_named_and_not_only_the_disk() -> None:
    full = Directory("/d", 0, 1000 * GIB, None)
    rows = (("a", 0, "/d is full"), ("a", 3, "/d is full"))
    of_disk, of_topic = judge_process(replace(WELL, directories=(full,), without_room=rows))[::-1]
    assert (of_disk.code, of_disk.topic, of_topic.code, of_topic.topic) == ("disk_full", "", "disk_full", "a")
    assert "a/0,3" in of_topic.found


def view_of(*alive: int, in_sync: tuple[int, ...], leader: int | None = 1) -> ClusterView:
    """A cluster with one partition that has the replicas 1, 2 and 3."""
    view = ClusterView()
    view.put_nodes({number: NodeInfo(number, 1, f"http://{number}") for number in alive})
    view.controller = alive[0]
    topic = TopicEntry("a", "id", 1, 3, {"min_insync_replicas": 2})
    view.put_topic(topic)
    members = tuple(Member(number, 1) for number in in_sync)
    state = PartitionState(
        replicas=(1, 2, 3), leader=None if leader is None else Member(leader, 1), leader_epoch=1, in_sync=members
    )
    view.put_states([(topic.topic_id, 0, VersionedState(state, 1))])
    return view


def test_a_healthy_cluster_has_no_findings() -> None:
    assert judge_cluster(view_of(1, 2, 3, in_sync=(1, 2, 3)), is_silent=False) == []


@pytest.mark.parametrize(
    ("view", "expected"),
    [
        (view_of(1, 2, 3, in_sync=(1, 2)), ["under_replicated"]),
        (view_of(1, 2, 3, in_sync=(1,)), ["under_min_isr"]),
        (view_of(2, 3, in_sync=(1,)), ["nodes_missing", "leaderless_partitions"]),
    ],
)
def test_a_topic_is_named_for_the_worst_of_its_needs(view: ClusterView, expected: list[str]) -> None:
    assert [finding.code for finding in judge_cluster(view, is_silent=False)] == expected


def test_a_leader_that_was_not_in_sync_is_named_until_the_next_election() -> None:
    view = view_of(1, 2, 3, in_sync=(1, 2, 3))
    ((key, versioned),) = view.states.items()
    for epoch, expected in ((5, ["unclean_election"]), (6, [])):
        state = dataclasses.replace(versioned.state, unclean_elections=1, unclean_epoch=5, leader_epoch=epoch)
        view.put_states([(*key, VersionedState(state, epoch))])
        found = judge_cluster(view, is_silent=False)
        assert [finding.code for finding in found] == expected
        assert all(finding.found.startswith("a/0 has a leader that was not in sync") for finding in found)


def test_a_finding_names_which_replica_lacks_and_why() -> None:
    view = view_of(1, 2, in_sync=(1,))
    (finding,) = [one for one in judge_cluster(view, is_silent=False) if one.code == "under_min_isr"]
    assert finding.found == "a/0 rejects acks=all: node 3 is not there and node 2 lags"


def test_failures_come_first_and_the_same_finding_once() -> None:
    facts = replace(WELL, is_codec_compiled=False, topics_set_aside=1)
    found = judge_process(facts)
    assert [finding.code for finding in worst_first(found + found)] == ["topics_set_aside", "plain_codec"]


def test_beyond_a_thousand_a_finding_says_how_many_more_there_are() -> None:
    groups = tuple(GroupFacts(f"g{number}", 0, 5, 9.0) for number in range(ONE_CODE_MAX + 5))
    offline = tuple((f"t{number}", 0, "EIO") for number in range(ONE_CODE_MAX + 7))
    found = judge_process(replace(WELL, groups=groups, offline=offline))
    assert len(found) == 2 * (ONE_CODE_MAX + 1)
    rest = [(one.code, one.found.split()[4]) for one in found if not one.group and not one.topic]
    assert rest == [("replica_offline", "7"), ("group_stuck", "5")]


def test_two_shards_of_a_node_name_their_own_partitions() -> None:
    shards = [judge_process(replace(WELL, offline=(("a", number, "EIO"),))) for number in (0, 1)]
    assert [one.found for one in worst_first(shards[0] + shards[1] + shards[0])] == [
        f"a/{number} offline on node 1: EIO" for number in (0, 1)
    ]


def test_a_finding_has_an_age_that_begins_anew_after_a_pause() -> None:
    seen, found = FirstSeen(), judge_process(replace(WELL, topics_set_aside=1))
    assert [one.age_ms for one in seen.date(found, 1000)] == [0]
    assert [one.age_ms for one in seen.date(found, 31_000)] == [30_000]
    assert seen.date([], 32_000) == []
    assert [one.age_ms for one in seen.date(found, 33_000)] == [0]
