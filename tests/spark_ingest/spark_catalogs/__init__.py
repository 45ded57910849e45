"""Iceberg and Delta tables of ingestion, read by Spark through a catalog."""
