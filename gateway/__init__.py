"""The HTTP surface. It may use replication and engine; nothing but `penstock serve` may use it."""
