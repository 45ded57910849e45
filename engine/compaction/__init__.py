"""Compaction: keeps the last record of each key of a log, while the log is read and written."""
