"""The log: record batches, segments, recovery and the shard that owns partitions. It knows nothing of HTTP."""
