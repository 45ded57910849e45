"""Clusters of real processes: with ZooKeeper, embedded, moving partitions, rejected members."""
