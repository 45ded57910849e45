"""The shard: opens the partitions of one process and owns them."""
