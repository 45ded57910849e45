"""Instances: readers whose state the coordinator keeps."""

from __future__ import annotations

import pytest

from gateway.groups.core import instances
from gateway.groups.core.coordinator import Coordinator
from gateway.groups.model.errors import GroupNotEmpty, UnknownGroup, UnknownMember
from gateway.groups.model.instances import (
    BeginRead,
    CommitInstance,
    CreateInstance,
    EndRead,
    InstanceCall,
    InstanceView,
    PlaceInstance,
    SubscribeInstance,
)
from gateway.groups.model.values import START_POLICY, Position, TopicSize
from tests.gateway.groups.core.coordinators import GROUP, Stage

IDLE_MS = 60_000


class Readers(Stage):
    """A stage with calls of instances of its group."""

    def create(self, name: str, nonce: str = "n", *, commits: bool = False) -> InstanceView:
        view: InstanceView = self.call(instances.create, CreateInstance(GROUP, name, "{}", IDLE_MS, nonce, commits))
        return view

    def subscribe(self, name: str, *topics: str) -> InstanceView:
        view: InstanceView = self.call(instances.subscribe, SubscribeInstance(GROUP, name, topics))
        return view

    def assign(self, name: str, *numbers: int) -> InstanceView:
        places = tuple(Position("t", "id-t", number, 0) for number in numbers)
        view: InstanceView = self.call(instances.place, PlaceInstance(GROUP, name, places))
        return view

    def seek(self, name: str, number: int, offset: int) -> InstanceView:
        place = (Position("t", "id-t", number, offset),)
        view: InstanceView = self.call(instances.place, PlaceInstance(GROUP, name, place, is_seek=True))
        return view

    def begin(self, name: str, holder: str = "r") -> InstanceView:
        view: InstanceView = self.call(instances.begin_read, BeginRead(GROUP, name, holder, 1000))
        return view

    def end(self, name: str, version: int, offsets: dict[int, int], holder: str = "r") -> None:
        positions = tuple(Position("t", "id-t", number, offset) for number, offset in offsets.items())
        self.call(instances.end_read, EndRead(GROUP, name, holder, version, positions))

    def read(self, name: str, **offsets: int) -> None:
        """Reads up to these offsets, by partition: `p0=3`."""
        view = self.begin(name)
        self.end(name, view.version, {int(number[1:]): offset for number, offset in offsets.items()})

    def offsets(self, name: str) -> dict[int, int]:
        view: InstanceView = self.call(instances.look, InstanceCall(GROUP, name))
        return {one.partition: one.offset for one in view.positions}

    def kept(self) -> dict[int, int]:
        return {slot.partition: offset.offset for slot, offset in self.core.groups[GROUP].offsets.items()}


def test_an_id_is_taken_once_and_a_repeated_creation_finds_its_own() -> None:
    stage = Readers(t=2)
    assert stage.create("i", "first").is_new
    assert stage.create("i", "first").is_new, "a repeat of the call counts as another one"
    assert not stage.create("i", "second").is_new


def test_what_was_read_and_assigned_survives_the_coordinator() -> None:
    stage = Readers(t=2)
    stage.create("by-hand")
    stage.assign("by-hand", 0, 1)
    stage.read("by-hand", p0=5)
    stage.create("member")
    stage.subscribe("member", "t")
    stage.read("member", p1=7)
    before = [stage.offsets("by-hand"), stage.offsets("member")]
    stage.fail_over()
    assert [stage.offsets("by-hand"), stage.offsets("member")] == before
    assert before == [{0: 5, 1: START_POLICY}, {0: START_POLICY, 1: 7}]


def test_one_request_reads_at_a_time_until_its_lease_ends() -> None:
    stage = Readers(t=1)
    stage.create("i")
    stage.assign("i", 0)
    view = stage.begin("i", "first")
    assert stage.begin("i", "second").busy_ms == 1000
    assert stage.seek("i", 0, 9).busy_ms == 1000, "a seek changes what another request reads"
    stage.now_ms += 1001
    late = stage.begin("i", "second")
    assert not late.busy_ms
    stage.end("i", late.version, {0: 3}, "second")
    stage.end("i", view.version, {0: 8}, "first")
    assert stage.offsets("i") == {0: 3}, "a read whose lease has ended counts"


def test_a_node_that_ends_within_a_read_has_stored_nothing() -> None:
    stage = Readers(t=1)
    stage.create("i")
    stage.assign("i", 0)
    stage.read("i", p0=4)
    stage.begin("i", "lost")
    stage.now_ms += 1001
    assert stage.begin("i", "next").positions[0].offset == 4


def test_a_partition_that_came_back_begins_at_the_committed_position() -> None:
    stage = Readers(t=2)
    for name in ("a", "b"):
        stage.create(name)
    stage.subscribe("a", "t")
    stage.read("a", p0=10, p1=10)
    stage.subscribe("b", "t")
    stage.begin("a", "r")  # gives up one partition
    [moved] = stage.offsets("b")
    stage.end("a", -1, {})
    stage.read("b", **{f"p{moved}": 20})
    stage.call(instances.commit, CommitInstance(GROUP, "b", ()))
    stage.call(instances.delete, InstanceCall(GROUP, "b"))
    assert stage.offsets("a")[moved] == 20, "the position of an earlier assignment counts"
    assert stage.offsets("a")[1 - moved] == 10


def test_reads_commit_what_was_read_before_if_the_instance_wants_it() -> None:
    stage = Readers(t=1)
    stage.create("i", commits=True)
    stage.subscribe("i", "t")
    stage.read("i", p0=5)
    assert stage.kept() == {}
    stage.begin("i")
    assert stage.kept() == {0: 5}


def test_a_seek_goes_back_behind_what_is_committed() -> None:
    stage = Readers(t=1)
    stage.create("i")
    stage.subscribe("i", "t")
    stage.read("i", p0=5)
    stage.call(instances.commit, CommitInstance(GROUP, "i", ()))
    assert not stage.seek("i", 0, 2).refusal
    assert stage.offsets("i") == {0: 2}
    assert "No current assignment" in stage.seek("i", 7, 2).refusal


def test_an_idle_instance_goes_and_its_group_stays_with_the_positions() -> None:
    stage = Readers(t=1)
    stage.create("i")
    stage.subscribe("i", "t")
    stage.read("i", p0=5)
    stage.call(instances.commit, CommitInstance(GROUP, "i", ()))
    stage.now_ms += IDLE_MS - 1
    stage.call(instances.sweep)
    assert stage.offsets("i") == {0: 5}  # and this request keeps it
    stage.now_ms += IDLE_MS
    stage.call(instances.sweep)
    with pytest.raises(UnknownMember):
        stage.offsets("i")
    stage.fail_over()
    assert stage.kept() == {0: 5}
    assert not stage.core.groups[GROUP].instances


def test_a_member_that_was_removed_joins_again_with_its_next_read() -> None:
    stage = Readers(t=1)
    stage.create("i")
    stage.subscribe("i", "t")
    stage.leave("i")
    assert stage.begin("i").positions[0].partition == 0


def test_an_instance_without_a_subscription_commits_only_beside_no_members() -> None:
    stage = Readers(t=2)
    stage.create("i")
    stage.assign("i", 0)
    stage.read("i", p0=5)
    stage.heartbeat("m")
    with pytest.raises(GroupNotEmpty):
        stage.call(instances.commit, CommitInstance(GROUP, "i", ()))
    stage.leave("m")
    stage.call(instances.commit, CommitInstance(GROUP, "i", ()))
    assert stage.kept() == {0: 5}


def test_positions_of_a_topic_that_was_created_again_do_not_count() -> None:
    stage = Readers(t=1)
    stage.create("i")
    stage.assign("i", 0)
    stage.read("i", p0=5)
    stage.topics["t"] = TopicSize("id-new", 1)
    assert stage.offsets("i") == {0: START_POLICY}
    del stage.topics["t"]
    assert stage.offsets("i") == {}


def test_a_deleted_group_takes_its_instances_along() -> None:
    stage = Readers(t=1)
    stage.create("i")
    stage.call(Coordinator.delete, GROUP)
    stage.fail_over()
    with pytest.raises(UnknownGroup):
        stage.offsets("i")
