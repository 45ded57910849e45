"""Reads the store: topics, partitions, slices of segments."""
