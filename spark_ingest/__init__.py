"""Converts tiered segments to rows: a Spark data source, and an incremental job that writes Parquet tables.

It never calls a node. It reads manifests and segment objects from the store, and imports only the engine's format,
path, manifest and store modules. docs/ingest.md describes the guarantees.
"""
