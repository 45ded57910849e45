"""What a rebuilt coordination store has, from the inventories of a stopped cluster."""

import msgspec
import pytest

from engine.errors import Corrupt, StartRefused
from replication.cluster.producer_ids import MARGIN_IDS
from replication.cluster.start_counter import StartCounter, starts_from_bytes, starts_to_bytes
from replication.rebuild.inventory import (
    LogInventory,
    NodeInventory,
    StartInventory,
    TopicInventory,
    decode_inventory,
    encode_inventory,
)
from replication.rebuild.plan import EPOCHS_SKIPPED, Choices, Plan, PlannedPartition, common_end, plan_rebuild

DEFAULT = Choices()


def log(*epochs: tuple[int, int], end: int, watermark: int = 0, **more) -> LogInventory:
    return LogInventory(epochs=epochs, log_end=end, high_watermark=watermark, **more)


def topic(*logs: LogInventory, name: str = "t", topic_id: str = "", **more) -> TopicInventory:
    given = {"partitions": len(logs), "replication_factor": 3, "created_ms": 5, "config": {}, **more}
    numbered = dict(enumerate(logs))
    return TopicInventory(name=name, topic_id=topic_id or f"id-{name}", hosted=tuple(numbered), logs=numbered, **given)


def node(node_id: int, *topics: TopicInventory, **more) -> NodeInventory:
    given = {"cluster_id": "c", "directory_id": f"d{node_id}", "starts": {}, **more}
    return NodeInventory(node_id=node_id, topics=topics, **given)


def planned(nodes: list[NodeInventory], choices: Choices = DEFAULT) -> Plan:
    return plan_rebuild([decode_inventory(encode_inventory(one), "file") for one in nodes], choices)


def partition(*logs: LogInventory | None, choices: Choices = DEFAULT, **more) -> tuple[PlannedPartition, Plan]:
    """Plan one partition; None is a node whose directory is absent."""
    having = [node(at, topic(one, **more)) for at, one in enumerate(logs, 1) if one is not None]
    plan = planned(having, choices)
    return plan.topics[0].partitions[0], plan


def test_equal_logs_are_in_sync_and_epochs_go_up():
    same = log((1, 0), (4, 6), end=9, watermark=9)
    one, plan = partition(same, same, same)
    assert (one.replicas, one.in_sync, one.leader_epoch, one.log_end) == ((1, 2, 3), (1, 2, 3), 4 + EPOCHS_SKIPPED, 9)
    assert (one.lost, one.is_unclean, plan.questions) == (0, False, ())


def test_the_epoch_of_the_last_record_comes_before_the_length():
    longer = log((1, 0), end=20, watermark=6)
    newest = log((1, 0), (2, 6), end=9, watermark=9)
    one, plan = partition(longer, newest, longer)
    assert (one.in_sync, one.log_end, plan.questions) == ((2,), 9, ())


def test_of_one_epoch_the_longest_log_leads():
    one, _ = partition(
        log((3, 0), end=5, watermark=5), log((3, 0), end=7, watermark=5), log((3, 0), end=7, watermark=7)
    )
    assert one.in_sync == (2, 3)


def test_an_epoch_without_a_record_elects_no_log_and_is_not_used_again():
    one, _ = partition(log((3, 0), (8, 5), end=5), log((3, 0), end=7, watermark=7), log((3, 0), end=7, watermark=7))
    assert (one.in_sync, one.leader_epoch) == ((2, 3), 8 + EPOCHS_SKIPPED)


def test_each_rebuild_begins_above_the_epochs_of_the_one_before():
    """An absent node may have led in them without a record that reached the others."""
    same = log((1, 0), end=9)
    first, second = (partition(same, same, same, choices=Choices(now_ms=1_800_000_000_000 + at)) for at in (0, 9000))
    assert second[0].leader_epoch == first[0].leader_epoch + 9 > 1_000_000


def test_an_old_copy_follows():
    newest = log((1, 0), (4, 6), end=9, watermark=9)
    one, plan = partition(newest, newest, log((1, 0), end=3, watermark=3))
    assert (one.in_sync, plan.questions) == ((1, 2), ())


def test_a_known_high_watermark_above_the_newest_log_is_refused_with_its_count():
    same = log((1, 0), end=9, watermark=9)
    lost = log(end=0, watermark=14, problem="it is damaged")
    one, plan = partition(same, same, lost)
    assert one.lost == 5
    assert "5 committed records of partition 0" in plan.questions[0].reason
    accepted, plan = partition(same, same, lost, choices=Choices(accepted=["t"]))
    assert (accepted.is_unclean, plan.questions) == (True, ())
    assert "accepted" in plan.notes[0]


def test_a_committed_record_that_the_newest_log_replaced_is_refused():
    one, plan = partition(
        log((1, 0), (2, 6), end=9), log((1, 0), end=8, watermark=8), log((1, 0), (2, 6), end=9), name="orders"
    )
    assert (one.in_sync, one.lost, plan.questions[0].topic) == ((1, 3), 2, "orders")


def test_unsynced_records_that_one_replica_lost_are_on_the_others():
    same = log((1, 0), end=9, watermark=9)
    one, plan = partition(same, same, log((1, 0), end=7, watermark=9))
    assert (one.in_sync, one.lost, plan.questions) == ((1, 2), 0, ())


@pytest.mark.parametrize(
    ("minimum", "present", "is_refused"), [(2, 2, False), (2, 1, True), (1, 2, True), (3, 1, False)]
)
def test_as_many_absent_replicas_as_acknowledge_a_record_are_refused(minimum, present, is_refused):
    logs = [log((1, 0), end=9)] * present + [None] * (3 - present)
    one, plan = partition(*logs, config={"min_insync_replicas": minimum})
    assert (one.absent, bool(plan.questions)) == (3 - present, is_refused)
    if is_refused:
        assert "--accept-loss t" in plan.questions[0].hint


def test_an_absent_node_comes_back_as_a_replica_that_is_not_in_sync():
    same = log((1, 0), end=9)
    one, _ = partition(same, same, None, choices=Choices(absent=[3]))
    assert (one.replicas, one.in_sync) == ((1, 2, 3), (1, 2))


def test_a_partition_without_any_log_begins_again_only_if_that_is_accepted():
    gone = log(end=0, watermark=7, problem="its directory is missing")
    _, plan = partition(gone, gone, gone)
    assert len(plan.questions) == 2
    one, plan = partition(gone, gone, gone, choices=Choices(accepted=["t"]))
    assert (one.in_sync, one.lost, one.is_unclean, plan.questions) == ((1, 2, 3), 7, True, ())


def test_a_topic_that_a_node_does_not_know_is_a_question():
    same = log((1, 0), end=9)
    nodes = [node(1), node(2), node(3, topic(same))]
    plan = planned(nodes)
    assert "it is on node 3 and not on nodes 1, 2" in plan.questions[0].reason
    left = planned(nodes, Choices(left_out=["t"]))
    assert (left.topics, left.left_out, left.questions, left.deleted) == ((), ("t",), (), {})
    marked = planned(nodes, Choices(markers=["id-t"]))
    assert (marked.topics, marked.questions, marked.deleted) == ((), (), {"id-t": "t"})
    accepted = planned(nodes, Choices(accepted=["t"]))
    assert (len(accepted.topics), accepted.questions) == (1, ())


def test_a_topic_whose_description_cannot_be_read_is_known_to_its_node():
    same = log((1, 0), end=9)
    plan = planned([node(1, topic(same)), node(2, topic(same)), node(3, unreadable=("id-t",))])
    assert (plan.questions, plan.topics[0].partitions[0].in_sync) == ((), (1, 2))


def test_of_two_topics_of_one_name_the_one_that_most_nodes_know_is_current():
    same = log((1, 0), end=9)
    old = topic(same, topic_id="old", created_ms=900)
    new = topic(same, topic_id="new", created_ms=7)
    plan = planned([node(1, new), node(2, new), node(3, old)])
    assert [one.entry.topic_id for one in plan.topics] == ["new"]
    assert "made again" in plan.notes[0]


def test_settings_are_those_of_most_nodes_and_differences_are_named():
    same = log((1, 0), end=9)
    now, before = topic(same, config={"flush_ms": 2}), topic(same, config={"flush_ms": 1}, changed_ms=99)
    plan = planned([node(1, before), node(2, now), node(3, now)])
    assert plan.topics[0].entry.config == {"flush_ms": 2}
    assert "other settings on node 1" in plan.notes[0]
    grown = topic(same, same, config={"flush_ms": 1})
    assert planned([node(1, grown), node(2, now), node(3, now)]).topics[0].entry.partitions == 2


def test_starts_are_those_of_the_disks_and_producer_ids_go_up():
    starts = {"d1": StartInventory(number=4, nonce="n"), "more": StartInventory(number=2, nonce="m")}
    same = log((1, 0), end=9, producer_id_max=2047)
    plan = planned([node(1, topic(same), starts=starts), node(2, topic(same)), node(3, topic(same))])
    assert plan.starts[1].counters == {"d1": StartCounter(4, ("n",)), "more": StartCounter(2, ("m",))}
    assert starts_from_bytes("k", starts_to_bytes(plan.starts[1])) == plan.starts[1]
    assert not StartCounter(4, ("n", "earlier")).is_older_than(plan.starts[1].counters["d1"])
    assert StartCounter(3, ("n",)).is_older_than(plan.starts[1].counters["d1"])
    assert plan.producer_ids_end == 3000 + MARGIN_IDS


def test_inventories_of_two_clusters_or_twice_of_one_node_are_refused():
    with pytest.raises(StartRefused, match="clusters b and c"):
        planned([node(1), node(2, cluster_id="b")])
    with pytest.raises(StartRefused, match="2 inventories of node 1"):
        planned([node(1), node(1)])
    with pytest.raises(StartRefused, match="no inventory has a topic"):
        planned([node(1)], Choices(left_out=["typo"]))


def test_a_file_of_another_form_is_refused():
    with pytest.raises(Corrupt, match="not an inventory"):
        decode_inventory(b"{}", "file")
    newer = msgspec.structs.replace(node(1), format=2)
    with pytest.raises(Corrupt, match="format 2"):
        decode_inventory(encode_inventory(newer), "file")


@pytest.mark.parametrize(
    ("leader", "other", "end"),
    [
        (log((1, 0), end=9), log((1, 0), end=7), 7),
        (log((1, 0), (2, 5), end=9), log((1, 0), end=7), 5),
        (log((1, 0), (3, 5), end=9), log((1, 0), (2, 4), end=7), 4),
        (log((2, 3), end=9), log((2, 3), end=9), 9),
        (log(end=0), log(end=0), 0),
    ],
)
def test_two_logs_are_equal_up_to_where_their_epochs_part(leader, other, end):
    assert common_end(leader, other) == end
