"""Compaction: keeps the last record of each key, in a thread or in the worker, while the partition is read and written."""
