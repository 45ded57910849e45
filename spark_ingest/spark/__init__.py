"""Spark: its context, its workers, direct reads."""
