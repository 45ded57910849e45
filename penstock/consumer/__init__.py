"""Fetches records: start positions, one long poll per partition, decoding."""
