"""The commands of `penstock ingest`. An entry point of the distribution names `ingest.py`."""
