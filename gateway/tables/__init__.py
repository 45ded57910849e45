"""Compacted topics as tables: one key, or the last record of every key and then the changes."""
