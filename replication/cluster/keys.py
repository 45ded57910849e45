"""Where things lie in the coordination store, and how partitions are named there. Values: cluster_values.py.

/cluster                     which cluster this is, and its secret; made by the first node
/nodes/<node id>             registered by each node that is alive; `created` is its incarnation
/topics/<name>               a topic: its id, partitions, settings
/states/<topic id>.<block>   the states of 100 partitions: one watch and one write serve them all
/deleted/<topic id>          a tombstone: only it lets a node that was away remove the files
/drained/<node id>           a node that is to lead nothing and to be given nothing
/controller/holder, /epoch   the latch
"""

from __future__ import annotations

CLUSTER = "/cluster"
NODES = "/nodes"
TOPICS = "/topics"
STATES = "/states"
DELETED = "/deleted"
DRAINED = "/drained"
CONTROLLER = "/controller"
BLOCK_PARTITIONS = 100  # some 15 KiB of states: far from what a value may have, and a failover is tens of writes

PartitionKey = tuple[str, int]
"""Topic id and number."""


def node_key(node_id: int) -> str:
    return f"{NODES}/{node_id}"


def topic_key(name: str) -> str:
    return f"{TOPICS}/{name}"


def deleted_key(topic_id: str) -> str:
    return f"{DELETED}/{topic_id}"


def drained_key(node_id: int) -> str:
    return f"{DRAINED}/{node_id}"


def block_of(topic_id: str, number: int) -> str:
    """The name, below /states, of the block with this partition's state."""
    return f"{topic_id}.{number // BLOCK_PARTITIONS}"


def block_key(block: str) -> str:
    return f"{STATES}/{block}"


def topic_id_of(block: str) -> str:
    return block.rpartition(".")[0]


def partition_name(topic_id: str, number: int) -> str:
    """As the cores call a partition."""
    return f"{topic_id}/{number}"


def partition_key(name: str) -> PartitionKey:
    topic_id, _, number = name.rpartition("/")
    return topic_id, int(number)
