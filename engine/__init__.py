"""The log: record batches, segments, recovery, and the shard that owns partitions. Does not know HTTP."""
