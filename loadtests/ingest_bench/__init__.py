"""Measures ingestion beside DuckDB, PyArrow and plain Spark: `make bench-ingest`."""
