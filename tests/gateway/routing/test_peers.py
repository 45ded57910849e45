"""The process that serves a partition: the shard that its id selects, in a cluster the leader in the view."""

from __future__ import annotations

import pytest

from gateway.links.internal_link import Credentials
from gateway.links.link import LinkDown
from gateway.links.process_links import ProcessLinks
from gateway.routing.peers import Owner, Peers
from replication.cluster.values import NodeInfo, TopicEntry
from replication.cluster.view import ClusterView
from replication.cores.partition_state import Member, PartitionState, VersionedState
from replication.errors import NoLeader

OWN, OTHER = 1, 2


def view_of(*nodes: NodeInfo) -> ClusterView:
    view = ClusterView()
    view.put_nodes({node.node_id: node for node in nodes})
    view.put_topic(TopicEntry("t", "t-id", 1, 2))
    return view


def lead(view: ClusterView, leader: Member, epoch: int) -> None:
    view.put_states([("t-id", 0, VersionedState(PartitionState((OTHER, OWN), leader, epoch, (leader,)), epoch))])


def node(node_id: int, broker_epoch: int) -> NodeInfo:
    return NodeInfo(node_id, broker_epoch, f"http://{node_id}", internal_urls=(f"http://127.0.0.1:{node_id}",))


def test_the_leader_that_the_view_names_answers_for_a_partition() -> None:
    view = view_of(node(OWN, 100), node(OTHER, 7))
    peers = Peers(cluster=view, node_id=OWN)
    assert peers.known_epoch("t-id", 0) == 0
    with pytest.raises(NoLeader):
        peers.owner("t-id", 0)
    lead(view, Member(OTHER, 7), epoch=5)
    assert (peers.owner("t-id", 0), peers.known_epoch("t-id", 0)) == (Owner(OTHER, 0), 5)
    lead(view, Member(OWN, 100), epoch=6)
    assert (peers.owner("t-id", 0), peers.known_epoch("t-id", 0)) == (Owner(None, 0), 6)


def test_a_leader_that_registered_again_since_its_election_does_not_answer() -> None:
    view = view_of(node(OWN, 100), node(OTHER, 9))
    lead(view, Member(OTHER, 7), epoch=5)
    with pytest.raises(NoLeader):
        Peers(cluster=view, node_id=OWN).owner("t-id", 0)


async def test_a_node_links_the_other_nodes_and_not_itself() -> None:
    links = ProcessLinks(credentials=Credentials("cluster", "secret"))
    peers = Peers(links=links, cluster=view_of(node(OWN, 100), node(OTHER, 7)), node_id=OWN)
    peers.on_nodes_changed()
    with pytest.raises(LinkDown, match="restarting"):
        peers.link(Owner(OTHER, 0))
    with pytest.raises(LinkDown, match="is not there"):
        peers.link(Owner(OWN, 0))
    links.close()
