"""The replicas of a shard's partitions, standalone or in a cluster, as their callers see them.

Both kinds have the same methods; replica_host.py documents them. A union, so that each caller is checked with both.
"""

from __future__ import annotations

from replication.replica.replica import Replica
from replication.replica.replica_host import ReplicaHost
from replication.replica.standalone import StandaloneReplica, StandaloneReplicas

AnyReplica = Replica | StandaloneReplica
Replicas = ReplicaHost | StandaloneReplicas
