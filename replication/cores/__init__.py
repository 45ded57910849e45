"""The decisions of replication as synchronous cores: events in, effects out; no I/O, no clock, no randomness."""
