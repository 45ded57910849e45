"""Tiered segments become rows here: a Spark data source, and an incremental job that writes Parquet tables.

Never talks to a broker: it reads manifests and segment objects from the store, and imports only the engine's pure
format, path, manifest and store modules. What is promised, and how: docs/ingest.md.
"""
