"""The benchmark of ingestion."""
