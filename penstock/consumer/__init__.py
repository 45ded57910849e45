"""Fetches records: start positions, one long poll for each partition, decoding."""
