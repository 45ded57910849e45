"""Quotas: how much of a node or of a cluster each owner may use; no I/O, no clock, no randomness."""
